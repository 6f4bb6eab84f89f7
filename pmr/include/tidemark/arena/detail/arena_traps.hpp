// SPDX-License-Identifier: Apache-2.0
/// @file
/// How an arena traps scopes: slow paths that are taken where its options say so. See arena.hpp for the class.
///
/// A trapped scope has a chunk of its own, a slice of other addresses, from its first allocation on. So its end is
/// a rewind over a chunk, which is a slow path in any arena; there the slice loses its memory.
#pragma once

#include <algorithm>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/detail/sanitizers.hpp>

namespace tidemark {

// An arena that traps keeps `high_` where it is, so that the comparison with it leads here after each rewind.
template <class AddressSpace>
void basic_arena<AddressSpace>::raise_high() noexcept {
  if constexpr (can_trap) {
    if (trap_ == nullptr) {
      high_ = cursor_;
    } else {
      dirty_ = chunk_->touched = std::max(dirty_, cursor_);
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
  return cursor_ == marked_ || (innermost_ != nullptr && innermost_->opened_.chunk == chunk_ &&
                                innermost_->opened_.cursor == cursor_);
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
    const bool goes_on = chunk_->is_slice() && !begins_scope();
    const std::size_t before = goes_on ? 2 * (chunk_->end - chunk_->begin) : options_.commit_step;
    if (!goes_on) {
      trap_->draw();
      end_ = chunk_->committed;
      watch();
    }
    const byte_range slice = trap_->take(space_, std::max(least, before));
    chunk_record* const chunk = slice.empty() ? nullptr : take_record();
    if (chunk == nullptr) {
      if (!slice.empty()) trap_->give_back(slice);
      trap_->on_untrapped();
      return nullptr;
    }
    chunk->begin = chunk->committed = chunk->touched = slice.begin;
    chunk->end = slice.end();
    chunk->insert_after(*chunk_);
    const std::uintptr_t block = detail::place(chunk->begin, chunk->end, size, align);
    if (block == 0 || !commit_up_to(*chunk, block + size)) {
      trap_->give_back(slice);
      chunk->unlink();
      keep_record(*chunk);
      trap_->on_untrapped();
      return nullptr;
    }
    enter(*chunk);
    return bump(block, bytes);
  }
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
        trap_->retire(space_, {left->begin, left->end - left->begin},
                      std::min(left->touched, left->committed), left->committed);
        detail::poison(left->begin, bytes);  // a sanitizer says more than a fault
        left->unlink();
        keep_record(*left);
      }
      left = before;
    }
  }
}

}  // namespace tidemark
