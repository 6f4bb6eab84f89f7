// SPDX-License-Identifier: Apache-2.0
/// @file
/// `stream_policy`: an execution policy of Thrust's CUDA system that also works in captures. Owns nothing.
#pragma once

#include <tidemark/thrust/detail/backend.hpp>

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA

#include <thrust/system/cuda/execution_policy.h>

#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::detail {
inline namespace TIDEMARK_THRUST_SYSTEM {

/// `thrust::cuda::par.on(stream)` or `thrust::cuda::par_nosync.on(stream)`, chosen at run time.
/// Argument-dependent lookup finds the two friends, which implement customisation points of Thrust.
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
  bool waits_;  // true if an algorithm returns after its work has ended
};

struct stream_policy : stream_policy_base<stream_policy> {
  using stream_policy_base<stream_policy>::stream_policy_base;
};

/// Selects the allocator's policy for copies of a vector's elements. Thrust would otherwise select the policy
/// of the pointers, which uses the default stream.
[[nodiscard]] TIDEMARK_HOST_DEVICE inline stream_policy& select_system(::thrust::cuda_cub::tag&,
                                                                       stream_policy& policy) noexcept {
  return policy;
}

/// Returns true if a thread may wait for a stream. It may not while the stream is captured. It may not wait
/// for the legacy default stream while a blocking stream is captured, because the wait would end the capture.
[[nodiscard]] inline bool may_wait_for(gpu::stream_handle stream) noexcept {
  using gpu::detail::capture_state;
  return gpu::detail::capture_state_of(gpu::default_driver(), stream) == capture_state::none;
}

}  // namespace TIDEMARK_THRUST_SYSTEM
}  // namespace tidemark::detail

#endif
