// SPDX-License-Identifier: Apache-2.0
// CCCL's names for its resources, for both generations: `resource` was the resource without streams before
// 3.1, and is the resource with streams since.
#pragma once

#include <cstddef>

#include <tidemark/thrust/cuda_resource.hpp>

namespace tidemark::test {

namespace mr = ::cuda::mr;

#if CCCL_VERSION < 3001000

template <class M>
concept stream_ordered = mr::async_resource<M>;
template <class M, class... Properties>
concept synchronous_with = mr::resource_with<M, Properties...>;
template <class M, class... Properties>
concept stream_ordered_with = mr::async_resource_with<M, Properties...>;
template <class... Properties>
using synchronous_ref = mr::resource_ref<Properties...>;
template <class... Properties>
using stream_ordered_ref = mr::async_resource_ref<Properties...>;

#else

template <class M>
concept stream_ordered = mr::resource<M>;
template <class M, class... Properties>
concept synchronous_with = mr::synchronous_resource_with<M, Properties...>;
template <class M, class... Properties>
concept stream_ordered_with = mr::resource_with<M, Properties...>;
template <class... Properties>
using synchronous_ref = mr::synchronous_resource_ref<Properties...>;
template <class... Properties>
using stream_ordered_ref = mr::resource_ref<Properties...>;

#endif

template <class M>
[[nodiscard]] void* allocate_of(M& source, std::size_t bytes, std::size_t align) {
#if CCCL_VERSION < 3001000
  return source.allocate(bytes, align);
#else
  return source.allocate_sync(bytes, align);
#endif
}
template <class M>
void deallocate_of(M& source, void* block, std::size_t bytes, std::size_t align) {
#if CCCL_VERSION < 3001000
  source.deallocate(block, bytes, align);
#else
  source.deallocate_sync(block, bytes, align);
#endif
}
template <class M>
[[nodiscard]] void* allocate_of(M& source, ::cuda::stream_ref stream, std::size_t bytes, std::size_t align) {
#if CCCL_VERSION < 3001000
  return source.allocate_async(bytes, align, stream);
#else
  return source.allocate(stream, bytes, align);
#endif
}
template <class M>
void deallocate_of(M& source, ::cuda::stream_ref stream, void* block, std::size_t bytes, std::size_t align) {
#if CCCL_VERSION < 3001000
  source.deallocate_async(block, bytes, align, stream);
#else
  source.deallocate(stream, block, bytes, align);
#endif
}

}  // namespace tidemark::test
