// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/driver/stream_order.hpp>

#include <tidemark/cuda/driver/detail/driver_state.hpp>

namespace tidemark::cuda {

status put_behind(driver& driver, stream_handle later, stream_handle earlier) noexcept {
  if (is_same_stream(later, earlier)) return status::success;
  const detail::relaxed_mode ordering{driver};
  // Checked first, because a wait across the border of a capture ends the capture, or adds the waiting
  // stream to it.
  bool later_is_captured = false, earlier_is_captured = false;
  status result = driver.is_capturing(later, later_is_captured);
  if (result == status::success) result = driver.is_capturing(earlier, earlier_is_captured);
  if (result != status::success) return result;
  if (later_is_captured != earlier_is_captured) return status::capture_isolation;

  event_handle event = nullptr;
  result = driver.create_event(event);
  if (result != status::success) return result;
  result = driver.record(event, earlier);
  if (result == status::success) result = driver.wait(later, event);
  (void)driver.destroy_event(event);  // the driver keeps it until the wait is over
  return result;
}

}  // namespace tidemark::cuda
