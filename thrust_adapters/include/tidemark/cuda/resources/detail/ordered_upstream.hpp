// SPDX-License-Identifier: Apache-2.0
/// @file
/// `ordered_upstream`: what a cache or a pool calls for memory. Owns nothing.
#pragma once

#include <memory_resource>
#include <optional>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/memory/detail/waiting_upstream.hpp>

namespace tidemark::gpu::detail {

/// Whether what is returned to an upstream goes to later work of the stream only: it is a resource of that
/// stream. False if that is not known.
[[nodiscard]] bool is_ordered_by(std::pmr::memory_resource const& upstream, stream_handle stream) noexcept;

/// What a cache or a pool calls for memory: the upstream of its options, or that behind a `waiting_upstream`
/// made in `made` if the stream does not order it. @param options complete, with an upstream.
template <class Options>
[[nodiscard]] std::pmr::memory_resource* ordered_upstream(std::optional<waiting_upstream>& made,
                                                          Options const& options, driver& driver) {
  if (options.upstream_is_ordered.value_or(is_ordered_by(*options.upstream, options.stream)))
    return options.upstream;
  return &made.emplace(options.upstream, options.device, options.stream, options.name, options.bookkeeping,
                       driver);
}

}  // namespace tidemark::gpu::detail
