// SPDX-License-Identifier: Apache-2.0
// Completes the options of a device's pool and cache, and selects their upstream.
#pragma once

#include <memory_resource>
#include <optional>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/memory/detail/waiting_upstream.hpp>

#include "../driver/driver_errors.hpp"

namespace tidemark::gpu::detail {

/// Replaces a null name by the default, a negative device by the current device, and a null bookkeeping
/// resource by `new` and `delete`. @throws as `device_or_current`.
template <class Options>
void complete(Options& options, driver& driver) {
  if (options.name == nullptr) options.name = Options{}.name;
  options.device = device_or_current(driver, options.device, options.name);
  if (options.bookkeeping == nullptr) options.bookkeeping = std::pmr::new_delete_resource();
}

/// Returns true if the upstream is a resource of the stream: only later work of the stream gets returned
/// memory. False if this is unknown.
[[nodiscard]] bool is_ordered_by(std::pmr::memory_resource const& upstream, stream_handle stream) noexcept;

/// Returns the upstream of a cache or a pool. If the stream does not order the upstream of the options,
/// returns a `waiting_upstream` on it, made in `made`. @param options complete options with an upstream
template <class Options>
[[nodiscard]] std::pmr::memory_resource* ordered_upstream(std::optional<waiting_upstream>& made,
                                                          Options const& options, driver& driver) {
  if (is_ordered_by(*options.upstream, options.stream)) return options.upstream;
  return &made.emplace(options.upstream, options.device, options.stream, options.name, options.bookkeeping,
                       driver);
}

}  // namespace tidemark::gpu::detail
