// SPDX-License-Identifier: Apache-2.0
/// @file
/// `arena`: bump allocation with rewind. The arena owns its memory and gives it back when it is destroyed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include <tidemark/address_space.hpp>
#include <tidemark/arena_mark.hpp>
#include <tidemark/arena_options.hpp>
#include <tidemark/arena_stats.hpp>
#include <tidemark/borrowed_memory.hpp>
#include <tidemark/detail/align.hpp>
#include <tidemark/detail/arena_chunk.hpp>
#include <tidemark/detail/rewind_history.hpp>
#include <tidemark/detail/sanitizers.hpp>
#include <tidemark/macros.hpp>
#include <tidemark/out_of_memory.hpp>
#include <tidemark/upstream_memory.hpp>
#include <tidemark/violation.hpp>
#include <tidemark/virtual_memory.hpp>

namespace tidemark {

template <class AddressSpace>
class basic_arena_scope;

/// Tag: skip the zeroing of pushed memory. Bytes that were used before are then visible in it.
struct uninitialized_t {
  explicit uninitialized_t() = default;
};
inline constexpr uninitialized_t uninitialized{};

/// A bump allocator that can go back to any earlier position: the memory of one step, one request, one frame.
///
/// Use it where many allocations die together. Allocating moves a cursor; rewinding moves it back, whatever
/// was allocated between; addresses are reused after that. It is a `std::pmr::memory_resource` too.
///
/// ```cpp
/// arena step{{.reserve = 1 * GiB, .name = "step"}};
/// for (int i = 0; i < 1000; ++i) {
///   arena_scope scope{step};                              // everything below vanishes at the brace
///   std::span<float> x = step.push_array<float>(4096);    // zeroed
///   std::pmr::vector<int> indices{&step};                 // std::pmr containers as well
/// }
/// ```
/// Memory is reserved as one range and committed in steps; when the range is full, a further chunk is
/// chained. `deallocate` reclaims the newest block if no mark was taken and no scope opened after it, and
/// does nothing otherwise.
///
/// Invariants, checked by `check_invariants()`; `chunk` is the current one:
/// - `chunk.begin <= marked <= floor <= cursor <= end == chunk.committed <= chunk.end`
/// - `chunk.begin <= high`, and `cursor`, `floor` are multiples of `AddressSpace::block_alignment`
/// - `position() == chunk.base + (cursor - chunk.begin)`, and bases do not decrease along the chunks in use
/// - bytes at or above `max(cursor, high, dirty)` have not been touched since they were committed
///
/// Complexity: allocate, push, mark, rewind, scopes: O(1) but for growth. Thread-safety: one thread at a
/// time. The first thread to use it owns it until `hand_over()`; level 2 reports use by another.
/// @tparam AddressSpace where memory comes from: see `arena`, `borrowed_arena`, `upstream_arena` below.
// Members with a requires-clause are templates although they need not be: a constraint is part of the mangled
// name for clang and not for GCC, and code of both is linked together. A member template is never in the
// library.
template <class AddressSpace>
class basic_arena final : public std::pmr::memory_resource {
  static_assert(address_space<AddressSpace>, "an arena's memory must come from an address_space");

 public:
  using scope_type = basic_arena_scope<AddressSpace>;

  /// Alignment of every block, at least.
  static constexpr std::size_t default_alignment = AddressSpace::block_alignment;

  /// An arena on virtual memory made as `options` say: `arena{{.reserve = 64 * MiB, .name = "step"}}`.
  /// @throws out_of_memory if the first chunk cannot be reserved.
  template <class Options = arena_options>
    requires std::same_as<Options, arena_options> && std::same_as<AddressSpace, virtual_memory>
  explicit basic_arena(Options options)
      : basic_arena(virtual_memory{{options.huge_pages, options.prefault}}, options) {}
  /// An arena on `AddressSpace(arguments...)`, with none if there are none, and the default options. @throws
  /// as above.
  template <class... Arguments>
    requires std::constructible_from<AddressSpace, Arguments...>
  explicit(sizeof...(Arguments) == 1) basic_arena(Arguments&&... arguments)
      : basic_arena(AddressSpace(std::forward<Arguments>(arguments)...), arena_options{}) {}
  /// An arena on `space`, whose own options for huge pages and prefaulting hold. @throws as above.
  basic_arena(AddressSpace space, arena_options options);
  /// An arena on `AddressSpace(memory...)`: `device_arena{{.reserve = 1 * GiB, .name = "step"}, stream}`.
  /// @throws as above.
  template <class Options = arena_options, class... Memory>
    requires std::same_as<Options, arena_options> && (!std::same_as<AddressSpace, virtual_memory>) &&
             std::constructible_from<AddressSpace, Memory...>
  explicit basic_arena(Options options, Memory&&... memory)
      : basic_arena(AddressSpace(std::forward<Memory>(memory)...), options) {}

  basic_arena(basic_arena const&) = delete;
  basic_arena& operator=(basic_arena const&) = delete;
  /// Runs the destructors of `make` and gives all memory back. Reports a violation if a scope is still open;
  /// such scopes become inert.
  ~basic_arena() override;

  /// Uninitialised memory.
  /// @param bytes may be 0: the block is then as good as one of 1 byte, and differs from all others.
  /// @param align a power of two; blocks are aligned to `default_alignment` at least.
  /// @throws out_of_memory, or the upstream's exception; std::invalid_argument if `align` is found not to be
  /// a power of two, which only level 2 looks at in every call. Nothing has changed then.
  // Without gnu::alloc_size: compilers would take the size for final, and `expand` changes it.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment) {
    if constexpr (check_level >= 2) before_allocate(bytes, align);
    if ((bytes | align) <= fast_request_max) [[likely]] {
      const std::uintptr_t block = aligned_cursor(align);
      const std::uintptr_t next = block + block_bytes(bytes);
      if (next <= end_ && (AddressSpace::host_accessible || chunk_->marks.has_room())) [[likely]] {
        cursor_ = next;
        if constexpr (check_level >= 2) ++allocations_;
        if constexpr (AddressSpace::host_accessible) detail::hand_out(block, bytes);
        else chunk_->marks.hand_out(block, bytes);
        return reinterpret_cast<void*>(block);
      }
    }
    return allocate_beyond(bytes, align);
  }

  /// `allocate`, but null where that would throw.
  [[nodiscard]] void* try_allocate(std::size_t bytes, std::size_t align = default_alignment) noexcept;

  /// Gives a block back: reclaims it if it is the newest and no mark was taken and no scope opened since;
  /// does nothing otherwise. Level 2 reports pointers the arena does not hold.
  void deallocate(void* block, std::size_t bytes, std::size_t = default_alignment) noexcept {
    if constexpr (check_level >= 2) before_deallocate(block, bytes);
    if (!is_newest(block, bytes)) return;
    lower_cursor(reinterpret_cast<std::uintptr_t>(block));
    if (cursor_ == chunk_->begin) leave_empty_chunk();
  }

  /// Changes the size of the newest block in place, under the conditions of `deallocate`.
  /// @return whether it did; if not, nothing has changed. Grown bytes are uninitialised.
  [[nodiscard]] bool expand(void* block, std::size_t old_bytes, std::size_t new_bytes) noexcept;

  /// A `T` constructed from `arguments`; no destructor will run (see `make`). Without arguments a trivial `T`
  /// is all zero bytes (not null, then, for a pointer to member), which costs nothing where memory is fresh.
  /// @throws as `allocate`, or what the constructor throws, with the arena as it was before.
  template <class T, class... Arguments>
  [[nodiscard]] T* push(Arguments&&... arguments)
    requires(AddressSpace::host_accessible)
  {
    if constexpr (sizeof...(Arguments) == 0 && std::is_trivially_default_constructible_v<T>) {
      return static_cast<T*>(push_bytes(sizeof(T), alignof(T)));
    } else {
      return construct<T>(std::forward<Arguments>(arguments)...);
    }
  }

  /// Memory for a trivial `T`, as it is. @throws as `allocate`.
  template <class T>
    requires std::is_trivially_default_constructible_v<T>
  [[nodiscard]] T* push(uninitialized_t) {
    return static_cast<T*>(allocate(sizeof(T), alignof(T)));
  }

  /// `n` contiguous `T()`; where `T` is trivial, all zero bytes (not null, then, for a pointer to member). No
  /// destructors will run.
  /// @param n may be 0. @throws as `allocate`, also where `n * sizeof(T)` overflows; or what `T()` throws.
  template <class T>
  [[nodiscard]] std::span<T> push_array(std::size_t n)
    requires(AddressSpace::host_accessible)
  {
    if constexpr (std::is_trivially_default_constructible_v<T>) {
      return {static_cast<T*>(push_bytes(array_bytes<T>(n), alignof(T))), n};
    } else {
      rollback undo{*this};
      T* first = static_cast<T*>(allocate(array_bytes<T>(n), alignof(T)));
      std::uninitialized_value_construct_n(first, n);
      undo.dismiss();
      return {first, n};
    }
  }

  /// `n` contiguous trivial `T`, as memory is. @throws as `allocate`, also where `n * sizeof(T)` overflows.
  template <class T>
    requires std::is_trivially_default_constructible_v<T>
  [[nodiscard]] std::span<T> push_array(std::size_t n, uninitialized_t) {
    return {static_cast<T*>(allocate(array_bytes<T>(n), alignof(T))), n};
  }

  /// `bytes` zero bytes. @throws as `allocate`.
  template <class Space = AddressSpace>
    requires(Space::host_accessible)
  [[nodiscard]] void* push_bytes(std::size_t bytes, std::size_t align = default_alignment) {
    void* storage = allocate(bytes, align);
    zero(storage, bytes);
    return storage;
  }

  /// `bytes` bytes, as memory is: `allocate` under the name of its zeroing brothers. @throws as `allocate`.
  [[nodiscard]] void* push_bytes(std::size_t bytes, uninitialized_t, std::size_t align = default_alignment) {
    return allocate(bytes, align);
  }

  /// A `T` constructed from `arguments` whose destructor runs when the arena is rewound over it, reset or
  /// destroyed, in the reverse order of construction. Destructors must not throw. To discard the result is
  /// fine: what the destructor does may be all that is wanted.
  /// @throws as `push`.
  template <class T, class... Arguments>
  T* make(Arguments&&... arguments)
    requires(AddressSpace::host_accessible);

  /// The present position. Amortised O(1). @throws std::bad_alloc if there is no memory to keep account of
  /// it.
  [[nodiscard]] arena_mark mark() {
    if constexpr (check_level >= 2) before_use("mark");
    arena_mark mark;
    mark.arena_ = id_;
    mark.serial_ = history_.serial();
    mark.position_ = position();
    mark.cursor_ = cursor_;
    history_.marked_at(mark.position_);
    floor_ = marked_ = cursor_;
    return mark;
  }

  /// Goes back to a mark: everything allocated since is gone, marks above and scopes' memory included. The
  /// mark stays good and can be used again.
  /// @throws std::invalid_argument, with nothing changed, if the mark is another arena's, lies ahead, was
  /// rewound over since it was taken, or lies below an open scope.
  void rewind(arena_mark const& mark) {
    if constexpr (check_level >= 2) before_use("rewind");
    // Nothing to end above the newest mark, and it is this one: only the cursor moves.
    if (mark.cursor_ == floor_ && mark.serial_ == history_.serial() && mark.arena_ == id_ &&
        mark.position_ == chunk_->base + (floor_ - chunk_->begin)) [[likely]] {
      lower_cursor(floor_);
    } else {
      rewind_slow(mark);
    }
  }

  /// Frees the last `bytes` bytes, rounded up as `allocate` rounds; more than there are since the innermost
  /// open scope, or since the beginning, frees all those.
  void pop(std::size_t bytes) noexcept;

  /// Frees everything and keeps the memory for reuse. @throws std::logic_error if a scope is open.
  void reset();

  /// Frees everything and gives all memory back; the arena can go on. @throws std::logic_error if a scope is
  /// open.
  void release();

  /// Gives committed memory back that lies more than `keep_bytes` above the position: whole chunks first,
  /// then pages of the current chunk, where its kind of memory has pages (virtual memory has). Also while
  /// scopes are open. @return bytes given back. O(chunks).
  std::size_t trim(std::size_t keep_bytes = 0) noexcept;

  /// Gives all memory back to the system and keeps everything else: addresses, marks, scopes, the position.
  /// What lies in the memory is lost. The arena can be used meanwhile as far as it needs no more memory than
  /// it had: whoever touches its blocks faults. Device memory only. Does nothing if it is suspended.
  /// @throws what the address space throws; nothing has changed then.
  template <class Space = AddressSpace>
    requires(!Space::host_accessible) && requires(Space& space) { space.suspend(); }
  void suspend() {
    if constexpr (check_level >= 2) before_use("suspend");
    memory_goes();
    try {
      space_.suspend();
    } catch (...) {
      if (!space_.is_suspended()) memory_came();
      throw;
    }
  }
  /// Puts memory behind the same addresses again, as much as before or as trims have left; it is
  /// uninitialised. Does nothing if the arena is not suspended. @throws what the address space throws; it is
  /// suspended then.
  template <class Space = AddressSpace>
    requires requires(Space& space) { space.resume(); }
  void resume() {
    if constexpr (check_level >= 2) before_use("resume");
    const bool returns = space_.is_suspended();
    space_.resume();
    if (returns) memory_came();
  }
  /// Whether it is suspended.
  template <class Space = AddressSpace>
    requires requires(Space const& space) { space.is_suspended(); }
  [[nodiscard]] bool is_suspended() const noexcept {
    return space_.is_suspended();
  }

  /// Bytes handed out, padding included: one offset through all chunks.
  [[nodiscard]] std::size_t position() const noexcept { return chunk_->base + (cursor_ - chunk_->begin); }

  /// A snapshot in numbers. O(1).
  [[nodiscard]] arena_stats stats() const noexcept;

  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return options_.name; }

  /// Whether `address` lies in memory that is handed out. O(chunks).
  [[nodiscard]] bool owns(void const* address) const noexcept;

  /// Lets another thread be the one that uses the arena: the next one that does.
  void hand_over() noexcept { owner_thread_ = 0; }

  /// The stream that the memory is for, where it is for one.
  template <class Space = AddressSpace>
    requires requires(Space const& space) { space.stream(); }
  [[nodiscard]] auto stream() const noexcept {
    return space_.stream();
  }

  /// The resource that chunks come from, where there is one.
  template <class Space = AddressSpace>
    requires requires(Space const& space) { space.upstream_resource(); }
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept {
    return space_.upstream_resource();
  }

  /// Reports a violation for every invariant of the class comment that does not hold. O(chunks).
  void check_invariants() const noexcept;

 private:
  friend basic_arena_scope<AddressSpace>;

  // Below this neither `block + bytes` nor `cursor + align` can wrap, so the fast path compares once.
  static constexpr std::size_t fast_request_max = std::size_t{1} << 30;

  // A page: zeroing a block of that much dirties one page of fresh memory at most.
  static constexpr std::size_t whole_zeroing_max = 4 * KiB;

  static constexpr std::size_t block_bytes(std::size_t bytes) noexcept {
    return detail::align_up(bytes + (bytes == 0), default_alignment);
  }
  template <class T>
  static constexpr std::size_t array_bytes(std::size_t n) noexcept {
    return detail::multiply_saturating(n, sizeof(T));
  }
  std::uintptr_t aligned_cursor(std::size_t align) const noexcept {
    if (align > default_alignment) [[unlikely]]
      return detail::align_up(cursor_, align);
    return cursor_;
  }
  bool is_newest(void const* block, std::size_t bytes) const noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    return address >= floor_ && address + block_bytes(bytes) == cursor_;
  }
  void lower_cursor(std::uintptr_t cursor) noexcept {
    if (cursor_ > high_) high_ = cursor_;
    if constexpr (AddressSpace::host_accessible) reclaim(cursor, cursor_);
    else chunk_->marks.take_back(cursor);
    cursor_ = cursor;
  }
  // What was handed out in [first, last) may not be touched any more.
  static void reclaim(std::uintptr_t first, std::uintptr_t last) noexcept {
    if (check_level >= 2 && first < last) {
      detail::hand_out(first, last - first);
      std::memset(reinterpret_cast<void*>(first), detail::rewound_fill, last - first);
    }
    detail::withhold(first, last - first);
  }
  void zero(void* first, std::size_t bytes) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(first);
    const std::uintptr_t fresh = std::max(high_, dirty_);
    if (address < fresh) {
      // Of a large block only what is not fresh; a small one whole: a few stores if its size is known.
      std::memset(first, 0,
                  bytes <= whole_zeroing_max ? bytes : std::min<std::size_t>(bytes, fresh - address));
    }
    detail::mark_defined(address, bytes);
  }
  template <class T, class... Arguments>
  T* construct(Arguments&&... arguments);

  void close_scope(scope_type& scope) noexcept {
    if constexpr (check_level >= 2) before_use("end of a scope");
    if (innermost_ == &scope && floor_ == scope.begin_ && chunk_ == scope.chunk_) [[likely]] {
      lower_cursor(scope.begin_);
      floor_ = std::max(scope.outer_floor_, marked_);  // a mark taken where the scope begins lives on
      innermost_ = scope.outer_;
    } else {
      close_scope_slow(scope);
    }
  }

  // Slow paths: detail/arena_growth.hpp, detail/arena_rewind.hpp, detail/arena_checks.hpp
  class rollback;
  enum class refusal { none, addresses, memory };  // by the address space: none was asked, or it gave
  [[gnu::noinline]] void* allocate_beyond(std::size_t bytes, std::size_t align);
  TIDEMARK_COLD void* allocate_slow(std::size_t bytes, std::size_t align);
  void* grow(std::size_t bytes, std::size_t align, refusal& refused);
  void* bump(std::uintptr_t block, std::size_t bytes) noexcept;
  detail::arena_chunk* add_chunk(std::size_t least_bytes);
  bool commit_up_to(detail::arena_chunk& chunk, std::uintptr_t last) noexcept;
  void enter(detail::arena_chunk& chunk) noexcept;
  void drop(detail::arena_chunk& chunk) noexcept;
  void drop_beyond_retain() noexcept;
  void memory_goes() noexcept;
  void memory_came() noexcept;
  void return_to(detail::arena_chunk& chunk, std::uintptr_t cursor) noexcept;
  TIDEMARK_COLD void leave_empty_chunk() noexcept;
  void rewind_to(detail::arena_chunk& chunk, std::uintptr_t cursor) noexcept;
  [[gnu::noinline]] void rewind_slow(arena_mark const& mark);
  TIDEMARK_COLD void close_scope_slow(scope_type& scope) noexcept;
  std::size_t peak() const noexcept;
  std::uintptr_t highest_mark_in(detail::arena_chunk const& chunk) const noexcept;
  detail::arena_chunk& deepest_chunk() noexcept;
  std::size_t scope_floor() const noexcept;
  std::size_t largest_fit(std::size_t align, refusal refused) const noexcept;
  [[noreturn]] void throw_out_of_memory(std::size_t bytes, std::size_t align, refusal refused) const;
  void refuse_open_scope(char const* operation) const;
  void before_use(char const* operation) const noexcept;
  void before_allocate(std::size_t bytes, std::size_t align);
  void before_deallocate(void const* block, std::size_t bytes) const noexcept;

  void* do_allocate(std::size_t bytes, std::size_t align) override { return allocate(bytes, align); }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  // In this order: what allocation and scopes need is one cache line with the vtable's pointer, and fields
  // that a scope writes do not lie beside those that the next one reads with them (one wide load of both
  // would stall).
  std::uintptr_t cursor_ = 0;                      // the next block begins here
  std::uintptr_t end_ = 0;                         // end of the committed part of the current chunk
  std::uintptr_t floor_ = 0;                       // newest mark, scope or `make`: deallocate stays above
  scope_type* innermost_ = nullptr;                // open scope that ends first
  std::uintptr_t high_ = 0;                        // highest cursor left behind since `chunk_` was entered
  detail::arena_chunk* chunk_ = &first_;           // the chunk that cursor_ is in
  std::uintptr_t marked_ = 0;                      // no live mark lies above in `chunk_`
  std::uintptr_t dirty_ = 0;                       // bytes below may have been written on earlier visits
  detail::arena_finalizer* finalizers_ = nullptr;  // newest `make`
  detail::rewind_history history_;                 // which marks are live
  std::uint64_t id_;                               // identity in marks; no other arena has it
  detail::arena_chunk first_{};                    // empty until memory is reserved; others are allocated
  std::size_t next_chunk_bytes_;                   // chunk size * growth ^ (chunks held)
  std::size_t peak_ = 0;                           // highest position, as far as `chunk_` does not tell it
  std::size_t committed_bytes_ = 0;                // of all chunks
  std::size_t reserved_bytes_ = 0;                 // of all chunks
  std::size_t chunks_ = 0;                         // with memory
  std::uint64_t system_calls_ = 0;                 // calls to space_ but for granularity()
  std::uint64_t allocations_ = 0;                  // counted at level 2
  mutable unsigned long long owner_thread_ = 0;    // noted at level 2; 0: the next user's
  arena_options options_;
  AddressSpace space_;
};

/// An arena on virtual memory: the one to use on the host.
using arena = basic_arena<virtual_memory>;
/// An arena on one range that the caller owns.
using borrowed_arena = basic_arena<borrowed_memory>;
/// An arena on one range that the caller owns and the host must not touch: hands out addresses only.
using borrowed_device_arena = basic_arena<borrowed_device_memory>;
/// An arena on chunks of another resource: a drop-in for `std::pmr::monotonic_buffer_resource`.
using upstream_arena = basic_arena<upstream_memory>;
/// An arena on chunks of another resource, whose memory the host must not touch: hands out addresses only.
using upstream_device_arena = basic_arena<upstream_device_memory>;

}  // namespace tidemark

#include <tidemark/arena_scope.hpp>
#include <tidemark/detail/arena_checks.hpp>
#include <tidemark/detail/arena_growth.hpp>
#include <tidemark/detail/arena_rewind.hpp>

namespace tidemark {
extern template class basic_arena<virtual_memory>;
extern template class basic_arena<borrowed_memory>;
extern template class basic_arena<borrowed_device_memory>;
extern template class basic_arena<upstream_memory>;
extern template class basic_arena<upstream_device_memory>;
}  // namespace tidemark
