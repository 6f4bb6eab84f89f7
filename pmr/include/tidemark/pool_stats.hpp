// SPDX-License-Identifier: Apache-2.0
/// @file
/// `pool_stats`: what a pool holds and did, in numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark {

/// A snapshot of a pool. Bytes of blocks are those of their size class; blocks beyond the largest class count
/// as they were first asked for.
///
/// Whenever no call is going on:
/// - `pool_hits + pool_misses == allocations`
/// - `bytes_allocated == used_bytes`, the sum over blocks handed out; `bytes_requested <= bytes_allocated`
/// - `bytes_cached` is the sum over free blocks ready to be handed out;
///   `bytes_cached <= peak_cached_bytes` and `bytes_cached <= pool_options::max_cached_bytes`
/// - `held_bytes == bytes_allocated + bytes_cached + bytes_stranded`
struct pool_stats {
  char const* name = "";            ///< the pool's name
  std::uint64_t allocations = 0;    ///< blocks handed out, since the start or `reset_stats`
  std::uint64_t deallocations = 0;  ///< blocks given back, since then
  std::uint64_t pool_hits = 0;      ///< of the allocations, those served without asking the upstream
  std::uint64_t pool_misses = 0;    ///< of the allocations, those that asked it
  std::size_t used_blocks = 0;      ///< handed out now
  std::size_t used_bytes = 0;  ///< the same number as `bytes_allocated`, by the name it has in all statistics
  std::size_t bytes_allocated = 0;    ///< of blocks handed out now
  std::size_t bytes_requested = 0;    ///< of blocks handed out now, what was asked for
  std::size_t bytes_cached = 0;       ///< of free blocks, ready to be handed out
  std::size_t peak_cached_bytes = 0;  ///< most that were cached at once (see also `synchronized_pool`)
  std::size_t bytes_stranded = 0;  ///< of free blocks set aside by a trim, because live ones hold their slab
  std::size_t held_bytes = 0;  ///< in blocks of all three kinds: taken from the upstream and not given back
};

}  // namespace tidemark
