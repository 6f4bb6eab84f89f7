// SPDX-License-Identifier: Apache-2.0
/// @file
/// `reuse_cache_options`: how a reuse cache is made.
#pragma once

#include <cstddef>
#include <memory_resource>

namespace tidemark {

/// How a reuse cache is made.
struct reuse_cache_options {
  /// Blocks that are ready to be used again are kept up to this many bytes in all; 0: without limit. What a
  /// fence still guards does not count: it is kept anyway.
  std::size_t cached_bytes_max = 0;
  /// The same in blocks of one size and alignment; 0: without limit.
  std::size_t bucket_blocks_max = 0;
  /// In messages and statistics; must outlive the cache.
  char const* name = "reuse_cache";
  /// Where blocks come from; null: `std::pmr::get_default_resource()`. Must outlive the cache.
  std::pmr::memory_resource* upstream = nullptr;
  /// Where the cache's own records come from, which the host writes; null: `std::pmr::new_delete_resource()`.
  /// Must outlive the cache. It is called under the cache's lock and must not call back.
  std::pmr::memory_resource* bookkeeping = nullptr;
};

}  // namespace tidemark
