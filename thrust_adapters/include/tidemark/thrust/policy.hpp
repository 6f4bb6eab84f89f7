// SPDX-License-Identifier: Apache-2.0
/// @file
/// `policy`, `nosync_policy`: Thrust's algorithms with their temporaries in a resource of tidemark. Own
/// nothing.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <stdexcept>

#include <thrust/detail/execute_with_allocator.h>
#include <thrust/execution_policy.h>

#include <tidemark/cuda/driver.hpp>
#include <tidemark/cuda/stream_order.hpp>
#include <tidemark/thrust/detail/backend.hpp>
#include <tidemark/thrust/detail/omp_temporaries.hpp>
#include <tidemark/thrust/detail/stream_policy.hpp>
#include <tidemark/thrust/thrust_allocator.hpp>

namespace tidemark {
namespace detail {
inline namespace TIDEMARK_THRUST_SYSTEM {

template <class R>
cuda::stream_handle stream_for(R const& resource, cuda::stream_handle stream) {
  if constexpr (cuda::stream_bound<R>) {
    if (resource.stream() != stream) {
      throw std::invalid_argument(
          "policy: the resource's memory is for the work of its own stream, and the algorithm is to run on "
          "another: leave the stream out, or take a resource of that stream");
    }
  }
  return stream;
}

template <class R>
auto make_policy(R& resource, cuda::stream_handle stream, [[maybe_unused]] bool waits) {
  const thrust_allocator<std::byte, R> temporaries{&resource, stream};
#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
  using with_temporaries =
      ::thrust::detail::execute_with_allocator<thrust_allocator<std::byte, R>, stream_policy_base>;
  return with_temporaries{stream_policy_base<with_temporaries>{temporaries.stream(), waits}, temporaries};
#elif THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_OMP
  return ::thrust::device(omp_temporaries<R>{temporaries});
#else
  return ::thrust::device(temporaries);
#endif
}

}  // namespace TIDEMARK_THRUST_SYSTEM
}  // namespace detail

inline namespace TIDEMARK_THRUST_SYSTEM {

/// An execution policy for Thrust's algorithms on device vectors: their temporaries come from `resource`, and
/// not from `cudaMalloc`, which is most of what a short algorithm costs. With CUDA they run on `stream`.
///
/// ```cpp
/// device_arena step{{.reserve = 16 * GiB}, stream};
/// for (int i = 0; i < 1000; ++i) {
///   basic_arena_scope scope{step};
///   thrust::sort(policy(step), keys.begin(), keys.end());  // after the first turn nothing is allocated
/// }
/// ```
/// An algorithm returns when its work has ended, as ever in Thrust. While the stream is captured when the
/// policy is made it does not wait: those that return nothing from the device can be captured then
/// (`thrust::sort`, `transform`, `for_each`, scans); those that do wait whatever the policy is, and end a
/// capture (`reduce`, `unique`, `copy_if`, `count`).
///
/// A policy is a value of a few words, good for many calls, on one thread at a time if the resource is of
/// one; with OpenMP, at the level of nested regions where it was made.
/// The resource must outlive it. With Thrust's CPP, OMP and TBB systems there are no streams, and `stream`
/// means nothing. With OMP the temporaries of sorts come from the heap: all threads of a sort take some.
/// @throws std::invalid_argument if the resource is known to be of another stream (`cuda::stream_bound`).
template <class R>
[[nodiscard]] auto policy(R& resource, cuda::stream_handle stream) {
  [[maybe_unused]] const cuda::stream_handle known = detail::stream_for(resource, stream);
#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
  return detail::make_policy(resource, known, detail::may_wait_for(known));
#else
  return detail::make_policy(resource, known, true);
#endif
}
/// The same on the resource's own stream; on the default stream where its type knows none.
template <class R>
[[nodiscard]] auto policy(R& resource) {
  return policy(resource, cuda::stream_of(resource));
}

/// As `policy`, and algorithms do not wait where Thrust need not: what comes next is put on the stream behind
/// them. So memory that they use may be given back at once if it is of the same stream, as that of
/// `device_arena` is; otherwise the stream must be waited for first.
template <class R>
[[nodiscard]] auto nosync_policy(R& resource, cuda::stream_handle stream) {
  return detail::make_policy(resource, detail::stream_for(resource, stream), false);
}
/// The same on the resource's own stream; on the default stream where its type knows none.
template <class R>
[[nodiscard]] auto nosync_policy(R& resource) {
  return nosync_policy(resource, cuda::stream_of(resource));
}

}  // namespace TIDEMARK_THRUST_SYSTEM
}  // namespace tidemark
