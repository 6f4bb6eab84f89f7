// SPDX-License-Identifier: Apache-2.0
/// @file
/// `stream_policy`: an execution policy of Thrust's CUDA system that works in captures, too. Owns nothing.
#pragma once

#include <tidemark/thrust/detail/backend.hpp>

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA

#include <thrust/system/cuda/execution_policy.h>

#include <tidemark/cuda/detail/capturing.hpp>
#include <tidemark/cuda/driver.hpp>

namespace tidemark::detail {
inline namespace TIDEMARK_THRUST_SYSTEM {

/// As `thrust::cuda::par.on(stream)` and `thrust::cuda::par_nosync.on(stream)` are, which differ in type:
/// this one decides when it is used. The two friends are Thrust's points of customisation for that.
template <class Derived>
class stream_policy_base : public ::thrust::cuda_cub::execution_policy<Derived> {
 public:
  TIDEMARK_HOST_DEVICE stream_policy_base(cudaStream_t stream, bool waits) noexcept
      : stream_{stream}, waits_{waits} {}

  [[nodiscard]] TIDEMARK_HOST_DEVICE cudaStream_t stream() const noexcept { return stream_; }

 private:
  TIDEMARK_HOST_DEVICE friend cudaStream_t get_stream(stream_policy_base const& policy) noexcept {
    return policy.stream_;
  }
  TIDEMARK_HOST_DEVICE friend bool must_perform_optional_stream_synchronization(
      stream_policy_base const& policy) noexcept {
    return policy.waits_;
  }

  cudaStream_t stream_;
  bool waits_;  // an algorithm returns after its work, and not as soon as that is put on the stream
};

struct stream_policy : stream_policy_base<stream_policy> {
  using stream_policy_base<stream_policy>::stream_policy_base;
};

/// A vector that is copied or grows asks whose work the copy within the device is: that of the pointers,
/// which know of no stream, or the allocator's. Thrust's own answer is the pointers', the default stream.
[[nodiscard]] TIDEMARK_HOST_DEVICE inline stream_policy& select_system(::thrust::cuda_cub::tag&,
                                                                       stream_policy& policy) noexcept {
  return policy;
}

/// Whether work on a stream may be waited for: not while it is captured. The default stream never is, and to
/// ask it is an error where another stream is captured.
[[nodiscard]] inline bool may_wait_for(cuda::stream_handle stream) noexcept {
  return stream == nullptr || stream == cudaStreamLegacy ||
         !cuda::detail::is_capturing(cuda::default_driver(), stream);
}

}  // namespace TIDEMARK_THRUST_SYSTEM
}  // namespace tidemark::detail

#endif
