// SPDX-License-Identifier: Apache-2.0
/// @file
/// `reuse_cache_options`: how a reuse cache is made.
#pragma once

#include <cstddef>
#include <memory_resource>

namespace tidemark {

/// Which of the ready blocks of a size is handed out first.
enum class reuse_order {
  newest,  ///< the one given back last: it is likeliest to be in a host's caches
  oldest,  ///< the one that has been ready for longest, so that all of a size take turns
};

/// Which ready blocks go to the upstream where they are more bytes than may be kept. Of a size it is always
/// the oldest.
enum class eviction_order {
  oldest,   ///< those that have been ready for longest
  largest,  ///< the largest: the fewest blocks, and the fewest calls of the upstream
};

/// What makes room where the upstream of a reuse cache has none.
struct reuse_relief {
  /// Frees what it can; returns whether it is of any use to ask the upstream once more.
  bool (*call)(void* context) noexcept = nullptr;
  /// What it is called with.
  void* context = nullptr;
};

/// How a reuse cache is made.
struct reuse_cache_options {
  /// Blocks that are ready to be used again are kept up to this many bytes in all; 0: without limit. What a
  /// fence still guards does not count: it is kept anyway.
  std::size_t cached_bytes_max = 0;
  /// The same in blocks of one size and alignment; 0: without limit.
  std::size_t bucket_blocks_max = 0;
  /// Which of the ready blocks of a size is handed out first.
  reuse_order reuse = reuse_order::newest;
  /// Which ready blocks go to the upstream where they exceed `cached_bytes_max`.
  eviction_order eviction = eviction_order::oldest;
  /// What is called where the upstream throws std::bad_alloc, before it is asked for the second and last
  /// time. It is called without a lock, by any thread that allocates, and may use the cache. Null:
  /// `collect()`, and if the upstream throws again `collect(true)`, so that it is asked up to three times.
  reuse_relief relief = {};
  /// In messages and statistics; must outlive the cache.
  char const* name = "reuse_cache";
  /// Where blocks come from; null: `std::pmr::get_default_resource()`. Must outlive the cache.
  std::pmr::memory_resource* upstream = nullptr;
  /// Where the cache's own records come from, which the host writes; null: `std::pmr::new_delete_resource()`.
  /// Must outlive the cache. It is called under the cache's lock and must not call back.
  std::pmr::memory_resource* bookkeeping = nullptr;
};

}  // namespace tidemark
