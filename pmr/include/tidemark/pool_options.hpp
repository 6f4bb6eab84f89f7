// SPDX-License-Identifier: Apache-2.0
/// @file
/// `pool_options`: how a pool is made.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <vector>

#include <tidemark/units.hpp>

namespace tidemark {

/// How a pool is made. The defaults are those of ML Odyssey's tensor pool, nine size classes in three tiers,
/// but that more may be cached: that pool kept no large blocks.
struct pool_options {
  /// Blocks taken from the upstream at the start, of each class of up to 1 KiB.
  std::size_t small_block_count = 16;
  /// The same of each class above, up to 16 KiB. Larger classes start empty.
  std::size_t medium_block_count = 8;
  /// Free blocks are held up to this many bytes; beyond, memory goes back to the upstream.
  std::size_t max_cached_bytes = 64 * MiB;
  /// Whether free blocks beyond the largest class are held too, as far as `max_cached_bytes` lets them, to
  /// serve requests of about their size; in a `synchronized_pool` as far as half of it. Otherwise each goes
  /// straight back to the upstream, as the standard's pools do it.
  bool keep_large_blocks = true;
  /// Sizes of the classes in bytes, rising, multiples of 16 from 32 bytes to 1 GiB, at most 64. Empty: 64,
  /// 128, 256, 512, 1024, 2048, 4096, 8192 and 16384. `bucket_histogram` suggests sizes that fit a program.
  // GCC warns about members that are left out unless they have initializers.
  std::vector<std::size_t> bucket_bytes = {};  // NOLINT(readability-redundant-member-init)
  /// Most blocks taken from the upstream at once; 0: no limit but the pool's own.
  std::size_t max_blocks_per_slab = 0;
  /// Where memory comes from; null: `std::pmr::get_default_resource()`.
  std::pmr::memory_resource* upstream = nullptr;
  /// In messages and statistics; must outlive the pool.
  char const* name = "pool";
};

}  // namespace tidemark
