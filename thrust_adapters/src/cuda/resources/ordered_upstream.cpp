// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/driver/stream_order.hpp>
#include <tidemark/cuda/memory/async_resource.hpp>
#include <tidemark/cuda/resources/device_arena.hpp>
#include <tidemark/cuda/resources/device_cache.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>

#include "completed_options.hpp"

namespace tidemark::gpu::detail {
namespace {

template <stream_bound... Resources>
bool is_one_of(std::pmr::memory_resource const& resource, stream_handle stream) noexcept {
  const auto is = [&](auto const* as) { return as != nullptr && is_same_stream(as->stream(), stream); };
  return (is(dynamic_cast<Resources const*>(&resource)) || ...);
}

}  // namespace

bool is_ordered_by(std::pmr::memory_resource const& upstream, stream_handle stream) noexcept {
  if (auto const* const says = dynamic_cast<stream_ordered const*>(&upstream))
    return says->is_ordered_by(stream);
  return is_one_of<async_resource, device_arena, device_cache, device_pool>(upstream, stream);
}

}  // namespace tidemark::gpu::detail
