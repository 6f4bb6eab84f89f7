// SPDX-License-Identifier: Apache-2.0
/// @file
/// `reuse_cache_stats`: what a reuse cache holds and did, in numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark {

/// A snapshot of a reuse cache. Bytes are as asked for; blocks handed out and blocks kept are never mixed.
///
/// At any time:
/// - `pool_hits + pool_misses == allocations`
/// - `allocations - deallocations == used_blocks <= peak_blocks`, and `used_bytes <= peak_bytes`
/// - `bytes_cached <= peak_cached_bytes`, and `bytes_cached <= reuse_cache_options::cached_bytes_max` if that
///   is not 0
///
/// and whenever no call is going on:
/// - `held_bytes == used_bytes + bytes_cached + bytes_pending`; while blocks are on their way to the upstream
///   it is more
struct reuse_cache_stats {
  char const* name = "";              ///< the cache's name
  std::uint64_t allocations = 0;      ///< blocks handed out so far
  std::uint64_t deallocations = 0;    ///< blocks given back so far
  std::uint64_t refused = 0;          ///< allocations that failed so far
  std::uint64_t pool_hits = 0;        ///< of the allocations, those served without asking the upstream
  std::uint64_t pool_misses = 0;      ///< of the allocations, those that asked it
  std::size_t used_blocks = 0;        ///< handed out now
  std::size_t peak_blocks = 0;        ///< most that were handed out at once
  std::size_t used_bytes = 0;         ///< handed out now
  std::size_t peak_bytes = 0;         ///< most that were handed out at once
  std::size_t bytes_cached = 0;       ///< of blocks given back, ready to be handed out
  std::size_t peak_cached_bytes = 0;  ///< most that were cached at once
  std::size_t bytes_pending = 0;      ///< of blocks given back whose fence was not yet seen to be done
  std::size_t held_bytes = 0;         ///< of blocks taken from the upstream and not given back to it
};

}  // namespace tidemark
