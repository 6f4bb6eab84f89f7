// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/resources/device_pool.hpp>

#include <tidemark/cuda/driver/detail/driver_state.hpp>

#include "../driver/behind_event.hpp"
#include "completed_options.hpp"

namespace tidemark {
namespace {

device_pool_options completed(device_pool_options options, gpu::driver& driver) {
  gpu::detail::complete(options, driver);
  gpu::detail::require_one_stream("device_pool", options.name, options.stream);
  return options;
}

}  // namespace

template class detail::basic_pool<gpu::detail::device_heap>;

device_pool::device_pool(device_pool_options const& options, gpu::driver& driver)
    : device_pool{complete_options{completed(options, driver)}, driver} {}

device_pool::device_pool(complete_options const& options, gpu::driver& driver)
    : basic_pool{options.keeps_addresses ? device_pool_options{}.max_cached_bytes : options.max_cached_bytes,
                 options.name, options, driver},
      driver_{&driver},
      options_{options} {}

void device_pool::deallocate_after(void* block, std::size_t bytes, std::size_t align,
                                   gpu::event_handle event) noexcept {
  if (block == nullptr) return;
  const gpu::detail::on_device here{*driver_, options_.device};
  if (gpu::detail::put_behind(*driver_, options_.stream, event, name(), bytes))
    deallocate(block, bytes, align);
}

void device_pool::deallocate_after(void* block, std::size_t bytes, std::size_t align,
                                   gpu::stream_handle last_used_on) noexcept {
  if (block == nullptr) return;
  const gpu::detail::on_device here{*driver_, options_.device};
  if (gpu::detail::put_behind(*driver_, options_.stream, last_used_on, name(), bytes))
    deallocate(block, bytes, align);
}

}  // namespace tidemark
