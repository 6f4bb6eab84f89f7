// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_pool_options`: how a device's pool is made.
#pragma once

#include <cstddef>
#include <memory_resource>

#include <tidemark/cuda/driver.hpp>
#include <tidemark/units.hpp>

namespace tidemark {

/// How a device's pool is made.
struct device_pool_options {
  /// Whose work uses the blocks; null: the device's default stream. Must outlive the pool.
  cuda::stream_handle stream = nullptr;
  /// The stream's device; -1: the one that is current for the thread that makes the pool.
  cuda::device_number device = -1;
  /// Larger requests go to the upstream one by one, and straight back. 16 GiB at most.
  std::size_t largest_pooled_bytes = 32 * MiB;
  /// Blocks are cut from slabs of about so many bytes, or of one block where that is larger: what the driver
  /// takes from the system at once, so that smaller ones spare nothing.
  std::size_t slab_bytes = 2 * MiB;
  /// Free blocks are held up to this many bytes; beyond, memory goes back to the upstream.
  std::size_t max_cached_bytes = 1 * GiB;
  /// Where memory comes from; null: a `cuda::device_resource` of the pool's own. It must see to it that a
  /// slab which is given back to it goes to nobody before the work on the stream that uses it has ended. Must
  /// outlive the pool.
  std::pmr::memory_resource* upstream = nullptr;
  /// Where the pool's records come from, which the host writes; null: `std::pmr::new_delete_resource()`. Must
  /// outlive the pool.
  std::pmr::memory_resource* bookkeeping = nullptr;
  /// In messages and statistics; null: the default. Must outlive the pool and its exceptions.
  char const* name = "device_pool";
};

}  // namespace tidemark
