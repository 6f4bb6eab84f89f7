// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::stream`: a queue of a device's work. Owns the driver's stream.
#pragma once

#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu {

/// A stream that does not wait for the default stream. Functions of tidemark take its handle, so that they
/// accept any `cudaStream_t`.
///
/// Move-only; a moved-from stream has the handle of the default stream. Thread-safety: any thread, except
/// for moving and destroying it.
class stream {
 public:
  /// A new stream of the current device. @throws cuda_error.
  explicit stream(driver& driver = default_driver()) : handle_{driver} {
    const detail::relaxed_mode creating{driver};
    require_success(driver, "cuStreamCreate", driver.create_stream(handle_.out()));
  }

  /// Returns when all work on it has ended. @throws cuda_error, also of that work.
  void synchronize() const {
    const detail::relaxed_mode waiting{handle_.calls()};
    require_success(handle_.calls(), "cuStreamSynchronize", handle_.calls().synchronize(get()));
  }
  /// Later work on it waits for `event`. @throws cuda_error.
  void wait(event_handle event) const {
    const detail::relaxed_mode ordering{handle_.calls()};
    require_success(handle_.calls(), "cuStreamWaitEvent", handle_.calls().wait(get(), event));
  }

  /// The driver's handle, as `cudaStream_t`.
  [[nodiscard]] stream_handle get() const noexcept { return handle_.get(); }
  /// The same, implicitly, as Thrust's and RMM's streams.
  operator stream_handle() const noexcept { return get(); }  // NOLINT(google-explicit-constructor)

 private:
  // Destroyed at once; the driver keeps the stream until its work has ended.
  detail::unique_handle<stream_handle, &driver::destroy_stream> handle_;
};

}  // namespace tidemark::gpu
