// SPDX-License-Identifier: Apache-2.0
/// @file
/// How an arena traps scopes: slow paths that are taken where its options say so. See arena_state.hpp
/// for the class.
///
/// A trapped scope has a chunk of its own, a slice of other addresses, from its first allocation on. So its
/// end is a rewind over a chunk, which is a slow path in any arena; there the slice loses its memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include <tidemark/arena/arena_options.hpp>
#include <tidemark/arena/detail/arena_state.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/virtual_memory.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>

namespace tidemark::detail {

struct trap_log;

/// Slices of one reservation, each for one scope, taken upwards: `region.begin <= next <= region.end()`. Below `next`
/// lie the slices in use and, without memory and inaccessible, those of scopes that have ended. When none is in use and
/// no room is left, `next` goes back to the beginning.
///
/// The turns are those of GWP-ASan: after each trapped scope a random number of rewinds, `one_in` on average. The
/// places of the last rewinds are in a log that the handler of the fault may read at any time.
/// Thread-safety: as its arena.
class rewind_trap {
 public:
  /// @throws std::bad_alloc.
  rewind_trap(trap_options const& options, char const* name);
  rewind_trap(rewind_trap const&) = delete;
  rewind_trap& operator=(rewind_trap const&) = delete;
  ~rewind_trap();

  /// Whether the next scope is to be trapped.
  [[nodiscard]] bool is_due() const noexcept { return rewinds_to_go_ == 0; }
  void count_rewind() noexcept { rewinds_to_go_ -= rewinds_to_go_ != 0 ? 1 : 0; }
  /// A scope begins to be trapped: the next turn is drawn.
  void draw() noexcept;

  /// Takes the region from a space; without success no scope will be trapped.
  void reserve(virtual_memory& space) noexcept;
  /// Addresses without memory, whole pages. @return an empty range if there are none
  [[nodiscard]] byte_range take(virtual_memory& space, std::size_t bytes) noexcept;
  /// Takes the newest slice back, which was not committed.
  void give_back(byte_range slice) noexcept;
  /// A slice was rewound over: makes its memory inaccessible, for good if that succeeds, and records who called.
  /// @param used the first address that was not touched
  /// @return false if the system does not take the memory back
  bool retire(virtual_memory& space, byte_range slice, std::uintptr_t used,
              std::uintptr_t committed) noexcept;
  /// A scope that was due is over, or has no slice.
  void on_scope(bool is_trapped) noexcept { ++(is_trapped ? trapped_ : untrapped_); }
  /// Returns the region. @pre no scope has a slice. @return the part of it that ever had memory
  byte_range release(virtual_memory& space) noexcept;

  /// Adds its own numbers to an arena's.
  void add_to(arena_stats& stats) const noexcept;
  /// Formula of an invariant that does not hold, or null.
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  trap_options options_;
  std::uint64_t random_;
  std::uint64_t rewinds_to_go_ = 0;  // 0: a scope is due
  trap_log* log_;                    // never freed: a fault may come at any time
  byte_range region_;                // there while the arena has its first chunk
  std::uintptr_t next_ = 0;          // addresses of the region at or above are fresh
  std::uintptr_t highest_ = 0;       // no slice has ended above
  std::size_t slices_ = 0;           // in use, or lost
  std::size_t lost_bytes_ = 0;       // the system would not take them back, so they are accessible still
  std::uint64_t trapped_ = 0;
  std::uint64_t untrapped_ = 0;
  std::uint64_t reuses_ = 0;
  std::uint64_t system_calls_ = 0;
};

template <class AddressSpace>
void arena_state<AddressSpace>::make_trap() {
  if constexpr (can_trap) {
    trap_ = std::make_unique<rewind_trap>(options_.trap, options_.name);
  } else {
    report_warning(warning_kind::refused_setting, name(),
                   "arena '%s': its scopes are not trapped, because its memory is not of virtual_memory",
                   name());
  }
}

// An arena that traps keeps `high_` where it is, so that the comparison with it leads here after each rewind.
template <class AddressSpace>
void arena_state<AddressSpace>::raise_high() noexcept {
  if (!is_trapping()) {
    high_ = cursor_;
  } else {
    dirty_ = chunk_->touched = (std::max)(dirty_, cursor_);
    peak_ = peak();
  }
}

template <class AddressSpace>
void arena_state<AddressSpace>::rewind_to_floor() noexcept {
  lower_cursor(floor_);
  count_rewind();
}

template <class AddressSpace>
void arena_state<AddressSpace>::deallocate_highest(std::uintptr_t cursor) noexcept {
  lower_cursor(cursor);
  if (cursor_ == chunk_->begin) leave_empty_chunk();
}

template <class AddressSpace>
void arena_state<AddressSpace>::count_rewind() noexcept {
  if constexpr (can_trap) {
    if (trap_ == nullptr) return;
    trap_->count_rewind();
    set_cursor(*chunk_, cursor_);
  }
}

// Whether the next block is the first after a mark or of a scope.
template <class AddressSpace>
bool arena_state<AddressSpace>::begins_scope() const noexcept {
  if (cursor_ != floor_) return false;
  if (chunk_->begins_scope && cursor_ == chunk_->begin)  // it was emptied, and the scope goes on
    return innermost() != nullptr && innermost()->opened_.chunk == chunk_;
  return cursor_ == marked_ || (innermost() != nullptr && innermost()->opened_.chunk == chunk_ &&
                                innermost()->opened_.cursor == cursor_);
}

// Whether there may be a chunk behind the current one. An arena that does not grow has one behind a slice
// only, if a scope had to leave its slices, with no more room in all than its first chunk has.
template <class AddressSpace>
bool arena_state<AddressSpace>::may_go_on() const noexcept {
  return options_.growable || chunks_ == 0 || chunk_ != &first_;
}

// Bytes that the arena may allocate still, wherever it finds them.
template <class AddressSpace>
std::size_t arena_state<AddressSpace>::room_left() const noexcept {
  if (options_.growable || chunks_ == 0) return (std::numeric_limits<std::size_t>::max)();
  return (first_.end - first_.begin) - position();
}

// Lets a chunk that is entered next end where the arena has no room left.
template <class AddressSpace>
void arena_state<AddressSpace>::bound(chunk_record& chunk) const noexcept {
  if (&chunk != &first_) chunk.end = chunk.begin + (std::min)(chunk.range.size, room_left());
}

// Takes the memory of the chunks behind one: `allocate_beyond` would enter one that has some, without a
// look at what is due. The addresses are kept.
template <class AddressSpace>
void arena_state<AddressSpace>::empty_chunks_behind(chunk_record& chunk) noexcept {
  if constexpr (can_trap) {
    for (chunk_record* kept = chunk.next; kept != nullptr;) {
      chunk_record* const next = kept->next;
      const std::size_t bytes = kept->committed - kept->begin;
      if (bytes != 0) {
        ++system_calls_;
        kept->marks.on_decommit(kept->begin, kept->committed);
        if (space_.decommit({kept->begin, align_up(bytes, space_.granularity())})) {
          committed_bytes_ -= bytes;
          kept->committed = kept->touched = kept->begin;
        } else {
          drop(*kept);
        }
      }
      kept = next;
    }
  }
}

// A trapped scope's first block; null if none is due here.
template <class AddressSpace>
void* arena_state<AddressSpace>::allocate_if_due(std::size_t bytes, std::size_t align) noexcept {
  if constexpr (can_trap)
    if (trap_ != nullptr && trap_->is_due() && !first_.range.empty() && begins_scope())
      return allocate_in_slice(bytes, align);
  return nullptr;
}

// A block in a new slice: twice as large as the one that is full, if the current chunk is one. Null without
// addresses, memory or a record; then ordinary memory serves the scope.
template <class AddressSpace>
void* arena_state<AddressSpace>::allocate_in_slice(std::size_t bytes, std::size_t align) noexcept {
  if constexpr (!can_trap) {
    return nullptr;
  } else {
    const std::size_t size = block_bytes(bytes);
    const std::size_t least = size + (align > default_alignment ? align : 0);
    const std::size_t room = room_left();
    if (size > room) return nullptr;
    const bool goes_on = chunk_->is_slice() && !begins_scope();
    const std::size_t before = goes_on ? 2 * (chunk_->end - chunk_->begin) : options_.commit_step;
    if (!goes_on) {
      trap_->draw();
      set_cursor(*chunk_, cursor_);
    }
    const byte_range slice = trap_->take(space_, (std::min)((std::max)(least, before), room));
    chunk_record* const chunk = slice.empty() ? nullptr : take_record();
    if (chunk != nullptr) {
      chunk->begin = chunk->committed = chunk->touched = slice.begin;
      chunk->end = slice.begin + (std::min)(slice.size, room);
      chunk->begins_scope = !goes_on;
      chunk->insert_after(*chunk_);
      const std::uintptr_t block = place(chunk->begin, chunk->end, size, align);
      if (block != 0 && commit_up_to(*chunk, block + size)) {
        enter(*chunk);
        return bump(block, bytes);
      }
      chunk->unlink();
      keep_record(*chunk);
    }
    if (!slice.empty()) trap_->give_back(slice);
    if (goes_on) count_untrapped(*chunk_);
    else trap_->on_scope(false);
    return nullptr;
  }
}

// A part of a scope cannot be trapped. That is counted once, when the scope's first slice ends.
template <class AddressSpace>
void arena_state<AddressSpace>::count_untrapped(chunk_record& slice) noexcept {
  chunk_record* first = &slice;
  while (!first->begins_scope) first = first->previous;
  first->is_untrapped = true;
}

// All slices above the current chunk, which the arena went back to from `newest`.
template <class AddressSpace>
void arena_state<AddressSpace>::trap_slices(chunk_record& newest) noexcept {
  if constexpr (can_trap) {
    if (trap_ == nullptr) return;
    for (chunk_record* left = &newest; left != chunk_;) {
      chunk_record* const before = left->previous;
      if (left->is_slice()) {
        const std::size_t bytes = left->committed - left->begin;
        committed_bytes_ -= bytes;
        left->marks.on_decommit(left->begin, left->committed);
        if (!trap_->retire(space_, {left->begin, left->end - left->begin},
                           (std::min)(left->touched, left->committed), left->committed))
          count_untrapped(*left);
        if (left->begins_scope) trap_->on_scope(!left->is_untrapped);
        poison(left->begin, bytes);  // a sanitizer says more than a fault
        left->unlink();
        keep_record(*left);
      }
      left = before;
    }
    empty_chunks_behind(*chunk_);
    set_cursor(*chunk_, cursor_);
  }
}

}  // namespace tidemark::detail
