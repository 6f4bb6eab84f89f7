// SPDX-License-Identifier: Apache-2.0
/// @file
/// `capture_switch_stats`: what went through a capture switch, in numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark {

/// A snapshot of a capture switch, of graph arenas and upstream together. Bytes are as asked for.
///
/// `allocations - deallocations == used_blocks <= peak_blocks`, and `used_bytes <= peak_bytes <=
/// total_bytes`.
struct capture_switch_stats {
  char const* name = "";            ///< the switch's name
  std::uint64_t allocations = 0;    ///< blocks handed out so far
  std::uint64_t deallocations = 0;  ///< blocks given back so far
  std::uint64_t refused = 0;        ///< allocations that failed so far
  std::size_t used_blocks = 0;      ///< handed out now
  std::size_t peak_blocks = 0;      ///< most that were handed out at once
  std::size_t used_bytes = 0;       ///< handed out now
  std::size_t peak_bytes = 0;       ///< most that were handed out at once
  std::uint64_t total_bytes = 0;    ///< handed out so far, whether given back or not
  std::size_t deferred_blocks = 0;  ///< given back to it, and not yet by it to the upstream
  std::size_t frozen_threads = 0;   ///< threads in a capture
};

}  // namespace tidemark
