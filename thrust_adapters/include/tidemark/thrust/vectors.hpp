// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_vector`, `universal_vector`, `host_vector`: Thrust's vectors on resources of tidemark. They own
/// their memory.
#pragma once

#include <memory_resource>

#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/universal_ptr.h>
#include <thrust/universal_vector.h>

#include <tidemark/thrust/thrust_allocator.hpp>

namespace tidemark {
inline namespace TIDEMARK_THRUST_SYSTEM {

/// `thrust::device_vector` on a resource, whose address is the last argument of its constructors. With
/// Thrust's CPP, OMP and TBB systems the memory is the host's.
///
/// ```cpp
/// device_arena step{{.reserve = 16 * GiB}, stream};
/// basic_arena_scope scope{step};
/// device_vector<float> x(n, 1.0f, &step), y(n, &step);
/// thrust::transform(policy(step), x.begin(), x.end(), y.begin(), square{});
/// ```
/// What holds for copies, moves and streams is in `thrust_allocator`.
template <class T, class R = std::pmr::memory_resource>
using device_vector = ::thrust::device_vector<T, thrust_allocator<T, R>>;

/// `thrust::universal_vector` on a resource of memory that host and device may touch: `managed_arena`,
/// `cuda::managed_resource`, or a pool on one. Elements are read and written on the host without a copy, once
/// the work on them has ended.
template <class T, class R = std::pmr::memory_resource>
using universal_vector = ::thrust::universal_vector<T, thrust_allocator<T, R, ::thrust::universal_ptr<void>>>;

/// `thrust::host_vector` on a resource of the host: with `pinned_arena` or `cuda::pinned_resource` memory
/// from which copies to a device go on beside the host. A resource that only a device may touch does not
/// compile, as far as its type tells.
template <class T, class R = std::pmr::memory_resource>
using host_vector = ::thrust::host_vector<T, thrust_allocator<T, R, void*>>;

}  // namespace TIDEMARK_THRUST_SYSTEM
}  // namespace tidemark
