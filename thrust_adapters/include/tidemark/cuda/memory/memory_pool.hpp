// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::memory_pool`: a pool of the driver's stream-ordered allocator. Owns the driver's pool.
#pragma once

#include <cstddef>
#include <limits>
#include <utility>

#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu {

/// Options of a `gpu::memory_pool`.
struct memory_pool_options {
  /// Device; -1: the current device of the thread that makes the pool.
  device_number device = -1;
  /// Each wait for a stream, an event or the device frees unused memory while the pool has more than this
  /// many bytes, in use or free. If more bytes are in use, each wait frees all unused memory, which is then
  /// allocated again. The default therefore keeps all memory until `trim`. The driver's own default is 0.
  std::size_t release_threshold_bytes = (std::numeric_limits<std::size_t>::max)();
  /// Way to export the memory to other processes; fixed when the driver makes the pool.
  handle_type exported_as = handle_type::none;
  /// Other devices whose work may read and write the pool's blocks. Each must be a peer of the device
  /// (`cuDeviceCanAccessPeer`). Order their work by events, like work of any other stream.
  device_set accessible_from = {};
};

/// A pool for stream-ordered allocations: see `gpu::async_resource`.
///
/// Unlike the device's default pool, it is not shared with libraries, has its own threshold, and can be
/// trimmed without effect on others. The device's budget (`gpu::device_budget`) counts all its memory,
/// including retained free memory.
///
/// ```cpp
/// gpu::memory_pool pool{{.release_threshold_bytes = 2 * GiB}};
/// gpu::async_resource memory{pool, stream};
/// ```
/// Move-only; a moved-from pool may only be destroyed or assigned to. Thread-safety: any thread, except for
/// move and destruction. The destructor returns at once; the driver keeps blocks that are not freed yet.
class memory_pool {
 public:
  /// Makes an empty pool. @throws out_of_memory; cuda_error for another error, for example without a device;
  /// std::invalid_argument if a device of `accessible_from` is not a peer.
  explicit memory_pool(memory_pool_options const& options = {}, driver& driver = default_driver());
  memory_pool(memory_pool&&) noexcept = default;
  memory_pool& operator=(memory_pool&& other) noexcept {
    if (this == &other) return *this;
    counted_ = {};  // first, because the budget may query the driver's pool until then
    device_ = other.device_;
    handle_ = std::move(other.handle_);
    counted_ = std::move(other.counted_);
    return *this;
  }
  ~memory_pool() = default;

  /// Frees unused memory until the pool holds at most `keep_bytes`. A block that was freed on a stream is
  /// unused once the stream has reached the free. @throws cuda_error, with nothing changed.
  void trim(std::size_t keep_bytes = 0);

  /// Returns the device of the memory.
  [[nodiscard]] device_number device() const noexcept { return device_; }
  /// Returns the driver's handle, as `cudaMemPool_t`.
  [[nodiscard]] pool_handle get() const noexcept { return handle_.get(); }
  /// Converts to the driver's handle, as a stream does.
  operator pool_handle() const noexcept { return get(); }  // NOLINT(google-explicit-constructor)

 private:
  static void destroy(driver& driver, pool_handle pool) noexcept;

  device_number device_;
  detail::unique_handle<pool_handle, &memory_pool::destroy> handle_;
  device_budget::pool_membership counted_;  // ends before the driver's pool is destroyed
};

}  // namespace tidemark::gpu
