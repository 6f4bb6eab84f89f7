// SPDX-License-Identifier: Apache-2.0
/// @file
/// `par`, `par_nosync`: run Thrust's algorithms with temporaries in a resource of tidemark. Own nothing.
#pragma once

#include <cstddef>
#include <optional>
#include <stdexcept>

#include <thrust/detail/execute_with_allocator.h>
#include <thrust/execution_policy.h>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>
#include <tidemark/thrust/detail/backend.hpp>
#include <tidemark/thrust/detail/omp_temporaries.hpp>
#include <tidemark/thrust/detail/stream_policy.hpp>
#include <tidemark/thrust/thrust_allocator.hpp>

namespace tidemark {
namespace detail {
inline namespace TIDEMARK_THRUST_SYSTEM {

/// Returns the stream of an algorithm. @throws std::invalid_argument if the resource has another stream.
template <class R>
gpu::stream_handle stream_for(R const& resource, std::optional<gpu::stream_handle> stream) {
  const gpu::stream_handle own = gpu::stream_of(resource);
  if (gpu::stream_bound<R> && stream.value_or(own) != own) {
    throw std::invalid_argument(
        "par: the resource has another stream than the algorithm: leave the stream out, or use a resource of "
        "that stream");
  }
  return stream.value_or(own);
}

template <class R>
auto make_policy(R& resource, gpu::stream_handle stream, [[maybe_unused]] bool waits) {
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

/// Returns an execution policy for Thrust's algorithms on device vectors. Temporaries come from `resource`
/// instead of `cudaMalloc`, which is most of the cost of a short algorithm. With CUDA the algorithms run on
/// `stream`, by default the resource's own stream, or the default stream if its type has no stream.
///
/// ```cpp
/// device_arena step{{.reserve = 16 * GiB}, stream};
/// for (int i = 0; i < 1000; ++i) {
///   device_arena::scope scope{step};
///   thrust::sort(par(step), keys.begin(), keys.end());  // allocates nothing after the first iteration
/// }
/// ```
/// As always in Thrust, an algorithm returns after its work has ended. If the stream is captured when the
/// policy is made, the algorithm does not wait. Algorithms that return nothing from the device can then be
/// captured (`thrust::sort`, `transform`, `for_each`, scans). Algorithms that return a value still wait, and
/// end a capture (`reduce`, `unique`, `copy_if`, `count`).
///
/// A policy is a small value for many calls. If the resource is for one thread at a time, the policy is too.
/// With OpenMP, use it only at the nesting level at which it was made. The resource must outlive it. Thrust's
/// CPP, OMP and TBB systems have no streams and ignore `stream`. With OMP the temporaries of sorts come from
/// the heap, because all threads of a sort allocate.
/// @throws std::invalid_argument if the resource has another stream (`gpu::stream_bound`).
template <class R>
[[nodiscard]] auto par(R& resource, std::optional<gpu::stream_handle> stream = {}) {
  [[maybe_unused]] const gpu::stream_handle known = detail::stream_for(resource, stream);
#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
  return detail::make_policy(resource, known, detail::may_wait_for(known));
#else
  return detail::make_policy(resource, known, true);
#endif
}

/// As `par`, but algorithms do not wait if Thrust permits that; later work on the stream runs behind them.
/// Memory of the same stream, as of a `device_arena`, may be freed at once; otherwise wait for the stream
/// first.
template <class R>
[[nodiscard]] auto par_nosync(R& resource, std::optional<gpu::stream_handle> stream = {}) {
  return detail::make_policy(resource, detail::stream_for(resource, stream), false);
}

}  // namespace TIDEMARK_THRUST_SYSTEM
}  // namespace tidemark
