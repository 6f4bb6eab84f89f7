// SPDX-License-Identifier: Apache-2.0
/// @file
/// `arena`: bump allocation with rewind. The arena owns its memory until it is destroyed.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <utility>
#include <variant>

#include <tidemark/arena/arena_mark.hpp>
#include <tidemark/arena/arena_options.hpp>
#include <tidemark/arena/arena_push.hpp>
#include <tidemark/arena/detail/alignment_gaps.hpp>
#include <tidemark/arena/detail/arena_chunk.hpp>
#include <tidemark/arena/detail/rewind_history.hpp>
#include <tidemark/arena/detail/rewind_trap.hpp>
#include <tidemark/core/address_space.hpp>
#include <tidemark/core/borrowed_memory.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/detail/frame_table.hpp>
#include <tidemark/core/detail/require.hpp>
#include <tidemark/core/detail/right_form.hpp>
#include <tidemark/core/detail/thread_ownership.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/upstream_memory.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/core/virtual_memory.hpp>

namespace tidemark {

namespace detail {
struct scratch_access;
}
template <class AddressSpace>
class basic_arena_scope;
template <class AddressSpace>
class basic_shared_arena;

/// A bump allocator that can go back to any earlier position: the memory of one step, one request, one frame.
/// Use it where many allocations die together. A `std::pmr::memory_resource` too.
///
/// ```cpp
/// arena step{{.reserve = 1 * GiB, .name = "step"}};
/// for (int i = 0; i < 1000; ++i) {
///   arena::scope scope{step};                             // everything below vanishes at the brace
///   std::span<float> x = step.push_array<float>(4096);    // zeroed
///   std::pmr::vector<int> indices{&step};                 // std::pmr containers as well
/// }
/// ```
/// Memory is reserved as one range and committed in steps; further chunks are chained when it is full.
/// `push`, `push_array`, `push_bytes` and `make` are those of `arena_push`.
///
/// Invariants, checked by `check_invariants()`; `chunk` is the current one:
/// - `chunk.begin <= marked <= floor <= cursor <= end == chunk.committed <= chunk.end`
/// - `chunk.begin <= high`, and `cursor`, `floor` are multiples of `block_granule`
/// - `position() == chunk.base + (cursor - chunk.begin)`, and bases do not decrease along the chunks in use
/// - bytes at or above `max(cursor, high, dirty)` have not been touched since they were committed
/// - while a trapped scope is due, `end` is 0 instead; in an arena that traps, `high == chunk.begin`
///
/// Complexity: O(1) but for growth, unless a function says otherwise. Thread-safety: one thread at a time.
/// The first to use it owns it until `release_thread_ownership()`; level 2 reports use by another.
/// @tparam AddressSpace where memory comes from: see `arena`, `borrowed_arena`, `upstream_arena` below.
// Members with a requires-clause are templates although they need not be: clang mangles a constraint and GCC
// does not, and code of both is linked together. A member template is never in the library.
template <class AddressSpace>
class basic_arena final : public detail::forwarding_resource<basic_arena<AddressSpace>>,
                          public arena_push<basic_arena<AddressSpace>, AddressSpace> {
  static_assert(address_space<AddressSpace>, "an arena's memory must come from an address_space");

 public:
  using scope = basic_arena_scope<AddressSpace>;

  /// Alignment of a block by default, and the least that every block has, but for `upstream_arena`.
  static constexpr std::size_t default_alignment = AddressSpace::traits.block_alignment;
  /// Blocks begin and end at multiples of this: `default_alignment`, but for `upstream_arena` 1.
  static constexpr std::size_t block_granule = AddressSpace::traits.block_granule;

  /// An arena on virtual memory: `arena{{.reserve = 64 * MiB, .name = "step"}}`.
  /// @throws out_of_memory, as all constructors, if the first chunk cannot be reserved.
  template <class Options = arena_options>
    requires std::same_as<Options, arena_options> && std::same_as<AddressSpace, virtual_memory>
  explicit basic_arena(Options options)
      : basic_arena(virtual_memory{{options.huge_pages, options.prefault}}, options) {}
  /// An arena on `AddressSpace(arguments...)`, which may be none, with the default options.
  template <class... Arguments>
    requires std::constructible_from<AddressSpace, Arguments...>
  explicit(sizeof...(Arguments) == 1) basic_arena(Arguments&&... arguments)
      : basic_arena(AddressSpace(std::forward<Arguments>(arguments)...), arena_options{}) {}
  /// An arena on `space`, whose own options for huge pages and prefaulting hold.
  basic_arena(AddressSpace space, arena_options options);
  /// An arena on `AddressSpace(memory...)`: `device_arena{{.reserve = 1 * GiB, .name = "step"}, stream}`.
  template <class Options = arena_options, class... Memory>
    requires std::same_as<Options, arena_options> && (!std::same_as<AddressSpace, virtual_memory>) &&
             std::constructible_from<AddressSpace, Memory...>
  explicit basic_arena(Options options, Memory&&... memory)
      : basic_arena(AddressSpace(std::forward<Memory>(memory)...), options) {}
  /// A wrong form: does not compile, and says which form is right.
  template <class Argument>
    requires(!std::constructible_from<AddressSpace, Argument> &&
             (std::integral<Argument> || std::convertible_to<Argument, std::pmr::memory_resource*>))
  explicit basic_arena(Argument) : basic_arena(AddressSpace(), arena_options{}) {
    static_assert(detail::right_form<Argument>,
                  "an arena takes options: write arena a{{.reserve = 64 * MiB}}, or upstream_arena "
                  "a{&upstream} for an arena on another resource");
  }

  /// Runs the destructors of `make`. Reports a violation if a scope is still open, and makes it inert.
  /// A destructor of `make` that rewinds, resets or releases the same arena is reported, and changes nothing.
  ~basic_arena() override;

  /// Uninitialised memory.
  /// @param bytes may be 0: the block differs from all others, like one of 1 byte.
  /// @param align a power of two. @throws out_of_memory, or the upstream's exception; std::invalid_argument
  /// if `align` is not a power of two, which only level 2 always notices. Nothing has changed then.
  // Without gnu::alloc_size: compilers would take the size for final, and `expand` changes it.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment) TIDEMARK_LIFETIMEBOUND {
    if constexpr (check_level >= 2) before_allocate(align);
    if (bytes <= max_fast_request && align <= max_fast_request) [[likely]] {
      const std::uintptr_t block = aligned_cursor(align);
      if (block + block_bytes(bytes) <= end_ && chunk_->marks.has_room()) [[likely]]
        return bump(block, bytes);
    }
    return allocate_beyond(bytes, align);
  }
  /// `allocate`, but null where that would throw.
  [[nodiscard]] void* try_allocate(std::size_t bytes, std::size_t align = default_alignment) noexcept
      TIDEMARK_LIFETIMEBOUND;

  /// Frees a block if it is the newest and no mark was taken and no scope opened since; does nothing
  /// otherwise, nor for null. Level 2 reports pointers that the arena does not hold.
  void deallocate(void* block, std::size_t bytes,
                  [[maybe_unused]] std::size_t align = default_alignment) noexcept {
    if constexpr (check_level >= 2) before_deallocate(block, bytes);
    if constexpr (sets_aside)
      if (bytes + align >= space_.min_aside_bytes()) deallocate_aside(block);
    if (!is_newest(block, bytes)) return;
    std::uintptr_t end_before = detail::address_of(block);
    if constexpr (has_gaps) end_before = gaps_.end_before(end_before);
    if (!is_high_known()) [[unlikely]]
      return deallocate_highest(end_before);
    lower_cursor(end_before);
    if (cursor_ == chunk_->begin) leave_empty_chunk();
  }
  /// Changes the size of the newest block in place, under the conditions of `deallocate`.
  /// @return whether it did; if not, nothing has changed. Grown bytes are uninitialised.
  /// @pre `allocate` of this class returned the block. libstdc++ gives `std::pmr::memory_resource::allocate` the
  /// attribute `alloc_size`, and compilers take the size of its blocks for final.
  [[nodiscard]] bool expand(void* block, std::size_t old_bytes, std::size_t new_bytes) noexcept;

  /// The present position. Amortised O(1). @throws std::bad_alloc if it cannot be recorded.
  [[nodiscard]] arena_mark mark() {
    before_use("mark");
    const arena_mark mark{id_, history_.serial(), position(), cursor_};
    history_.marked_at(mark.position_);
    floor_ = marked_ = cursor_;
    return mark;
  }

  /// Frees everything allocated since `mark` was taken, also what was allocated in scopes, and ends later
  /// marks. The mark stays valid.
  /// @throws std::invalid_argument, with nothing changed, if the mark is of another arena, lies ahead, was
  /// rewound over since it was taken, or lies below an open scope.
  void rewind(arena_mark const& mark) {
    before_use("rewind");
    // It is the newest mark, and nothing above it has to end: only the cursor moves.
    if (mark.cursor_ == floor_ && mark.serial_ == history_.serial() && mark.arena_ == id_ &&
        mark.position_ == position_in(*chunk_, floor_)) [[likely]] {
      if (!is_high_known()) [[unlikely]]
        return rewind_to_floor();
      lower_cursor(floor_);
    } else {
      rewind_slow(mark);
    }
  }

  /// Frees the last `bytes` bytes, rounded up as `allocate` rounds, but nothing older than the innermost open
  /// scope.
  void pop(std::size_t bytes) noexcept;
  /// Frees everything and keeps the memory for reuse. @throws std::logic_error if a scope is open.
  void reset() { (void)free_all("reset"); }
  /// Frees everything and returns all memory; the arena can be used again. @throws as `reset`.
  void release();

  /// Returns committed memory that lies more than `keep_bytes` above the position: whole chunks first,
  /// then pages of the current chunk, where the address space commits. Also while scopes are open.
  /// @return bytes returned. O(chunks).
  std::size_t trim(std::size_t keep_bytes = 0) noexcept;

  /// Returns all memory to the system and keeps addresses, marks, scopes and the position. The contents
  /// are lost, and touching the blocks faults. Until `resume` the arena cannot grow. Device memory only. Does
  /// nothing if it is suspended. @throws what the address space throws; nothing has changed then.
  template <class Space = AddressSpace>
    requires ordered_space<Space> && (Space::traits.suspends)
  void suspend() {
    before_use("suspend");
    if (!space_.can_suspend()) return space_.suspend();  // throws; a tool may accept no heap again
    for (chunk_record* chunk = &first_; chunk != nullptr; chunk = chunk->next) {
      chunk->marks.on_decommit(chunk->begin, chunk->committed);
    }
    try {
      space_.suspend();
    } catch (...) {
      if (!space_.is_suspended()) mark_commits();
      throw;
    }
  }
  /// Puts uninitialised memory behind the same addresses again, but for what `trim` gave up, if it is
  /// suspended. @throws what the address space throws; it is still suspended then.
  template <class Space = AddressSpace>
    requires ordered_space<Space> && (Space::traits.suspends)
  void resume() {
    before_use("resume");
    const bool was_suspended = space_.is_suspended();
    space_.resume();
    if (was_suspended) mark_commits();
  }
  /// Whether it is suspended.
  template <class Space = AddressSpace>
    requires ordered_space<Space> && (Space::traits.suspends)
  [[nodiscard]] bool is_suspended() const noexcept {
    return space_.is_suspended();
  }
  /// Bytes allocated, padding included: one offset through all chunks.
  [[nodiscard]] std::size_t position() const noexcept { return position_in(*chunk_, cursor_); }
  /// A snapshot in numbers. O(1).
  [[nodiscard]] arena_stats stats() const noexcept;
  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return options_.name; }
  /// Whether `address` lies in allocated memory. O(chunks).
  [[nodiscard]] bool owns(void const* address) const noexcept;
  /// The next thread to use the arena will own it.
  void release_thread_ownership() noexcept { owner_.release(); }
  /// The stream that the memory is for, where it is for one.
  template <class Space = AddressSpace>
    requires ordered_space<Space> && (Space::traits.has_stream)
  [[nodiscard]] auto stream() const noexcept {
    return space_.stream();
  }
  /// The address space, for what it says of its memory.
  [[nodiscard]] AddressSpace const& space() const noexcept { return space_; }
  /// The resource that chunks come from, where there is one.
  template <class Space = AddressSpace>
    requires requires(Space const& space) { space.upstream_resource(); }
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept {
    return space_.upstream_resource();
  }
  /// Reports a violation for every invariant of the class comment that does not hold. O(chunks).
  void check_invariants() const noexcept;

 private:
  friend scope;
  friend detail::scratch_access;
  template <class Self, class Space>
  friend class arena_push;
  template <class Space>
  friend class basic_shared_arena;  // whose threads' parts are arenas, which it rewinds together
  using chunk_record = detail::arena_chunk<AddressSpace>;
  static constexpr bool has_gaps = block_granule < default_alignment;
  static constexpr bool sets_aside = requires(AddressSpace& space) { space.reserve_aside(0, 0); };
  static constexpr bool can_trap = std::same_as<AddressSpace, virtual_memory>;

  // Below this neither `block + bytes` nor `cursor + align` can wrap, so the fast path compares once.
  static constexpr std::size_t max_fast_request = std::size_t{1} << 30;
  static constexpr std::size_t block_bytes(std::size_t bytes) noexcept {
    return detail::align_up(bytes + (bytes == 0), block_granule);
  }
  std::uintptr_t aligned_cursor(std::size_t align) const noexcept {
    if (align > block_granule) [[unlikely]]
      return detail::align_up(cursor_, align);
    return cursor_;
  }
  bool is_newest(void const* block, std::size_t bytes) const noexcept {
    const std::uintptr_t address = detail::address_of(block);
    return address >= floor_ && address + block_bytes(bytes) == cursor_;
  }
  void lower_cursor(std::uintptr_t cursor) noexcept {
    if (cursor_ > high_) {
      if constexpr (can_trap) raise_high();
      else high_ = cursor_;
    }
    before_free(cursor, cursor_);
    chunk_->marks.on_free(cursor, cursor_);
    if constexpr (has_gaps) gaps_.forget(cursor);
    cursor_ = cursor;
  }
  bool is_trapping() const noexcept {
    if constexpr (can_trap) return trap_ != nullptr;
    return false;
  }
  // Never while trapping: then `high_` does not rise, so that each rewind takes a slow path, which counts it.
  bool is_high_known() const noexcept { return !can_trap || cursor_ <= high_; }
  void close(scope& closing) noexcept {
    before_use("end of a scope");
    if (innermost() == &closing && floor_ == closing.opened_.cursor && chunk_ == closing.opened_.chunk &&
        is_high_known()) [[likely]] {
      lower_cursor(floor_);
      floor_ = (std::max)(closing.opened_.floor, marked_);  // a mark taken where the scope begins lives on
      set_innermost(closing.opened_.outer);
    } else {
      close_slow(closing);
    }
  }

  // Atomic, because another thread claims a scratch arena that has no open scope.
  // Its compare-exchange only reads while a scope is open, but ThreadSanitizer takes that for a write.
  [[nodiscard]] scope* innermost() const noexcept {
    if constexpr (detail::thread_sanitizer_is_on) return __atomic_load_n(&innermost_, __ATOMIC_RELAXED);
    else return innermost_;
  }
  void set_innermost(scope* open) noexcept { __atomic_store_n(&innermost_, open, __ATOMIC_RELEASE); }
  // In place of an open scope while another thread trims the arena.
  static scope* claimed() noexcept { return reinterpret_cast<scope*>(std::uintptr_t{1}); }
  [[nodiscard]] bool replace_no_scope(scope* by) noexcept {
    scope* none = nullptr;
    return __atomic_compare_exchange_n(&innermost_, &none, by, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
  }

  static std::size_t position_in(chunk_record const& chunk, std::uintptr_t cursor) noexcept {
    return chunk.base + (cursor - chunk.begin);
  }
  std::size_t peak() const noexcept {
    return (std::max)(peak_, position_in(*chunk_, (std::max)(high_, cursor_)));
  }
  std::uintptr_t fresh_from(std::uintptr_t block) const noexcept;
  std::size_t scope_floor() const noexcept;
  // The chunk that no rewind may leave downwards.
  chunk_record& deepest_chunk() noexcept {
    return innermost() != nullptr ? *innermost()->opened_.chunk : first_;
  }
  void make_current(chunk_record& chunk, std::uintptr_t cursor) noexcept {
    chunk_ = &chunk;
    if constexpr (has_gaps) gaps_.clear();
    cursor_ = floor_ = marked_ = high_ = cursor;
    end_ = chunk.committed;
    dirty_ = chunk.touched;
  }
  // Allocates a block that lies in the committed part of the current chunk.
  void* bump(std::uintptr_t block, std::size_t bytes) noexcept {
    if constexpr (has_gaps) gaps_.add(block, cursor_);
    cursor_ = block + block_bytes(bytes);
    if constexpr (check_level >= 2) ++allocations_;
    chunk_->marks.on_allocate(block, bytes);
    return reinterpret_cast<void*>(block);
  }
  void before_use(char const* operation) const noexcept {
    if constexpr (check_level >= 2) {
      owner_.require_owner("arena", name(), operation);
      if constexpr (reporting_space<AddressSpace>) space_.before_use(name(), operation);
    }
  }
  void before_allocate(std::size_t align) const {
    before_use("allocate");
    detail::require_power_of_two("arena", name(), align);
  }
  void before_deallocate(void const* block, std::size_t bytes) const noexcept;
  void before_free(std::uintptr_t first, std::uintptr_t last) const noexcept {
    if constexpr (check_level >= 2 && AddressSpace::traits.host_accessible)
      detail::report_frames_in(first, last, "arena", name());
  }

  // Slow paths: detail/arena_growth.hpp, arena_aside.hpp, arena_rewind.hpp, arena_traps.hpp, arena_checks.hpp
  enum class refusal { none, addresses, memory };  // what the address space refused
  [[gnu::noinline]] void* allocate_beyond(std::size_t bytes, std::size_t align);
  TIDEMARK_COLD void* allocate_slow(std::size_t bytes, std::size_t align);
  bool free_all(char const* operation);
  void mark_commits() noexcept;
  void* grow(std::size_t bytes, std::size_t align, refusal& refused);
  void* set_aside(std::size_t bytes, std::size_t align, refusal& refused);
  void return_aside(detail::aside_block& block) noexcept;
  void deallocate_aside(void const* block) noexcept;
  byte_range reserve_range(std::size_t bytes, std::size_t align);
  chunk_record* add_chunk(std::size_t bytes, std::size_t align);
  bool commit_up_to(chunk_record& chunk, std::uintptr_t last) noexcept;
  void enter(chunk_record& chunk) noexcept;
  chunk_record* take_record() noexcept;
  void keep_record(chunk_record& chunk) noexcept;
  void drop(chunk_record& chunk) noexcept;
  void drop_beyond_retain() noexcept;
  void return_to(chunk_record& chunk, std::uintptr_t cursor) noexcept;
  TIDEMARK_COLD void leave_empty_chunk() noexcept;
  void raise_high() noexcept;
  TIDEMARK_COLD void rewind_to_floor() noexcept;
  TIDEMARK_COLD void deallocate_highest(std::uintptr_t cursor) noexcept;
  bool begins_scope() const noexcept;
  bool may_go_on() const noexcept;
  std::size_t room_left() const noexcept;
  void bound(chunk_record& chunk) const noexcept;
  void empty_chunks_behind(chunk_record& chunk) noexcept;
  void count_untrapped(chunk_record& slice) noexcept;
  void* allocate_if_due(std::size_t bytes, std::size_t align) noexcept;
  void* allocate_in_slice(std::size_t bytes, std::size_t align) noexcept;
  TIDEMARK_COLD void trap_slices_above(chunk_record& chunk) noexcept;
  TIDEMARK_COLD void count_rewind() noexcept;
  void watch() noexcept;
  void run_destructors(std::size_t target) noexcept;
  bool may_rewind_to(std::size_t target) const noexcept;
  std::uintptr_t highest_mark_in(chunk_record const& chunk) const noexcept;
  void rewind_to(chunk_record& chunk, std::uintptr_t cursor) noexcept;
  [[gnu::noinline]] void rewind_slow(arena_mark const& mark);
  char const* why_not_rewind(arena_mark const& mark) const noexcept;
  void rewind_far(arena_mark const& mark) noexcept;
  TIDEMARK_COLD void close_slow(scope& closing) noexcept;
  [[noreturn]] void throw_out_of_memory(std::size_t bytes, std::size_t align, refusal refused) const;
  basic_arena& push_target() noexcept { return *this; }

  // The order: what allocation and scopes need is in one cache line with the vtable's pointer, and fields
  // that a scope writes are not beside those that the next one reads (one wide load of both would stall).
  std::uintptr_t cursor_ = 0;                      // the next block begins here
  std::uintptr_t end_ = 0;                         // end of the committed part of the current chunk
  std::uintptr_t floor_ = 0;                       // newest mark, scope or `make`: deallocate stays above
  scope* innermost_ = nullptr;                     // open scope that ends first
  std::uintptr_t high_ = 0;                        // highest cursor left behind since `chunk_` was entered
  chunk_record* chunk_ = &first_;                  // the chunk that cursor_ is in
  std::uintptr_t marked_ = 0;                      // no live mark lies above in `chunk_`
  std::uintptr_t dirty_ = 0;                       // bytes below may have been written on earlier visits
  detail::arena_finalizer* finalizers_ = nullptr;  // newest `make`
  detail::rewind_history history_;                 // which marks are live
  std::uint64_t id_;                               // identity in marks; no other arena has it
  chunk_record first_{};                           // empty until memory is reserved; others are allocated
  chunk_record* spare_ = nullptr;                  // records without memory, until `release`
  std::size_t next_chunk_bytes_;                   // chunk size * growth ^ (chunks held)
  std::size_t peak_ = 0;                           // highest position, as far as `chunk_` does not tell it
  std::size_t committed_bytes_ = 0;                // of all chunks
  std::size_t reserved_bytes_ = 0;                 // of all chunks
  std::size_t destroying_from_ = 0;                // position at which destructors began to run; 0: none run
  std::size_t chunks_ = 0;                         // with memory
  std::uint64_t system_calls_ = 0;                 // of space_
  std::uint64_t allocations_ = 0;                  // counted at level 2
  mutable detail::thread_ownership owner_;         // level 2 only
  arena_options options_;
  AddressSpace space_;
  [[no_unique_address]] std::conditional_t<has_gaps, detail::alignment_gaps, std::monostate> gaps_;
  [[no_unique_address]] std::conditional_t<sets_aside, detail::aside_blocks, std::monostate> asides_;
  [[no_unique_address]] std::conditional_t<can_trap, detail::rewind_trap_ptr, std::monostate> trap_;
};

/// An arena on virtual memory: the one to use on the host.
using arena = basic_arena<virtual_memory>;
/// An arena on one range that the caller owns.
using borrowed_arena = basic_arena<borrowed_memory>;
/// An arena on one range that the caller owns and the host must not touch: allocates addresses only.
using borrowed_device_arena = basic_arena<borrowed_device_memory>;
/// An arena on chunks of another resource, like `std::pmr::monotonic_buffer_resource`.
using upstream_arena = basic_arena<upstream_memory>;
/// An arena on chunks of another resource, whose memory the host must not touch: allocates addresses only.
using upstream_device_arena = basic_arena<upstream_device_memory>;

}  // namespace tidemark

#include <tidemark/arena/arena_scope.hpp>
#include <tidemark/arena/detail/arena_aside.hpp>
#include <tidemark/arena/detail/arena_checks.hpp>
#include <tidemark/arena/detail/arena_growth.hpp>
#include <tidemark/arena/detail/arena_rewind.hpp>
#include <tidemark/arena/detail/arena_traps.hpp>

namespace tidemark {
extern template class basic_arena<virtual_memory>;
extern template class basic_arena<borrowed_memory>;
extern template class basic_arena<borrowed_device_memory>;
extern template class basic_arena<upstream_memory>;
extern template class basic_arena<upstream_device_memory>;
}  // namespace tidemark
