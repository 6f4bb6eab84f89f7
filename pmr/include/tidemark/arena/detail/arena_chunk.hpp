// SPDX-License-Identifier: Apache-2.0
/// @file
/// `arena_chunk`: an arena's record of one range of memory; `arena_finalizer`: of one destructor to run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tidemark/arena/detail/annotations.hpp>
#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/config.hpp>
#include <tidemark/diagnose/detail/device_marks.hpp>

namespace tidemark::detail {

/// One range of an arena. Records lie beside the memory and never in it, because memory may be a device's.
/// `begin <= committed <= end`, `begin <= touched <= end`, and `[begin, end)` lies in `range`.
template <class AddressSpace>
struct arena_chunk {
  static constexpr bool on_host = AddressSpace::traits.host_accessible;
  // Memory that others see may be freed here while they read it: at the arena's end.
  static constexpr bool fills = on_host && !AddressSpace::traits.seen_by_others;
  using marks_type = std::conditional_t<on_host || !TIDEMARK_NVTX, byte_marks<on_host, fills>, device_marks>;

  byte_range range;              // as `reserve` returned it
  std::uintptr_t begin = 0;      // first address of a block: `range` rounded inwards to the block alignment
  std::uintptr_t end = 0;        // one past the last
  std::uintptr_t committed = 0;  // memory is behind [begin, committed)
  std::uintptr_t touched = 0;    // bytes at or above are fresh; `end` where fresh memory is not known to be 0
  std::size_t base = 0;          // position of `begin`; meaningful up to and including the current chunk
  std::uintptr_t floor = 0;      // the arena's floor when it went on to the next chunk
  bool begins_scope = false;     // the first slice of a trapped scope
  bool is_untrapped = false;     // so, and a part of that scope could not be trapped
  arena_chunk* previous = nullptr;
  arena_chunk* next = nullptr;
  [[no_unique_address]] marks_type marks;  // tell tools what of it may be touched

  /// Whether it is a trapped scope's: then it has no range that it could return.
  [[nodiscard]] bool is_slice() const noexcept { return range.empty() && begin != 0; }
  void insert_after(arena_chunk& before) noexcept {
    previous = &before;
    next = before.next;
    if (next != nullptr) next->previous = this;
    before.next = this;
  }
  void unlink() noexcept {
    previous->next = next;
    if (next != nullptr) next->previous = previous;
  }
};

/// A destructor that runs when the arena is rewound to below `end_position`. It lies in the arena itself.
struct arena_finalizer {
  arena_finalizer* previous;
  void (*destroy)(void* object) noexcept;
  void* object;
  std::size_t end_position;  // position right after the object and all that its constructor allocated
};

/// A block that lies in a range of its own, beside the chunks, until it is deallocated or the arena is
/// rewound to below its record, which lies in the arena.
struct aside_block {
  arena_finalizer finalizer;  // returns the range
  void* arena;
  byte_range range;  // empty: deallocated
  std::size_t bytes;
  aside_block* previous;
  std::uintptr_t floor;  // the arena's, before
};

/// The blocks of an arena that are set aside.
struct aside_blocks {
  // So many records are looked at for a block that is deallocated, newest first.
  static constexpr int max_tried = 64;

  aside_block* newest = nullptr;
  aside_block* ended =
      nullptr;            // of a rewind that is going on: their ranges are returned after all destructors
  std::size_t bytes = 0;  // sum over blocks
  std::size_t peak_bytes = 0;

  [[nodiscard]] aside_block* find(std::uintptr_t address, int tried) const noexcept {
    for (aside_block* block = newest; block != nullptr && tried-- > 0; block = block->previous)
      if (block->range.contains(address)) return block;
    return nullptr;
  }
  [[nodiscard]] bool contain(std::uintptr_t address) const noexcept {
    return find(address, (std::numeric_limits<int>::max)()) != nullptr;
  }
};

}  // namespace tidemark::detail
