// SPDX-License-Identifier: Apache-2.0
/// @file
/// How an arena traps scopes: slow paths that are taken where its options say so. See arena.hpp for the
/// class.
///
/// A trapped scope has a chunk of its own, a slice of other addresses, from its first allocation on. So its
/// end is a rewind over a chunk, which is a slow path in any arena; there the slice loses its memory.
#pragma once

#include <algorithm>
#include <limits>

#include <tidemark/arena/arena.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>

namespace tidemark {

// An arena that traps keeps `high_` where it is, so that the comparison with it leads here after each rewind.
template <class AddressSpace>
void basic_arena<AddressSpace>::raise_high() noexcept {
  if constexpr (can_trap) {
    if (trap_ == nullptr) {
      high_ = cursor_;
    } else {
      dirty_ = chunk_->touched = (std::max)(dirty_, cursor_);
      peak_ = peak();
    }
  }
}

template <class AddressSpace>
void basic_arena<AddressSpace>::rewind_to_floor() noexcept {
  lower_cursor(floor_);
  count_rewind();
}

template <class AddressSpace>
void basic_arena<AddressSpace>::deallocate_highest(std::uintptr_t cursor) noexcept {
  lower_cursor(cursor);
  if (cursor_ == chunk_->begin) leave_empty_chunk();
}

template <class AddressSpace>
void basic_arena<AddressSpace>::count_rewind() noexcept {
  if constexpr (can_trap) {
    if (trap_ == nullptr) return;
    trap_->count_rewind();
    watch();
  }
}

// Makes the fast path find no room while a scope is due, after `end_` or the current chunk was changed.
template <class AddressSpace>
void basic_arena<AddressSpace>::watch() noexcept {
  if constexpr (can_trap) {
    if (trap_ == nullptr) return;
    high_ = chunk_->begin;
    if (trap_->is_due()) end_ = 0;
  }
}

// Whether the next block is the first after a mark or of a scope.
template <class AddressSpace>
bool basic_arena<AddressSpace>::begins_scope() const noexcept {
  if (cursor_ != floor_) return false;
  if (chunk_->begins_scope && cursor_ == chunk_->begin)  // it was emptied, and the scope goes on
    return innermost() != nullptr && innermost()->opened_.chunk == chunk_;
  return cursor_ == marked_ || (innermost() != nullptr && innermost()->opened_.chunk == chunk_ &&
                                innermost()->opened_.cursor == cursor_);
}

// Whether there may be a chunk behind the current one. An arena that does not grow has one behind a slice
// only, if a scope had to leave its slices, with no more room in all than its first chunk has.
template <class AddressSpace>
bool basic_arena<AddressSpace>::may_go_on() const noexcept {
  return options_.growable || chunks_ == 0 || chunk_ != &first_;
}

// Bytes that the arena may allocate still, wherever it finds them.
template <class AddressSpace>
std::size_t basic_arena<AddressSpace>::room_left() const noexcept {
  if (options_.growable || chunks_ == 0) return (std::numeric_limits<std::size_t>::max)();
  return (first_.end - first_.begin) - position();
}

// Lets a chunk that is entered next end where the arena has no room left.
template <class AddressSpace>
void basic_arena<AddressSpace>::bound(chunk_record& chunk) const noexcept {
  if (&chunk != &first_) chunk.end = chunk.begin + (std::min)(chunk.range.size, room_left());
}

// Takes the memory of the chunks behind one: `allocate_beyond` would enter one that has some, without a
// look at what is due. The addresses are kept.
template <class AddressSpace>
void basic_arena<AddressSpace>::empty_chunks_behind(chunk_record& chunk) noexcept {
  if constexpr (can_trap) {
    for (chunk_record* kept = chunk.next; kept != nullptr;) {
      chunk_record* const next = kept->next;
      const std::size_t bytes = kept->committed - kept->begin;
      if (bytes != 0) {
        ++system_calls_;
        kept->marks.on_decommit(kept->begin, kept->committed);
        if (space_.decommit({kept->begin, detail::align_up(bytes, space_.granularity())})) {
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
void* basic_arena<AddressSpace>::allocate_if_due(std::size_t bytes, std::size_t align) noexcept {
  if constexpr (can_trap)
    if (trap_ != nullptr && trap_->is_due() && !first_.range.empty() && begins_scope())
      return allocate_in_slice(bytes, align);
  return nullptr;
}

// A block in a new slice: twice as large as the one that is full, if the current chunk is one. Null without
// addresses, memory or a record; then ordinary memory serves the scope.
template <class AddressSpace>
void* basic_arena<AddressSpace>::allocate_in_slice(std::size_t bytes, std::size_t align) noexcept {
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
      end_ = chunk_->committed;
      watch();
    }
    const byte_range slice = trap_->take(space_, (std::min)((std::max)(least, before), room));
    chunk_record* const chunk = slice.empty() ? nullptr : take_record();
    if (chunk != nullptr) {
      chunk->begin = chunk->committed = chunk->touched = slice.begin;
      chunk->end = slice.begin + (std::min)(slice.size, room);
      chunk->begins_scope = !goes_on;
      chunk->insert_after(*chunk_);
      const std::uintptr_t block = detail::place(chunk->begin, chunk->end, size, align);
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
void basic_arena<AddressSpace>::count_untrapped(chunk_record& slice) noexcept {
  chunk_record* first = &slice;
  while (!first->begins_scope) first = first->previous;
  first->is_untrapped = true;
}

// All slices above a chunk that the arena goes back to.
template <class AddressSpace>
void basic_arena<AddressSpace>::trap_slices_above(chunk_record& chunk) noexcept {
  if constexpr (can_trap) {
    if (trap_ == nullptr) return;
    for (chunk_record* left = chunk_; left != &chunk;) {
      chunk_record* const before = left->previous;
      if (left->is_slice()) {
        const std::size_t bytes = left->committed - left->begin;
        committed_bytes_ -= bytes;
        left->marks.on_decommit(left->begin, left->committed);
        if (!trap_->retire(space_, {left->begin, left->end - left->begin},
                           (std::min)(left->touched, left->committed), left->committed))
          count_untrapped(*left);
        if (left->begins_scope) trap_->on_scope(!left->is_untrapped);
        detail::poison(left->begin, bytes);  // a sanitizer says more than a fault
        left->unlink();
        keep_record(*left);
      }
      left = before;
    }
    empty_chunks_behind(chunk);
  }
}

}  // namespace tidemark
