// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/memory/block_resource.hpp>

#include <tidemark/core/violation.hpp>

#include "../driver/driver_errors.hpp"
#include "driver_block.hpp"

namespace tidemark::gpu {

template <block_kind Kind>
block_resource<Kind>::block_resource(block_resource_options const& options, driver& driver)
    : driver_resource{"block_resource",
                      options.name != nullptr ? options.name : detail::calls_of<Kind>.name,
                      options.device,
                      driver,
                      Kind == block_kind::pinned ? counting::none : counting::counted,
                      check_level >= 1} {}

template <block_kind Kind>
detail::outcome block_resource<Kind>::allocate_block(std::size_t bytes, std::uintptr_t& block) noexcept {
  return detail::allocate_block(detail::calls_of<Kind>, *driver_, device(), bytes, block);
}

template <block_kind Kind>
detail::outcome block_resource<Kind>::free_block(std::uintptr_t block, std::size_t) noexcept {
  return detail::free_block(detail::calls_of<Kind>, *driver_, device(), block);
}

// The driver has no number for memory that is not the device's.
template <block_kind Kind>
std::size_t block_resource<Kind>::largest_bytes() const noexcept {
  if constexpr (Kind != block_kind::device) return exhaustion_report::unknown_bytes;
  const detail::on_device here{*driver_, device()};
  return here.result() == status::success ? detail::free_bytes(*driver_) : exhaustion_report::unknown_bytes;
}

template class block_resource<block_kind::device>;
template class block_resource<block_kind::pinned>;
template class block_resource<block_kind::managed>;

}  // namespace tidemark::gpu
