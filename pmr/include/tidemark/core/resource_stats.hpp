// SPDX-License-Identifier: Apache-2.0
/// @file
/// `resource_stats`: what went through a resource, in numbers, and the words that all statistics share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark {

/// A snapshot. What `stats()` of other resources counts of this has the same name there, and a word means the
/// same everywhere: docs/design.md lists them.
///
/// `allocations - deallocations == used_blocks <= peak_blocks`, and `used_bytes <= peak_bytes <=
/// total_bytes`.
struct resource_stats {
  char const* name = "";            ///< the resource's name
  std::uint64_t allocations = 0;    ///< blocks allocated so far
  std::uint64_t deallocations = 0;  ///< blocks deallocated so far
  std::uint64_t refused = 0;        ///< allocations that failed so far
  std::size_t used_blocks = 0;      ///< allocated now
  std::size_t peak_blocks = 0;      ///< most that were allocated at once
  std::size_t used_bytes = 0;       ///< allocated now
  std::size_t peak_bytes = 0;       ///< most that were allocated at once
  std::uint64_t total_bytes = 0;    ///< allocated so far, whether deallocated or not
};

}  // namespace tidemark
