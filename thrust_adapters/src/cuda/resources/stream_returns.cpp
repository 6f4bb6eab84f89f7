// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/resources/detail/stream_returns.hpp>

#include <mutex>
#include <optional>
#include <utility>

#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>

#include "../driver/driver_errors.hpp"

namespace tidemark::gpu::detail {

void stream_returns::route_return(returned_block const& block, stream_handle last_used_on) noexcept {
  const auto free_now = [&] { receiver_.free_now(receiver_.context, block); };
  const bool is_own = is_same_stream(last_used_on, stream_);
  const bool is_legacy = is_same_stream(last_used_on, nullptr);  // the legacy stream is never captured
  // The handle of another stream identifies its device.
  if (is_own && (is_legacy || capture_state_of(*driver_, last_used_on) == capture_state::none))
    return free_now();
  const on_device here{*driver_, device_};
  const capture_state captures = capture_state_of(*driver_, last_used_on);
  if (captures == capture_state::capturing || (captures == capture_state::untouchable && is_legacy)) {
    hold(block, !is_legacy);
  } else if (is_own) {
    free_now();
  } else if (std::optional<reuse_fence> fence = events_.record(last_used_on)) {
    receiver_.free_behind(receiver_.context, block, std::move(*fence));
  } else if (const status waited = driver_->synchronize(last_used_on); shows_end_of_work(waited)) {
    free_now();
  } else {
    report_lost(*driver_, name_, "cuStreamSynchronize", waited, block.bytes);
  }
}

// A graph may use the block, or work that cannot be awaited now. Neither this memory nor the driver may reuse
// it.
void stream_returns::hold(returned_block const& block, bool is_captured) noexcept {
  try {
    const std::scoped_lock lock{mutex_};
    held_.push_back({block, is_captured});
  } catch (...) {  // any exception of the bookkeeping resource
    tidemark::detail::report_warning(
        warning_kind::refused_return, name_,
        "%s: %zu bytes are lost, because there is no memory to note that captured work, or "
        "work beside a capture, uses them",
        name_, block.bytes);
  }
}

// Blocks of the legacy stream are returned behind an event of that stream, unless a capture still forbids it.
std::size_t stream_returns::release_held(bool captured_too) noexcept {
  std::pmr::vector<held_block> taken{held_.get_allocator()};
  {
    const std::scoped_lock lock{mutex_};
    if (held_.empty()) return 0;
    taken.swap(held_);
  }
  std::size_t bytes = 0;
  for (held_block const& each : taken) {
    if (!each.is_captured) {
      route_return(each.block, legacy_stream);  // may hold the block again
    } else if (!captured_too) {
      hold(each.block, true);
    } else {
      bytes += each.block.bytes;
      receiver_.free_now(receiver_.context, each.block);
    }
  }
  return bytes;
}

}  // namespace tidemark::gpu::detail
