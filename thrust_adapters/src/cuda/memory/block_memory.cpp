// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/memory/block_memory.hpp>

#include <algorithm>
#include <limits>

#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>

#include "../driver/behind_event.hpp"
#include "../driver/driver_errors.hpp"
#include "driver_block.hpp"

namespace tidemark::gpu {

template <block_kind Kind>
byte_range basic_block_memory<Kind>::reserve(std::size_t least_bytes, std::size_t wanted_bytes) {
  const std::size_t bytes = std::max(least_bytes, wanted_bytes);
  if (!block_.empty() || bytes > std::numeric_limits<std::size_t>::max() / 2) return {};
  if (device_ < 0) {
    const status found = driver_->current_device(device_);
    if (found == status::out_of_memory) return {};
    require_success(*driver_, "cuCtxGetDevice", found);
  }
  std::uintptr_t first = 0;
  const auto take = [&]() -> detail::outcome {
    device_budget::claim claim{driver_->budget(device_), Kind != block_kind::pinned ? bytes : 0};
    if (Kind != block_kind::pinned && !claim.is_allowed()) return {status::out_of_memory, ""};
    const detail::outcome taken =
        detail::allocate_block(detail::calls_of<Kind>, *driver_, device_, bytes, first);
    if (taken.good()) claim.keep();
    return taken;
  };
  detail::outcome taken = take();
  if (taken.result == status::out_of_memory && Kind != block_kind::pinned &&
      driver_->budget(device_).relieve())
    taken = take();
  if (taken.result == status::out_of_memory) return {};
  require_success(*driver_, taken.call, taken.result);
  block_ = {first, bytes};
  return block_;
}

template <block_kind Kind>
void basic_block_memory<Kind>::release(byte_range range) noexcept {
  block_ = {};
  const detail::outcome freed = detail::free_block(detail::calls_of<Kind>, *driver_, device_, range.begin);
  if (freed.good()) {
    if (Kind != block_kind::pinned) driver_->budget(device_).give(range.size);
    return;
  }
  detail::report_lost(*driver_, detail::calls_of<Kind>.name, freed.call, freed.result, range.size);
}

template <block_kind Kind>
void basic_block_memory<Kind>::wait_before_reuse(event_handle event) noexcept {
  detail::require_waited(*driver_, detail::calls_of<Kind>.name, detail::wait_for(*driver_, event));
}

template <block_kind Kind>
void basic_block_memory<Kind>::wait_before_reuse(stream_handle last_used_on) noexcept {
  if (device_ < 0) return;  // there was no block to use
  const detail::on_device here{*driver_, device_};
  detail::require_waited(*driver_, detail::calls_of<Kind>.name, detail::wait_for(*driver_, last_used_on));
}

template class basic_block_memory<block_kind::device>;
template class basic_block_memory<block_kind::pinned>;
template class basic_block_memory<block_kind::managed>;

}  // namespace tidemark::gpu
