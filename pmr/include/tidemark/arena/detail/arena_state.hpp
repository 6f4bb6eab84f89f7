// SPDX-License-Identifier: Apache-2.0
/// @file
/// `arena_state`: the state of an arena, its fast path, statistics and invariants. Owns the arena's memory.
///
/// Growth is in arena_growth.hpp, rewinds in arena_rewind.hpp, trapped scopes in arena_traps.cpp, blocks with
/// extents of their own in team/detail/extent_memory.hpp.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include <tidemark/arena/arena_options.hpp>
#include <tidemark/arena/detail/arena_records.hpp>
#include <tidemark/core/address_space.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/detail/frame_table.hpp>
#include <tidemark/core/detail/observed.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/detail/thread_ownership.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/upstream_memory.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/core/virtual_memory.hpp>

namespace tidemark {
template <class AddressSpace>
class basic_arena;
template <class AddressSpace>
class basic_arena_scope;
}  // namespace tidemark

namespace tidemark::detail {

template <class AddressSpace>
class shared_arena_state;
class rewind_trap;
/// Returns the trap of an arena; null if the rate is 0. Sets the rate of `options` to `TIDEMARK_TRAP` of the
/// environment, which is read once, if it is set. Warns once if it is not a number. @throws std::bad_alloc
[[nodiscard]] ended_pointer<rewind_trap> make_trap(trap_options& options, char const* name);

// Replaces a member that an address space does not need. Each member has its own type, because nvcc 13.0
// runs out of memory on two [[no_unique_address]] members of one empty type.
template <class Member>
struct absent {};

// A growing arena tries at most this many kept chunks: growth is then O(1).
inline constexpr int max_kept_chunks_tried = 16;

// Upper limit of a request, in bytes. The sum of two requests cannot wrap.
inline constexpr std::size_t max_request = (std::numeric_limits<std::size_t>::max)() / 4;

/// First address in [from, end) for a block of `bytes`; 0 if the block does not fit.
[[nodiscard]] inline std::uintptr_t place(std::uintptr_t from, std::uintptr_t end, std::size_t bytes,
                                          std::size_t align) noexcept {
  const std::uintptr_t block = align_up(from, align);
  return block >= from && block <= end && end - block >= bytes ? block : 0;
}

/// `size` rounded up to a multiple of `step`; saturates. `step` need not be a power of two.
[[nodiscard]] constexpr std::size_t round_up(std::size_t size, std::size_t step) noexcept {
  return add_saturating(size, step - 1) / step * step;
}

/// State and private functions of a `basic_arena`. No other base has data members, so both have the same
/// address.
///
/// Invariants, checked by `check_invariants()`; `chunk` is the current chunk:
/// - `chunk.begin <= marked <= floor <= cursor <= end == min(chunk.committed, chunk.end)`
/// - `chunk.begin <= high`, and `cursor`, `floor` are multiples of `block_granule`
/// - `position() == chunk.base + (cursor - chunk.begin)`, and bases do not decrease along the used chunks
/// - bytes at or above `max(cursor, high, dirty)` have not been touched since they were committed
/// - `end == 0` while a trapped scope is due; `high == chunk.begin` in an arena that traps
/// - `end == closed_end(chunk)` and `floor == cursor` if observed: the fast paths are closed
template <class AddressSpace>
class arena_state : public forwarding_resource<basic_arena<AddressSpace>> {
  static_assert(address_space<AddressSpace>, "an arena's memory must come from an address_space");
  static_assert(ordered_space<AddressSpace> ||
                    !(AddressSpace::traits.has_stream || AddressSpace::traits.suspends),
                "an address space with a stream, or one that suspends, must be an ordered_space");

 protected:
  using scope = basic_arena_scope<AddressSpace>;
  using chunk_record = arena_chunk<AddressSpace>;
  static constexpr std::size_t default_alignment = AddressSpace::traits.block_alignment;
  static constexpr std::size_t block_granule = AddressSpace::traits.block_granule;
  static constexpr bool has_gaps = block_granule < default_alignment;
  // True for the arenas inside a shared arena, whose observer belongs to the shared arena.
  static constexpr bool is_part_of_team = requires { AddressSpace::is_part_of_team; };
  // True for a thread's part, whose space also checks uses, completes reports and sets large blocks aside.
  static constexpr bool is_thread_part = requires(AddressSpace& space) { space.min_aside_bytes(); };
  static constexpr bool can_trap = std::same_as<AddressSpace, virtual_memory>;

  arena_state(AddressSpace space, arena_options options);
  ~arena_state() override;
  void end() noexcept;  // returns everything

  // ---- the fast path

  // Up to this size neither `block + bytes` nor `cursor + align` can wrap: the fast path compares once.
  static constexpr std::size_t max_fast_request = std::size_t{1} << 30;
  static constexpr std::size_t block_bytes(std::size_t bytes) noexcept {
    return align_up(bytes + (bytes == 0), block_granule);
  }
  std::uintptr_t aligned_cursor(std::size_t align) const noexcept {
    if (align > block_granule) [[unlikely]]
      return align_up(cursor_, align);
    return cursor_;
  }
  // Allocates a block in the committed part of the current chunk.
  void* bump(std::uintptr_t block, std::size_t bytes) noexcept {
    cursor_ = block + block_bytes(bytes);
    if constexpr (check_level >= 2) ++allocations_;
    chunk_->marks.on_allocate(block, bytes);
    return reinterpret_cast<void*>(block);
  }
  arena_mark mark_here() const noexcept { return {id_, history_.serial(), position(), cursor_}; }
  // True for the newest mark if nothing above it has to end.
  bool is_floor(arena_mark const& mark) const noexcept {
    return mark.cursor_ == floor_ && mark.serial_ == history_.serial() && mark.arena_ == id_ &&
           mark.position_ == position_in(*chunk_, floor_);
  }
  void lower_cursor(std::uintptr_t cursor) noexcept {
    if (cursor_ > high_) {
      if constexpr (can_trap) raise_high();
      else high_ = cursor_;
    }
    before_free(cursor, cursor_);
    chunk_->marks.on_free(cursor, cursor_);
    cursor_ = cursor;
  }
  // Moves to a chunk in which nothing is marked.
  void enter_at(chunk_record& chunk, std::uintptr_t cursor, bool may_be_closed = true) noexcept {
    floor_ = marked_ = high_ = cursor;
    dirty_ = chunk.touched;
    set_cursor(chunk, cursor, may_be_closed);
  }
  // Only place that sets the chunk and its end. An observer or a due trap sets the end to `closed_end`: the
  // fast path then finds no room.
  void set_cursor(chunk_record& chunk, std::uintptr_t cursor, bool may_be_closed = true) noexcept {
    chunk_ = &chunk;
    cursor_ = cursor;
    end_ = chunk.committed;
    if (!may_be_closed || !is_closed()) return;
    if (observer_ != nullptr) end_ = closed_end(chunk);
    if constexpr (can_trap) {
      if (trap_ == nullptr) return;
      end_ = min_of(end_, chunk.end);  // `bound` may have lowered it
      high_ = chunk.begin;
      if (trap_->is_due()) end_ = 0;
    }
  }
  // A set-aside block then lies behind the end, so `fresh_from` counts it as touched.
  static std::uintptr_t closed_end(chunk_record const& chunk) noexcept {
    return is_thread_part ? chunk.begin : 0;
  }
  // True for an arena that observes or traps: `allocate_beyond` then continues in no kept chunk.
  bool is_closed() const noexcept { return max_crossing_align_ == 0; }
  void close(scope& closing) noexcept {
    before_use("end of a scope");
    if (innermost() == &closing && floor_ == closing.opened_.cursor && chunk_ == closing.opened_.chunk &&
        is_high_known()) [[likely]] {
      lower_cursor(floor_);
      floor_ = max_of(closing.opened_.floor, marked_);  // keeps a mark taken at the scope's beginning
      set_innermost(closing.opened_.outer);
    } else {
      close_slow(closing);
    }
  }

  // Atomic, because another thread may claim a scratch arena without an open scope. The
  // compare-exchange only reads while a scope is open, but ThreadSanitizer counts it as a write.
  [[nodiscard]] scope* innermost() const noexcept {
    if constexpr (thread_sanitizer_is_on) return __atomic_load_n(&innermost_, __ATOMIC_RELAXED);
    else return innermost_;
  }
  void set_innermost(scope* open) noexcept { __atomic_store_n(&innermost_, open, __ATOMIC_RELEASE); }
  // Stands for an open scope while another thread trims the arena.
  static scope* claimed() noexcept { return reinterpret_cast<scope*>(std::uintptr_t{1}); }
  [[nodiscard]] bool replace_no_scope(scope* by) noexcept {
    scope* none = nullptr;
    return __atomic_compare_exchange_n(&innermost_, &none, by, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
  }

  // ---- numbers and checks

  static std::size_t position_in(chunk_record const& chunk, std::uintptr_t cursor) noexcept {
    return chunk.base + (cursor - chunk.begin);
  }
  std::size_t position() const noexcept { return position_in(*chunk_, cursor_); }
  std::size_t peak() const noexcept { return max_of(peak_, position_in(*chunk_, max_of(high_, cursor_))); }
  char const* name() const noexcept { return options_.name; }
  arena_stats stats() const noexcept;
  bool owns(void const* address) const noexcept;
  void check_invariants() const noexcept;
  std::uintptr_t fresh_from(std::uintptr_t block) const noexcept;
  void before_use(char const* operation) const noexcept {
    if constexpr (check_level >= 2) {
      owner_.require_owner("arena", name(), operation);
      if constexpr (is_thread_part) space_.before_use(name(), operation);
    }
  }
  void before_allocate(std::size_t align) const {
    before_use("allocate");
    require_power_of_two("arena", name(), align);
  }
  void before_deallocate(void const* block, std::size_t bytes) const noexcept;
  void before_free(std::uintptr_t first, std::uintptr_t last) const noexcept {
    if constexpr (check_level >= 2 && AddressSpace::traits.host_accessible)
      report_frames_in(first, last, "arena", name());
  }

  // ---- growth

  friend rewind_trap;
  friend aside_blocks;
  using refusal = space_refusal;
  [[gnu::noinline]] void* allocate_beyond(std::size_t bytes, std::size_t align);
  TIDEMARK_COLD void* allocate_slow(std::size_t bytes, std::size_t align);
  [[nodiscard]] bool expand(void* block, std::size_t old_bytes, std::size_t new_bytes) noexcept;
  static auto observer_for(arena_options const& options) {
    if constexpr (is_part_of_team) return options.observer;
    else return observer_of(options.observer, name_or(options.name, arena_options{}.name));
  }
  static auto trap_for(arena_options& options) {
    if constexpr (can_trap) return make_trap(options.trap, name_or(options.name, arena_options{}.name));
    else return absent<rewind_trap>{};
  }
  void* grow(std::size_t bytes, std::size_t align, refusal& refused);
  void* find_block(std::size_t bytes, std::size_t align, refusal& refused);
  std::size_t largest_bytes(std::size_t align, refusal refused) const noexcept;
  [[noreturn]] void throw_out_of_memory(std::size_t bytes, std::size_t align, refusal refused) const;
  byte_range reserve_range(std::size_t bytes, std::size_t align);
  chunk_record* add_chunk(std::size_t bytes, std::size_t align);
  bool commit_up_to(chunk_record& chunk, std::uintptr_t last) noexcept;
  void enter(chunk_record& chunk) noexcept;
  bool has_free_record() noexcept;
  chunk_record* acquire_chunk_record() noexcept;
  void recycle_chunk_record(chunk_record& chunk) noexcept;
  void drop(chunk_record& chunk) noexcept;
  bool decommit(chunk_record& chunk, std::uintptr_t first) noexcept;
  std::size_t trim(std::size_t keep_bytes) noexcept;
  void mark_all(bool has_memory) noexcept;

  // ---- rewinds

  std::size_t scope_floor() const noexcept;
  // The earliest chunk that a rewind may reach: the innermost scope's chunk, or the first chunk.
  chunk_record& deepest_chunk() noexcept {
    return innermost() != nullptr ? *innermost()->opened_.chunk : first_;
  }
  bool free_all(char const* operation);
  void return_all() noexcept;
  void pop(std::size_t bytes) noexcept;
  void drop_beyond_retain() noexcept;
  void return_to(chunk_record& chunk, std::uintptr_t cursor) noexcept;
  TIDEMARK_COLD void return_to_previous_chunk() noexcept;
  TIDEMARK_COLD void deallocate_observed(std::uintptr_t block) noexcept;
  void run_destructors(std::size_t target) noexcept;
  bool may_rewind_to(std::size_t target) const noexcept;
  std::uintptr_t highest_mark_in(chunk_record const& chunk) const noexcept;
  void rewind_to(chunk_record& chunk, std::uintptr_t cursor) noexcept;
  [[gnu::noinline]] void rewind_slow(arena_mark const& mark);
  char const* why_not_rewind(arena_mark const& mark) const noexcept;
  void rewind_far(arena_mark const& mark) noexcept;
  TIDEMARK_COLD void close_slow(scope& closing) noexcept;

  // ---- trapped scopes

  bool is_trapping() const noexcept {
    if constexpr (can_trap) return trap_ != nullptr;
    return false;
  }
  // False while trapping: `high_` then does not rise, so each rewind takes a slow path that counts it.
  bool is_high_known() const noexcept { return !can_trap || cursor_ <= high_; }
  void raise_high() noexcept;
  TIDEMARK_COLD void rewind_to_floor() noexcept;
  TIDEMARK_COLD void deallocate_highest(std::uintptr_t cursor) noexcept;
  TIDEMARK_COLD void count_rewind() noexcept;
  bool begins_scope() const noexcept;
  bool may_add_chunk() const noexcept;
  std::size_t remaining_bytes() const noexcept;
  void bound(chunk_record& chunk) const noexcept;
  void* allocate_if_due(std::size_t bytes, std::size_t align) noexcept;

  // Field order: allocation and scopes use one cache line, shared with the vtable pointer. Fields that a
  // scope writes are not adjacent to fields that the next scope reads, because one wide load of both would
  // stall.
  std::uintptr_t cursor_ = 0;      // the next block begins here
  std::uintptr_t end_ = 0;         // end of the committed part of the current chunk
  std::uintptr_t floor_ = 0;       // newest mark, scope or `make`; deallocate frees only above
  scope* innermost_ = nullptr;     // open scope that ends first
  std::uintptr_t high_ = 0;        // highest abandoned cursor since `chunk_` was entered
  chunk_record* chunk_ = &first_;  // the chunk of cursor_
  std::uintptr_t marked_ = 0;      // no live mark in `chunk_` lies above
  std::uintptr_t dirty_ = 0;       // bytes below may have been written on earlier visits
  // Largest alignment for which `allocate_beyond` continues in a kept chunk; 0 in a closed arena.
  std::size_t max_crossing_align_ = default_alignment;
  arena_finalizer* finalizers_ = nullptr;  // newest `make`
  rewind_history history_;                 // tells which marks are live
  std::uint64_t id_;                       // identity in marks, unique to this arena
  chunk_record first_{};                   // empty until memory is reserved; other records are allocated
  chunk_record* free_records_ = nullptr;   // records without memory, kept until `release`
  std::size_t next_chunk_bytes_;           // chunk size * growth ^ (chunks held)
  std::size_t peak_ = 0;                   // highest position in earlier chunks or visits
  std::size_t committed_bytes_ = 0;        // of all chunks
  std::size_t reserved_bytes_ = 0;         // of all chunks
  std::size_t destroying_from_ = 0;        // position when destructors began to run; 0: none runs
  std::size_t chunks_ = 0;                 // with memory
  std::uint64_t system_calls_ = 0;         // of space_
  std::uint64_t allocations_ = 0;          // counted at level 2
  mutable thread_ownership owner_;         // level 2 only
  arena_options options_;
  AddressSpace space_;
  using observer_pointer = ended_pointer<allocation_observer>;
  std::conditional_t<is_part_of_team, allocation_observer*, observer_pointer> observer_;  // null: none
  [[no_unique_address]] std::conditional_t<is_thread_part, aside_blocks, absent<aside_blocks>> asides_;
  [[no_unique_address]] std::conditional_t<can_trap, ended_pointer<rewind_trap>, absent<rewind_trap>> trap_;
};

// Address from which the newest block's bytes are untouched.
template <class AddressSpace>
inline std::uintptr_t arena_state<AddressSpace>::fresh_from(std::uintptr_t block) const noexcept {
  if constexpr (is_thread_part)
    if (block - chunk_->begin >= end_ - chunk_->begin) return (std::numeric_limits<std::uintptr_t>::max)();
  return max_of(high_, dirty_);
}

template <class AddressSpace>
arena_stats arena_state<AddressSpace>::stats() const noexcept {
  arena_stats stats;
  stats.name = name();
  stats.used_bytes = position();
  stats.peak_bytes = peak();
  stats.committed_bytes = committed_bytes_;
  if constexpr (AddressSpace::traits.suspends) {
    if (space_.is_suspended()) std::swap(stats.committed_bytes, stats.suspended_bytes);
  }
  stats.reserved_bytes = reserved_bytes_;
  if constexpr (is_thread_part) {
    stats.used_bytes += asides_.held_bytes;
    stats.peak_bytes += asides_.peak_bytes;
    stats.committed_bytes = stats.reserved_bytes = space_.held_bytes();
  }
  stats.chunks = chunks_;
  stats.system_calls = system_calls_;
  if constexpr (can_trap)
    if (trap_ != nullptr) trap_->add_to(stats);
  if constexpr (check_level >= 2) stats.allocations = allocations_;
  return stats;
}

template <class AddressSpace>
bool arena_state<AddressSpace>::owns(void const* address) const noexcept {
  const std::uintptr_t value = address_of(address);
  if (value >= chunk_->begin && value < cursor_) return true;
  if constexpr (is_thread_part)
    if (asides_.find(value, (std::numeric_limits<int>::max)()) != nullptr) return true;
  for (chunk_record const* chunk = chunk_->previous; chunk != nullptr; chunk = chunk->previous) {
    const std::size_t used = chunk->next->base - chunk->base;
    if (value - chunk->begin < used) return true;
  }
  return false;
}

template <class AddressSpace>
void arena_state<AddressSpace>::before_deallocate(void const* block, std::size_t bytes) const noexcept {
  before_use("deallocate");
  if (block == nullptr || owns(block)) return;
  if constexpr (is_thread_part)
    if (space_.may_be_of_another_thread(block)) return;
  report_violation(violation_kind::bad_deallocate, name(),
                   "arena '%s': deallocate of %zu bytes at %p, which it does not hold: the block is foreign, "
                   "or a rewind freed it",
                   name(), bytes, block);
}

template <class AddressSpace>
void arena_state<AddressSpace>::check_invariants() const noexcept {
  const invariant_check expect{"arena", name()};
  expect(chunk_->begin <= marked_, "chunk.begin <= marked");
  expect(marked_ <= floor_, "marked <= floor");
  expect(floor_ <= cursor_, "floor <= cursor");
  bool is_due = observer_ != nullptr;
  expect(!is_due || floor_ == cursor_, "floor == cursor, because the arena is observed");
  if constexpr (can_trap) {
    if (trap_ != nullptr) {
      is_due |= trap_->is_due();
      expect(high_ == chunk_->begin, "high == chunk.begin");
      expect.report(trap_->broken_invariant());
    }
  }
  expect(cursor_ <= chunk_->committed, "cursor <= chunk.committed");
  expect(end_ == (is_due ? closed_end(*chunk_) : min_of(chunk_->committed, chunk_->end)),
         "end == min(chunk.committed, chunk.end)");
  expect(chunk_->begin <= high_ && high_ <= chunk_->committed, "chunk.begin <= high <= chunk.committed");
  expect(cursor_ % block_granule == 0, "cursor % block_granule == 0");
  expect(floor_ % block_granule == 0, "floor % block_granule == 0");
  expect(options_.growable || position() <= first_.end - first_.begin, "position <= capacity");
  expect(scope_floor() <= position(), "begin of the innermost scope <= position");
  expect(finalizers_ == nullptr || finalizers_->end_position <= position(), "newest destructor <= position");
  std::size_t chunks = 0, committed = 0, reserved = 0;
  bool in_use = true;
  for (chunk_record const* chunk = &first_; chunk != nullptr; chunk = chunk->next) {
    chunks += chunk->range.empty() ? 0 : 1;
    committed += chunk->committed - chunk->begin;
    reserved += chunk->range.size;
    const std::uintptr_t most = !is_trapping()         ? chunk->end
                                : chunk->range.empty() ? align_up(chunk->end, space_.granularity())
                                                       : chunk->range.end();
    expect(chunk->begin <= chunk->committed && chunk->committed <= most, "begin <= committed <= end");
    expect(chunk->next == nullptr || chunk->next->previous == chunk, "next.previous == chunk");
    if (chunk == chunk_) in_use = false;
    if (in_use) expect(chunk->next != nullptr && chunk->base <= chunk->next->base, "base <= next.base");
  }
  expect(!in_use, "the current chunk is in the list");
  expect(chunks == chunks_, "chunks == number of chunks");
  expect(committed == committed_bytes_, "committed == sum over chunks");
  expect(reserved == reserved_bytes_, "reserved == sum over chunks");
}

}  // namespace tidemark::detail
