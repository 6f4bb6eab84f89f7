// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/memory/detail/waiting_upstream.hpp>

#include <optional>

#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>

namespace tidemark::gpu::detail {
waiting_upstream::~waiting_upstream() {
  return_waiting();
  if (const std::size_t bytes = waiting_.bytes(); bytes != 0) {
    tidemark::detail::report_violation(
        violation_kind::open_capture, name_,
        "%s: destroyed while its stream cannot be waited for, as in a capture: "
        "%zu bytes that its work may use are lost",
        name_, bytes);
  }
}

void* waiting_upstream::allocate(std::size_t bytes, std::size_t align) {
  return_waiting();
  waiting_.add();
  try {
    return upstream_->allocate(bytes, align);
  } catch (...) {
    waiting_.remove();
    throw;
  }
}

void waiting_upstream::deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
  waiting_.push({block, bytes, align});
  return_waiting();
}

// Waits for each block, because another thread may add a block behind newer work. A wait for an idle stream
// is cheap.
void waiting_upstream::return_waiting() noexcept {
  while (const std::optional<waiting_blocks::block> next = waiting_.pop()) {
    const on_device here{*driver_, device_};
    if (capture_state_of(*driver_, stream_) != capture_state::none ||
        !shows_end_of_work(driver_->synchronize(stream_)))
      return waiting_.push(*next);
    upstream_->deallocate(next->first, next->bytes, next->align);
    waiting_.remove();
  }
}

}  // namespace tidemark::gpu::detail
