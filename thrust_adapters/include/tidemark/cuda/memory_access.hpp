// SPDX-License-Identifier: Apache-2.0
/// @file
/// `cuda::memory_access_of`: who may touch what a resource hands out. Owns nothing.
#pragma once

#include <tidemark/cuda/block_kind.hpp>

// Only named here, so that whoever asks about one resource does not include all.
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

namespace tidemark::cuda {

class async_resource;
template <block_kind Kind>
class block_resource;

/// Who may touch a resource's memory.
enum class memory_access {
  unknown,          ///< the type does not tell: that is a matter of its upstream
  host,             ///< the host; devices only where they reach all of its memory
  device,           ///< a device, and not the host
  host_and_device,  ///< both: pinned and managed memory
};

namespace detail {

template <class Space>
consteval memory_access access_of_space() {
  if constexpr (!Space::host_accessible) return memory_access::device;
  if constexpr (requires { requires Space::device_accessible; }) return memory_access::host_and_device;
  return memory_access::host;
}

template <block_kind Kind>
inline constexpr memory_access access_of_blocks =
    Kind == block_kind::device ? memory_access::device : memory_access::host_and_device;

}  // namespace detail

/// Who may touch what an `R` hands out, as far as its type tells. Of an arena that is what its address space
/// says. Pools, `test_resource` and, unless its options say otherwise, `epoch_resource` write into their
/// memory, so that it is the host's at least; where their upstream is pinned or managed memory, say so to
/// those who ask (`cuda_resource<pool, memory_access::host_and_device>`), and likewise of an
/// `upstream_arena`. Resources that leave memory alone may have any: `graph_arena`, `reuse_cache`, adaptors,
/// `std::pmr::memory_resource`. Specialise it for a resource of your own.
template <class R>
inline constexpr memory_access memory_access_of = memory_access::unknown;
template <class Space>
inline constexpr memory_access memory_access_of<basic_arena<Space>> = detail::access_of_space<Space>();
template <block_kind Kind>
inline constexpr memory_access memory_access_of<block_resource<Kind>> = detail::access_of_blocks<Kind>;
template <>
inline constexpr memory_access memory_access_of<async_resource> = memory_access::device;
template <>
inline constexpr memory_access memory_access_of<device_pool> = memory_access::device;
template <>
inline constexpr memory_access memory_access_of<device_cache> = memory_access::device;
template <>
inline constexpr memory_access memory_access_of<pool> = memory_access::host;
template <>
inline constexpr memory_access memory_access_of<synchronized_pool> = memory_access::host;
template <>
inline constexpr memory_access memory_access_of<epoch_resource> = memory_access::host;
template <>
inline constexpr memory_access memory_access_of<test_resource> = memory_access::host;

}  // namespace tidemark::cuda
