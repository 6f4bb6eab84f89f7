// SPDX-License-Identifier: Apache-2.0
/// @file
/// `cuda::stream`: a queue of a device's work. Owns the driver's stream.
#pragma once

#include <utility>

#include <tidemark/cuda/cuda_error.hpp>
#include <tidemark/cuda/driver.hpp>

namespace tidemark::cuda {

/// A stream that does not wait for the default stream. Where tidemark takes a stream it takes the handle, so
/// that a `cudaStream_t` of anybody's will do.
///
/// Move-only; a moved-from stream is empty: the default stream for whoever takes its handle. Thread-safety:
/// any thread, but for moving and destroying it.
class stream {
 public:
  /// A new stream of the current device. @throws cuda_error.
  explicit stream(driver& driver = default_driver()) : driver_{&driver} {
    require(driver, "cuStreamCreate", driver.create_stream(handle_));
  }
  stream(stream&& other) noexcept : driver_{other.driver_}, handle_{std::exchange(other.handle_, nullptr)} {}
  stream& operator=(stream&& other) noexcept {
    if (this != &other) {
      destroy();
      driver_ = other.driver_;
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  /// Returns at once; the driver destroys the stream when its work has ended.
  ~stream() { destroy(); }

  /// Returns when all work on it has ended. @throws cuda_error of that work, too.
  void synchronize() const { require(*driver_, "cuStreamSynchronize", driver_->synchronize(handle_)); }
  /// Later work on it waits for `event`. @throws cuda_error.
  void wait(event_handle event) const {
    require(*driver_, "cuStreamWaitEvent", driver_->wait(handle_, event));
  }

  /// The driver's own handle, as `cudaStream_t`.
  [[nodiscard]] stream_handle get() const noexcept { return handle_; }
  /// The same, for the calls that take one.
  // Implicit, as Thrust's and RMM's are.
  operator stream_handle() const noexcept { return handle_; }  // NOLINT(google-explicit-constructor)

 private:
  void destroy() noexcept {
    if (handle_ != nullptr) (void)driver_->destroy_stream(handle_);
  }

  driver* driver_;
  stream_handle handle_ = nullptr;
};

}  // namespace tidemark::cuda
