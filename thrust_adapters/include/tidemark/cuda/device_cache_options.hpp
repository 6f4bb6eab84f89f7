// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_cache_options`: how a device's cache is made.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <optional>

#include <tidemark/cuda/driver.hpp>
#include <tidemark/units.hpp>

namespace tidemark {

/// How a device's cache is made.
struct device_cache_options {
  /// Whose work uses the blocks; null: the device's default stream. Must outlive the cache.
  cuda::stream_handle stream = nullptr;
  /// The stream's device; -1: the one that is current for the thread that makes the cache.
  cuda::device_number device = -1;
  /// Blocks of one size that are kept ready, at most; 0: without limit.
  std::size_t bucket_blocks_max = 64;
  /// Bytes that are kept ready in all, at most; 0: without limit. Left empty it is what the environment
  /// variable `TIDEMARK_DEVICE_CACHE_MIB` says, a number of MiB in digits, or 1 GiB where that is unset,
  /// empty or something else, which is warned of (`refused_setting`). It is read when the cache is made.
  // GCC warns about members that are left out unless they have initializers.
  std::optional<std::size_t> cached_bytes_max = {};  // NOLINT(readability-redundant-member-init)
  /// Bytes that the cache's own pool of the driver's keeps when something is waited for: see
  /// `cuda::memory_pool_options`. Not asked for where there is an upstream.
  std::size_t release_threshold_bytes = 512 * MiB;
  /// Where blocks come from; null: a `cuda::memory_pool` of the cache's own, in the order of the stream. It
  /// must allow threads if the cache is used by several, and see to it that a block which is given back to it
  /// goes to nobody before the work on the stream that uses it has ended. Must outlive the cache.
  std::pmr::memory_resource* upstream = nullptr;
  /// Where the cache's own records come from, which the host writes; null: `std::pmr::new_delete_resource()`.
  /// Must outlive the cache. It is called under the cache's locks and must not call back.
  std::pmr::memory_resource* bookkeeping = nullptr;
  /// In messages and statistics; null: the default. Must outlive the cache and its exceptions.
  char const* name = "device_cache";
};

}  // namespace tidemark
