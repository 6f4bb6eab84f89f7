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
/// Thrust's CPP, OMP and TBB systems the memory is on the host.
///
/// ```cpp
/// device_arena step{{.reserve = 16 * GiB}, stream};
/// device_arena::scope scope{step};
/// device_vector<float> x(n, 1.0f, &step), y(n, &step);
/// thrust::transform(par(step), x.begin(), x.end(), y.begin(), square{});
/// ```
/// `thrust_allocator` describes copies, moves and streams.
template <class T, class R = std::pmr::memory_resource>
using device_vector = ::thrust::device_vector<T, thrust_allocator<T, R>>;

/// `thrust::universal_vector` on memory that host and device may access: `managed_arena`,
/// `gpu::managed_resource`, or a pool on one. The host reads and writes elements without a copy, after the
/// work on them has ended.
template <class T, class R = std::pmr::memory_resource>
using universal_vector = ::thrust::universal_vector<T, thrust_allocator<T, R, ::thrust::universal_ptr<void>>>;

/// `thrust::host_vector` on a resource of the host. With `pinned_arena` or `gpu::pinned_resource`, copies to
/// a device are asynchronous. A resource whose type has only device access does not compile.
template <class T, class R = std::pmr::memory_resource>
using host_vector = ::thrust::host_vector<T, thrust_allocator<T, R, void*>>;

}  // namespace TIDEMARK_THRUST_SYSTEM
}  // namespace tidemark
