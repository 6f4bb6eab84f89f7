// SPDX-License-Identifier: Apache-2.0
/// @file
/// `cuda_error`: the exception of a failed call of the CUDA driver.
#pragma once

#include <exception>

#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark {

/// Thrown for any error of the driver except missing memory, which is `out_of_memory`. The throwing function
/// documents the state after the error.
class cuda_error final : public std::exception {
 public:
  /// @param call the driver's name of the call, with arguments if they help; truncated to 127 characters
  cuda_error(gpu::driver& driver, char const* call, gpu::status result) noexcept;

  /// Returns one sentence:
  /// `cuStreamEndCapture: CUDA_ERROR_STREAM_CAPTURE_INVALIDATED (operation failed due to ...)`.
  [[nodiscard]] char const* what() const noexcept override { return message_; }
  /// Returns the call.
  [[nodiscard]] char const* call() const noexcept { return call_; }
  /// Returns the driver's result.
  [[nodiscard]] gpu::status status() const noexcept { return status_; }
  /// Returns the name of the result, such as "CUDA_ERROR_INVALID_VALUE". Valid as long as the driver.
  [[nodiscard]] char const* name() const noexcept { return name_; }
  /// Returns the driver's description of the result. Valid as long as the driver.
  [[nodiscard]] char const* string() const noexcept { return string_; }

 private:
  gpu::status status_;
  char const* name_;
  char const* string_;
  char call_[128];
  char message_[384];  // inside the object, because a throw must not need memory
};

namespace gpu {

/// Throws `cuda_error` unless `result` is success.
inline void require_success(driver& driver, char const* call, status result) {
  if (result != status::success) [[unlikely]]
    throw cuda_error{driver, call, result};
}

}  // namespace gpu
}  // namespace tidemark
