// SPDX-License-Identifier: Apache-2.0
/// @file
/// `arena`: bump allocation with rewind. The arena owns its memory until it is destroyed.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <utility>

// Included first, because the error of a container of an arena names a deleted function of this header, and
// g++ prints the includes that lead to it.
#include <tidemark/core/detail/distinct_resource.hpp>

#include <tidemark/arena/arena_options.hpp>
#include <tidemark/arena/arena_push.hpp>
#include <tidemark/arena/arena_scope.hpp>
#include <tidemark/arena/detail/arena_growth.hpp>
#include <tidemark/arena/detail/arena_rewind.hpp>
#include <tidemark/arena/detail/arena_state.hpp>
#include <tidemark/core/address_space.hpp>
#include <tidemark/core/borrowed_memory.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/upstream_memory.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/core/virtual_memory.hpp>

namespace tidemark {

namespace detail {
template <class AddressSpace>
class extent_region;
}

/// A bump allocator that can rewind to any earlier position. Use it for allocations that die together: one
/// step, one request, one frame. It is a `std::pmr::memory_resource`.
///
/// ```cpp
/// arena step{{.reserve = 1 * GiB, .name = "step"}};
/// for (int i = 0; i < 1000; ++i) {
///   arena::scope scope{step};                             // everything below vanishes at the brace
///   std::span<float> x = scope.push_array<float>(4096);   // zeroed
///   std::pmr::vector<int> indices{scope.resource()};      // std::pmr containers as well
/// }
/// ```
/// The arena reserves one range of addresses and commits it in steps. It chains further chunks when a chunk
/// is full. `push`, `push_array`, `push_bytes` and `make` come from `arena_push`.
///
/// Invariants: see `detail::arena_state`; `check_invariants()` checks them.
///
/// Complexity: O(1) except for growth, unless a function says otherwise. Not thread-safe: the first thread to
/// use the arena owns it until `release_thread_ownership()`. Level 2 reports use by another thread.
/// @tparam AddressSpace source of the memory: see `arena`, `borrowed_arena`, `upstream_arena` below.
// Members with a requires-clause are templates, because clang mangles a constraint and GCC does not, and
// programs link code of both. The library never contains a member template.
template <class AddressSpace>
class basic_arena final : public detail::arena_state<AddressSpace>,
                          public arena_push<basic_arena<AddressSpace>, AddressSpace> {
  using state = detail::arena_state<AddressSpace>;

 public:
  using scope = basic_arena_scope<AddressSpace>;

  /// Default alignment of a block. It is also the least alignment of every block, except in `upstream_arena`.
  static constexpr std::size_t default_alignment = AddressSpace::traits.block_alignment;
  /// Blocks begin and end at multiples of this: `default_alignment`, or 1 in `upstream_arena`.
  static constexpr std::size_t block_granule = AddressSpace::traits.block_granule;

  /// An arena on virtual memory: `arena{{.reserve = 64 * MiB, .name = "step"}}`.
  /// @throws out_of_memory if the first chunk cannot be reserved. All constructors do.
  template <class Options = arena_options>
    requires std::same_as<Options, arena_options> && std::same_as<AddressSpace, virtual_memory>
  explicit basic_arena(Options options)
      : basic_arena(virtual_memory{{options.huge_pages, options.prefault}}, options) {}
  /// An arena on `AddressSpace(arguments...)` with the default options. The arguments may be empty.
  template <class... Arguments>
    requires std::constructible_from<AddressSpace, Arguments...>
  explicit(sizeof...(Arguments) == 1) basic_arena(Arguments&&... arguments)
      : basic_arena(AddressSpace(std::forward<Arguments>(arguments)...), arena_options{}) {}
  /// An arena on `space`. The space's own options for huge pages and prefaulting apply.
  basic_arena(AddressSpace space, arena_options options) : state(std::move(space), options) {}
  /// An arena on `AddressSpace(memory...)`: `device_arena{{.reserve = 1 * GiB, .name = "step"}, stream}`.
  template <class Options = arena_options, class... Memory>
    requires std::same_as<Options, arena_options> && (!std::same_as<AddressSpace, virtual_memory>) &&
             std::constructible_from<AddressSpace, Memory...>
  explicit basic_arena(Options options, Memory&&... memory)
      : basic_arena(AddressSpace(std::forward<Memory>(memory)...), options) {}
  /// Rejects a wrong form at compile time; the message names the right form.
  template <class Argument>
    requires(!std::constructible_from<AddressSpace, Argument> &&
             (std::integral<Argument> || std::convertible_to<Argument, std::pmr::memory_resource*>))
  explicit basic_arena(Argument) : basic_arena(AddressSpace(), arena_options{}) {
    static_assert(detail::right_form<Argument>,
                  "an arena takes options: write arena a{{.reserve = 64 * MiB}}, or upstream_arena "
                  "a{&upstream} for an arena on another resource");
  }
  /// Rejected: blocks and scopes refer to the arena.
  basic_arena TIDEMARK_NO_COPY(basic_arena, "an arena cannot be copied or moved: pass arena& or arena*");

  /// Runs the destructors of objects from `make`. Reports a violation if a scope is still open, and makes the
  /// scope inert. Also reports a destructor that rewinds, resets or releases this arena; the call has no
  /// effect.
  ~basic_arena() override { this->end(); }

  /// Allocates uninitialised memory.
  /// @param bytes may be 0: the block then has a distinct address, like a block of 1 byte.
  /// @param align a power of two. @throws out_of_memory, or the upstream's exception. @throws
  /// std::invalid_argument if `align` is not a power of two; only level 2 always detects that. Nothing has
  /// changed on a throw.
  // Without gnu::alloc_size, because compilers would treat the size as constant, and `expand` changes it.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment) TIDEMARK_LIFETIMEBOUND {
    if constexpr (check_level >= 2) this->before_allocate(align);
    if (bytes <= state::max_fast_request && align <= state::max_fast_request) [[likely]] {
      const std::uintptr_t block = this->aligned_cursor(align);
      if (block + this->block_bytes(bytes) <= this->end_ && this->chunk_->marks.has_room()) [[likely]]
        return this->bump(block, bytes);
    }
    return this->allocate_beyond(bytes, align);
  }
  /// As `allocate`, but returns null instead of throwing.
  [[nodiscard]] void* try_allocate(std::size_t bytes, std::size_t align = default_alignment) noexcept
      TIDEMARK_LIFETIMEBOUND {
    try {
      if constexpr (check_level >= 2) this->before_allocate(align);
      typename state::refusal refused{};
      return this->grow(bytes, align, refused);
    } catch (...) {
      return nullptr;
    }
  }

  /// Frees the block if it is the newest and no mark was taken or scope opened since. Otherwise does nothing.
  /// Ignores null. Level 2 reports pointers that the arena does not hold.
  void deallocate(void* block, std::size_t bytes,
                  [[maybe_unused]] std::size_t align = default_alignment) noexcept {
    if constexpr (check_level >= 2) this->before_deallocate(block, bytes);
    if constexpr (state::is_thread_part)
      if (bytes + align >= this->space_.min_aside_bytes())
        this->asides_.deallocate(static_cast<state&>(*this), block);
    const std::uintptr_t address = detail::address_of(block);
    if (address + state::block_bytes(bytes) != this->cursor_) return;
    if (address < this->floor_) [[unlikely]]
      return this->deallocate_observed(address);
    if (!this->is_high_known()) [[unlikely]]
      return this->deallocate_highest(address);
    this->lower_cursor(address);
    if (this->cursor_ == this->chunk_->begin) this->return_to_previous_chunk();
  }
  /// Changes the size of the newest block in place, under the conditions of `deallocate`.
  /// @return true on success; otherwise nothing has changed. Added bytes are uninitialised.
  /// @pre `allocate` of this class returned the block. `std::pmr::memory_resource::allocate` of libstdc++ has
  /// the attribute `alloc_size`, so compilers treat the size of its blocks as constant.
  [[nodiscard]] bool expand(void* block, std::size_t old_bytes, std::size_t new_bytes) noexcept {
    return state::expand(block, old_bytes, new_bytes);
  }

  /// The current position. Amortised O(1). @throws std::bad_alloc if the mark cannot be recorded.
  [[nodiscard]] arena_mark mark() {
    this->before_use("mark");
    const arena_mark mark = this->mark_here();
    this->history_.marked_at(mark.position());
    this->floor_ = this->marked_ = this->cursor_;
    return mark;
  }

  /// Frees everything allocated since `mark` was taken, including scopes' allocations, and ends later marks.
  /// `mark` stays valid.
  /// @throws std::invalid_argument, with nothing changed, if the mark is from another arena, lies ahead, was
  /// rewound over, or lies below an open scope.
  void rewind(arena_mark const& mark) {
    this->before_use("rewind");
    // The newest mark with nothing above it to end: only the cursor moves.
    if (this->is_floor(mark)) [[likely]] {
      if (!this->is_high_known()) [[unlikely]]
        return this->rewind_to_floor();
      this->lower_cursor(this->floor_);
    } else {
      this->rewind_slow(mark);
    }
  }

  /// Frees the last `bytes` bytes, rounded up as in `allocate`. Frees nothing older than the innermost open
  /// scope.
  void pop(std::size_t bytes) noexcept { state::pop(bytes); }
  /// Frees everything and keeps the memory for reuse. @throws std::logic_error if a scope is open.
  void reset() { (void)this->free_all("reset"); }
  /// Frees everything and returns all memory. The arena can be used again. @throws as `reset`.
  void release() {
    if (this->free_all("release")) this->return_all();
  }

  /// Returns committed memory more than `keep_bytes` above the position. Whole chunks go first, then pages of
  /// the current chunk if the address space commits in pages. Allowed while scopes are open.
  /// @return bytes returned. O(chunks).
  std::size_t trim(std::size_t keep_bytes = 0) noexcept { return state::trim(keep_bytes); }

  /// Returns all memory to the system, and keeps addresses, marks, scopes and the position. The contents are
  /// lost; touching a block faults. The arena cannot grow until `resume`. Does nothing if the arena is
  /// suspended. Device memory only.
  /// @throws the address space's exception, with nothing changed.
  template <class Space = AddressSpace>
    requires ordered_space<Space> && (Space::traits.suspends)
  void suspend() {
    this->before_use("suspend");
    if (!this->space_.can_suspend())
      return this->space_.suspend();  // throws; a tool might not accept a heap twice
    this->mark_all(false);
    try {
      this->space_.suspend();
    } catch (...) {
      if (!is_suspended()) this->mark_all(true);
      throw;
    }
  }
  /// Backs the same addresses with uninitialised memory again, except memory that `trim` returned. Does
  /// nothing if the arena is not suspended. @throws the address space's exception; the arena stays suspended.
  template <class Space = AddressSpace>
    requires ordered_space<Space> && (Space::traits.suspends)
  void resume() {
    this->before_use("resume");
    const bool was_suspended = is_suspended();
    this->space_.resume();
    if (was_suspended) this->mark_all(true);
  }
  /// True while the arena is suspended.
  template <class Space = AddressSpace>
    requires ordered_space<Space> && (Space::traits.suspends)
  [[nodiscard]] bool is_suspended() const noexcept {
    return this->space_.is_suspended();
  }
  /// Bytes allocated, including padding: one offset through all chunks.
  [[nodiscard]] std::size_t position() const noexcept { return state::position(); }
  /// A snapshot of the counters. O(1).
  [[nodiscard]] arena_stats stats() const noexcept { return state::stats(); }
  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return state::name(); }
  /// True if `address` lies in allocated memory. O(chunks).
  [[nodiscard]] bool owns(void const* address) const noexcept { return state::owns(address); }
  /// Releases ownership: the next thread to use the arena owns it.
  void release_thread_ownership() noexcept { this->owner_.release(); }
  /// The stream of the memory, if the address space has a stream.
  template <class Space = AddressSpace>
    requires ordered_space<Space> && (Space::traits.has_stream)
  [[nodiscard]] auto stream() const noexcept {
    return this->space_.stream();
  }
  /// The address space, for queries about its memory.
  [[nodiscard]] AddressSpace const& space() const noexcept { return this->space_; }
  /// The resource that chunks come from, if the address space has one.
  template <class Space = AddressSpace>
    requires requires(Space const& space) { space.upstream_resource(); }
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept {
    return this->space_.upstream_resource();
  }
  /// Reports a violation for every broken invariant of the class comment. O(chunks).
  void check_invariants() const noexcept { state::check_invariants(); }

 private:
  friend scope;
  friend detail::scratch_access;
  template <class Self, class Space>
  friend class arena_push;
  template <class Space>
  friend class detail::shared_arena_state;  // rewinds its threads' arenas together
  template <class Space>
  friend class detail::extent_region;  // lowers its arena's cursor
  basic_arena& push_target() noexcept { return *this; }
};

/// An arena on virtual memory: the default choice on the host.
using arena = basic_arena<virtual_memory>;
/// An arena on one range that the caller owns.
using borrowed_arena = basic_arena<borrowed_memory>;
/// An arena on one range that the caller owns and the host must not touch. It allocates addresses only.
using borrowed_device_arena = basic_arena<borrowed_device_memory>;
/// An arena on chunks of another resource, like `std::pmr::monotonic_buffer_resource`.
using upstream_arena = basic_arena<upstream_memory>;
/// An arena on chunks of another resource, whose memory the host must not touch. It allocates addresses only.
using upstream_device_arena = basic_arena<upstream_device_memory>;

extern template class detail::arena_state<virtual_memory>;
extern template class detail::arena_state<borrowed_memory>;
extern template class detail::arena_state<borrowed_device_memory>;
extern template class detail::arena_state<upstream_memory>;
extern template class detail::arena_state<upstream_device_memory>;

}  // namespace tidemark
