// SPDX-License-Identifier: Apache-2.0
/// @file
/// `graph_arena_stats`: what a graph arena holds, in numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark {

/// A snapshot of a graph arena. Bytes of blocks are multiples of 256.
///
/// `allocations - deallocations == used_blocks <= peak_blocks`, and `used_bytes <= peak_bytes <=
/// high_water_bytes <= reserved_bytes`.
struct graph_arena_stats {
  char const* name = "";                ///< the arena's name
  std::uint64_t allocations = 0;        ///< blocks handed out so far
  std::uint64_t deallocations = 0;      ///< blocks given back so far
  std::uint64_t bad_deallocations = 0;  ///< of what it does not hold, so far
  std::size_t used_blocks = 0;          ///< handed out now
  std::size_t peak_blocks = 0;          ///< most that were handed out at once
  std::size_t used_bytes = 0;           ///< handed out now
  std::size_t peak_bytes = 0;           ///< most that were handed out at once
  std::size_t high_water_bytes = 0;     ///< from the beginning to the end of the last block handed out
  std::size_t reserved_bytes = 0;       ///< of its range
};

}  // namespace tidemark
