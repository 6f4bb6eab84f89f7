// SPDX-License-Identifier: Apache-2.0
// Options of a device's pool and cache as they hold, and the upstream that they call.
#pragma once

#include <memory_resource>
#include <optional>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/memory/detail/waiting_upstream.hpp>

#include "../driver/driver_errors.hpp"

namespace tidemark::gpu::detail {

/// Replaces what was left out: null names, which messages print, by the default; the device by the current
/// one; the bookkeeping resource by `new` and `delete`. @throws as `device_or_current`.
template <class Options>
void complete(Options& options, driver& driver) {
  if (options.name == nullptr) options.name = Options{}.name;
  options.device = device_or_current(driver, options.device, options.name);
  if (options.bookkeeping == nullptr) options.bookkeeping = std::pmr::new_delete_resource();
}

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
