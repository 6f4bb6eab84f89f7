// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::memory_access_of`: the processors that may access a resource's memory. Owns nothing.
#pragma once

#include <type_traits>

#include <tidemark/cuda/memory/block_memory.hpp>

// Declarations only, because the trait of one resource must not need the headers of all resources.
namespace tidemark {
template <class AddressSpace>
class basic_arena;
class device_cache;
class device_pool;
class epoch_resource;
class pool;
class synchronized_pool;
class test_resource;
}  // namespace tidemark

namespace tidemark::gpu {

class async_resource;
template <block_kind Kind>
class block_resource;

/// Processors that may access a resource's memory.
enum class memory_access {
  unknown,          ///< depends on the upstream
  host,             ///< the host; devices only if they can access all host memory
  device,           ///< a device, but not the host
  host_and_device,  ///< both, as for pinned and managed memory
};

namespace detail {

template <class Space>
consteval memory_access access_of_space() {
  if constexpr (!Space::traits.host_accessible) return memory_access::device;
  if constexpr (Space::traits.device_accessible) return memory_access::host_and_device;
  return memory_access::host;
}

template <class R, class... Others>
inline constexpr bool is_one_of = (std::is_same_v<R, Others> || ...);

}  // namespace detail

/// The processors that may access the memory of an `R`, as far as its type determines them. An arena's
/// address space determines them. Pools, `test_resource` and, by default, `epoch_resource` write into their
/// memory, and the host must have access. If their upstream is pinned or managed memory, name the access
/// explicitly (`cuda_resource<pool, memory_access::host_and_device>`); do the same for an `upstream_arena`.
/// Resources that do not write into memory may have any access: `graph_arena`, `reuse_cache`, adaptors,
/// `std::pmr::memory_resource`. Specialise the trait for your own resource.
template <class R>
inline constexpr memory_access memory_access_of =
    detail::is_one_of<R, async_resource, device_pool, device_cache>                ? memory_access::device
    : detail::is_one_of<R, pool, synchronized_pool, epoch_resource, test_resource> ? memory_access::host
                                                                                   : memory_access::unknown;
template <class Space>
inline constexpr memory_access memory_access_of<basic_arena<Space>> = detail::access_of_space<Space>();
template <block_kind Kind>
inline constexpr memory_access memory_access_of<block_resource<Kind>> =
    Kind == block_kind::device ? memory_access::device : memory_access::host_and_device;

}  // namespace tidemark::gpu
