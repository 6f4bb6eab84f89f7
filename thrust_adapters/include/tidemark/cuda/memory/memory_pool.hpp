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

/// How a `gpu::memory_pool` is made.
struct memory_pool_options {
  /// The device; -1: the current device of the thread that makes the pool.
  device_number device = -1;
  /// Each wait for a stream, an event or the device frees unused memory of the pool while the pool has more
  /// than this many bytes, those in use included: with more in use than that, everything unused is freed each
  /// time, and allocated again. So the default keeps all until `trim`. The driver's own default is 0.
  std::size_t release_threshold_bytes = (std::numeric_limits<std::size_t>::max)();
  /// How the memory can be handed to other processes: the driver wants to know when it makes the pool.
  handle_type exported_as = handle_type::none;
  /// Other devices whose work may read and write the pool's blocks; each must be a peer of the device
  /// (`cuDeviceCanAccessPeer`). Their work has to be ordered by events, as that of any other stream.
  device_set accessible_from = {};
};

/// A pool for stream-ordered allocations: see `gpu::async_resource`.
///
/// Unlike the device's default pool it is not shared with libraries, has its own threshold, can be trimmed
/// without effect on others, and all its memory counts in the device's budget (`gpu::device_budget`), also
/// free memory that it retains.
///
/// ```cpp
/// gpu::memory_pool pool{{.release_threshold_bytes = 2 * GiB}};
/// gpu::async_resource memory{pool, stream};
/// ```
/// Move-only; a moved-from pool may only be destroyed or assigned to. Thread-safety: any thread, except for
/// moving and destroying it. Destruction returns at once; the driver keeps blocks that are not freed yet.
class memory_pool {
 public:
  /// An empty pool. @throws out_of_memory; cuda_error of another error, for example if there is no device;
  /// std::invalid_argument if a device of `accessible_from` is not a peer.
  explicit memory_pool(memory_pool_options const& options = {}, driver& driver = default_driver());
  memory_pool(memory_pool&&) noexcept = default;
  memory_pool& operator=(memory_pool&& other) noexcept {
    if (this == &other) return *this;
    counted_ = {};  // first: the budget may query the driver's pool until then
    device_ = other.device_;
    handle_ = std::move(other.handle_);
    counted_ = std::move(other.counted_);
    return *this;
  }
  ~memory_pool() = default;

  /// Frees unused memory until the pool holds `keep_bytes`. A block that was freed on a stream is unused
  /// when the stream has reached that point. @throws cuda_error, with nothing changed.
  void trim(std::size_t keep_bytes = 0);

  /// The device whose memory it is.
  [[nodiscard]] device_number device() const noexcept { return device_; }
  /// The driver's handle, as `cudaMemPool_t`.
  [[nodiscard]] pool_handle get() const noexcept { return handle_.get(); }
  /// The same, implicitly, as a stream.
  operator pool_handle() const noexcept { return get(); }  // NOLINT(google-explicit-constructor)

 private:
  static void destroy(driver& driver, pool_handle pool) noexcept;

  device_number device_;
  detail::unique_handle<pool_handle, &memory_pool::destroy> handle_;
  device_budget::pool_membership counted_;  // ends before the driver's pool is destroyed
};

}  // namespace tidemark::gpu
