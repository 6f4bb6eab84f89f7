// SPDX-License-Identifier: Apache-2.0
/// @file
/// `nccl_error`: the exception of a failed call of NCCL. Owns its text.
#pragma once

#include <exception>

#include <tidemark/cuda/nccl/nccl.hpp>

namespace tidemark {

/// Thrown for any error of NCCL except missing memory, which is `out_of_memory`. The throwing function
/// documents the state after the error.
class nccl_error final : public std::exception {
 public:
  /// @param call NCCL's name of the call; must be valid until the program ends
  nccl_error(gpu::nccl& nccl, char const* call, gpu::nccl_status result) noexcept;

  /// Returns one sentence: `ncclMemAlloc: NCCL is not installed (libnccl.so.2 cannot be loaded: …)`.
  [[nodiscard]] char const* what() const noexcept override { return message_; }
  /// Returns the call.
  [[nodiscard]] char const* call() const noexcept { return call_; }
  /// Returns NCCL's result.
  [[nodiscard]] gpu::nccl_status status() const noexcept { return status_; }

 private:
  gpu::nccl_status status_;
  char const* call_;
  char message_[512];  // inside the object, because a throw must not need memory
};

namespace gpu {

/// Throws `nccl_error` unless `result` is success.
inline void require_success(nccl& nccl, char const* call, nccl_status result) {
  if (result != nccl_status::success) [[unlikely]]
    throw nccl_error{nccl, call, result};
}

}  // namespace gpu
}  // namespace tidemark
