// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/block_memory.hpp>

#include <algorithm>
#include <limits>

#include <tidemark/cuda/cuda_error.hpp>

#include "behind_event.hpp"
#include "driver_block.hpp"
#include "refusal.hpp"

namespace tidemark::cuda {

template <block_kind Kind>
byte_range basic_block_memory<Kind>::reserve(std::size_t least_bytes, std::size_t wanted_bytes) {
  const std::size_t bytes = std::max(least_bytes, wanted_bytes);
  if (!block_.empty() || bytes > std::numeric_limits<std::size_t>::max() / 2) return {};
  status taken = device_ < 0 ? driver_->current_device(device_) : status::success;
  char const* call = "cuCtxGetDevice";
  std::uintptr_t first = 0;
  if (taken == status::success) {
    taken = detail::allocate_block(Kind, *driver_, device_, bytes, first);
    call = detail::allocating_call(Kind);
  }
  if (taken == status::out_of_memory) return {};
  require(*driver_, call, taken);
  block_ = {first, bytes};
  return block_;
}

template <block_kind Kind>
void basic_block_memory<Kind>::release(byte_range range) noexcept {
  block_ = {};
  const status freed = detail::free_block(Kind, *driver_, device_, range.begin);
  if (freed == status::success) return;
  detail::report_lost(*driver_, detail::name_of(Kind), detail::freeing_call(Kind), freed, range.size);
}

template <block_kind Kind>
void basic_block_memory<Kind>::wait_before_reuse(event_handle event) noexcept {
  detail::require_waited(*driver_, detail::name_of(Kind), detail::wait_for(*driver_, event));
}

template class basic_block_memory<block_kind::device>;
template class basic_block_memory<block_kind::pinned>;
template class basic_block_memory<block_kind::managed>;

}  // namespace tidemark::cuda
