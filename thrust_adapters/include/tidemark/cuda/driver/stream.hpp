// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::stream`: a queue of a device's work. Owns the driver's stream.
#pragma once

#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu {

/// A stream that does not wait for the default stream. tidemark's functions take its handle, and therefore
/// any `cudaStream_t`.
///
/// Move-only; a moved-from stream has the handle of the default stream. Thread-safety: any thread, except for
/// move and destruction.
class stream {
 public:
  /// Makes a stream of the current device. @throws cuda_error.
  explicit stream(driver& driver = default_driver()) : handle_{driver} {
    const detail::relaxed_mode creating{driver};
    require_success(driver, "cuStreamCreate", driver.create_stream(handle_.out()));
  }

  /// Waits until all work on the stream has ended. @throws cuda_error, also for errors of the work.
  void synchronize() const {
    const detail::relaxed_mode waiting{handle_.calls()};
    require_success(handle_.calls(), "cuStreamSynchronize", handle_.calls().synchronize(get()));
  }
  /// Makes later work on the stream wait for `event`. @throws cuda_error.
  void wait(event_handle event) const {
    const detail::relaxed_mode ordering{handle_.calls()};
    require_success(handle_.calls(), "cuStreamWaitEvent", handle_.calls().wait(get(), event));
  }

  /// Returns the driver's handle, as `cudaStream_t`.
  [[nodiscard]] stream_handle get() const noexcept { return handle_.get(); }
  /// Converts to the driver's handle, as Thrust's and RMM's streams do.
  operator stream_handle() const noexcept { return get(); }  // NOLINT(google-explicit-constructor)

 private:
  // Destroyed at once; the driver keeps the stream until its work has ended.
  detail::unique_handle<stream_handle, &driver::destroy_stream> handle_;
};

}  // namespace tidemark::gpu
