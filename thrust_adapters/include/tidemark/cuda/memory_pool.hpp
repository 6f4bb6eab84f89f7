// SPDX-License-Identifier: Apache-2.0
/// @file
/// `cuda::memory_pool`: a pool of the driver's stream-ordered allocator. Owns the driver's pool.
#pragma once

#include <cstddef>
#include <utility>

#include <tidemark/cuda/driver.hpp>
#include <tidemark/units.hpp>

namespace tidemark::cuda {

/// What a `cuda::memory_pool` is of, and how much it keeps.
struct memory_pool_options {
  /// The device; -1: the one that is current for the thread that makes the pool.
  device_number device = -1;
  /// Free memory of the pool beyond this many bytes goes back to the system whenever a stream, an event or
  /// the device is waited for. The driver's own default is 0: everything goes each time, and is asked for
  /// anew.
  std::size_t release_threshold_bytes = 512 * MiB;
};

/// Where the driver takes memory from and puts it back in the order of a stream: see `cuda::async_resource`.
///
/// A program has the device's default pool without this; one of its own is not shared with libraries, keeps
/// what it should, and can be trimmed without taking from others.
///
/// ```cpp
/// cuda::memory_pool pool{{.release_threshold_bytes = 2 * GiB}};
/// cuda::async_resource memory{pool, stream};
/// ```
/// Move-only; a moved-from pool is empty and may only be destroyed or assigned to. Thread-safety: any thread,
/// but for moving and destroying it.
class memory_pool {
 public:
  /// An empty pool. @throws cuda_error if the driver refuses, because there is no device for example,
  /// out_of_memory if that is for want of memory; then there is no pool.
  explicit memory_pool(memory_pool_options const& options = {}, driver& driver = default_driver());
  memory_pool(memory_pool&& other) noexcept
      : driver_{other.driver_}, device_{other.device_}, handle_{std::exchange(other.handle_, nullptr)} {}
  memory_pool& operator=(memory_pool&& other) noexcept {
    if (this != &other) {
      destroy();
      driver_ = other.driver_;
      device_ = other.device_;
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  /// Returns at once; memory of blocks that are not freed yet goes when they are.
  ~memory_pool() { destroy(); }

  /// Gives free memory back to the system until the pool holds `keep_bytes`, or nothing that is free. What is
  /// freed on a stream counts as free when the stream has come there. @throws cuda_error; it holds then what
  /// it held.
  void trim(std::size_t keep_bytes = 0);

  /// The device whose memory it is.
  [[nodiscard]] device_number device() const noexcept { return device_; }
  /// The driver's own handle, as `cudaMemPool_t`.
  [[nodiscard]] pool_handle get() const noexcept { return handle_; }
  /// The same, for the calls that take one.
  operator pool_handle() const noexcept {
    return handle_;
  }  // NOLINT(google-explicit-constructor): as a stream

 private:
  void destroy() noexcept;

  driver* driver_;
  device_number device_;
  pool_handle handle_ = nullptr;
};

}  // namespace tidemark::cuda
