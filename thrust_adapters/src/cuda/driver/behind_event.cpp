// SPDX-License-Identifier: Apache-2.0
#include "behind_event.hpp"

#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/event.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>

namespace tidemark::gpu {

reuse_fence event::as_fence() && {
  static constexpr reuse_fence::functions calls{
      .done = [](void* state) noexcept { return static_cast<event*>(state)->done(); },
      .wait =
          [](void* state) noexcept {
            auto const& guard = static_cast<event*>(state)->handle_;
            (void)detail::wait_for(guard.calls(), guard.get());
          },
      .destroy = [](void* state) noexcept { delete static_cast<event*>(state); }};
  return {calls, new event{std::move(*this)}};
}

namespace detail {

status wait_for(driver& driver, event_handle event) noexcept {
  const relaxed_mode waiting{driver};
  const status waited = driver.synchronize(event);
  return shows_end_of_work(waited) ? status::success : waited;
}

status wait_behind(driver& driver, stream_handle stream, event_handle event) noexcept {
  // Checked first, because a wait for work outside a capture ends the capture.
  const relaxed_mode ordering{driver};
  if (capture_state_of(driver, stream) == capture_state::none &&
      driver.wait(stream, event) == status::success)
    return status::success;
  return wait_for(driver, event);
}

status wait_for(driver& driver, stream_handle last_used_on) noexcept {
  const relaxed_mode waiting{driver};
  if (capture_state_of(driver, last_used_on) != capture_state::none) return status::capture_isolation;
  const status waited = driver.synchronize(last_used_on);
  return shows_end_of_work(waited) ? status::success : waited;
}

status wait_behind(driver& driver, stream_handle stream, stream_handle last_used_on) noexcept {
  if (gpu::put_behind(driver, stream, last_used_on) == status::success) return status::success;
  return wait_for(driver, last_used_on);
}

void require_waited(driver& driver, char const* resource, status waited) noexcept {
  if (waited == status::success) return;
  tidemark::detail::report_violation(
      violation_kind::open_capture, resource,
      "%s: the end of a scope cannot wait for earlier work (%s): its memory is reused "
      "while that work may still use it",
      resource, driver.error_name(waited));
}

}  // namespace detail
}  // namespace tidemark::gpu
