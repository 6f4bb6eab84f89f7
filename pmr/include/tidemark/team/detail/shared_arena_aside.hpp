// SPDX-License-Identifier: Apache-2.0
/// @file
/// How the part of a thread sets large blocks aside. See arena_state.hpp for the class.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include <tidemark/arena/detail/arena_records.hpp>
#include <tidemark/arena/detail/arena_state.hpp>
#include <tidemark/core/detail/align.hpp>

namespace tidemark::detail {

// A block in a range of its own, whose record is that of a destructor, which returns the range: so marks,
// scopes and rewinds need not know of it.
template <class AddressSpace>
void* arena_state<AddressSpace>::set_aside(std::size_t bytes, std::size_t align, refusal& refused) {
  if constexpr (!sets_aside) {
    return nullptr;
  } else {
    ++system_calls_;
    const std::size_t size = block_bytes(bytes);
    const byte_range range = space_.reserve_aside(size, align);
    if (range.empty()) {
      refused = refusal::addresses;
      return nullptr;
    }
    void* memory = nullptr;
    try {
      memory = grow(sizeof(aside_block), alignof(aside_block), refused);
    } catch (...) {
      space_.release_aside(range);
      throw;
    }
    if (memory == nullptr) {
      space_.release_aside(range);
      return nullptr;
    }
    const auto end_of_record = [](void* object) noexcept {
      auto& block = *static_cast<aside_block*>(object);
      aside_blocks& asides = static_cast<arena_state*>(block.arena)->asides_;
      asides.newest = block.previous;
      block.previous = std::exchange(asides.ended, &block);
    };
    auto* const record = std::construct_at(
        static_cast<aside_block*>(memory),
        aside_block{
            {finalizers_, end_of_record, memory, position()}, this, range, size, asides_.newest, floor_});
    finalizers_ = &record->finalizer;
    floor_ = cursor_;
    asides_.newest = record;
    asides_.bytes += size;
    asides_.peak_bytes = (std::max)(asides_.peak_bytes, asides_.bytes);
    chunk_->marks.on_commit(range.begin, range.end(), name());
    chunk_->marks.on_allocate(range.begin, bytes);
    if constexpr (check_level >= 2) ++allocations_;
    return range.data();
  }
}

// Returns the range of a block that is set aside, if it has one still.
template <class AddressSpace>
void arena_state<AddressSpace>::return_aside(aside_block& block) noexcept {
  if constexpr (sets_aside) {
    if (block.range.empty()) return;
    asides_.bytes -= block.bytes;
    before_free(block.range.begin, block.range.end());
    chunk_->marks.on_free(block.range.begin, block.range.end());
    chunk_->marks.on_decommit(block.range.begin, block.range.end());
    space_.release_aside(std::exchange(block.range, {}));
  }
}

// A block that is set aside can be returned whatever came after it. Records go while the newest one is
// without a block, and no mark was taken and no scope opened since.
template <class AddressSpace>
void arena_state<AddressSpace>::deallocate_aside(void const* block) noexcept {
  if constexpr (sets_aside) {
    aside_block* const found = asides_.find(address_of(block), asides_.max_tried);
    if (found == nullptr || found->range.data() != block) return;
    return_aside(*found);
    for (aside_block* top = asides_.newest; top != nullptr && top->range.empty(); top = asides_.newest) {
      const std::size_t end = top->finalizer.end_position;
      if (finalizers_ != &top->finalizer || end != position() || marked_ == cursor_ ||
          (innermost() != nullptr && scope_floor() >= end))
        return;
      finalizers_ = top->finalizer.previous;
      asides_.newest = top->previous;
      const std::uintptr_t floor = top->floor;
      lower_cursor(address_of(top));
      floor_ = (std::min)(floor, cursor_);
      if (cursor_ == chunk_->begin) leave_empty_chunk();
    }
  }
}

}  // namespace tidemark::detail
