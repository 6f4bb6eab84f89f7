// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/stream_order.hpp>

#include <tidemark/cuda/detail/capturing.hpp>

namespace tidemark::cuda {

status put_behind(driver& driver, stream_handle later, stream_handle earlier) noexcept {
  if (later == earlier) return status::success;
  // Asked first, because the driver would end the capture for it.
  if (detail::is_capturing(driver, later) && !detail::is_capturing(driver, earlier)) {
    return status::capture_isolation;
  }
  event_handle event = nullptr;
  status result = driver.create_event(event);
  if (result != status::success) return result;
  result = driver.record(event, earlier);
  if (result == status::success) result = driver.wait(later, event);
  (void)driver.destroy_event(event);  // the driver keeps it until the wait is over
  return result;
}

}  // namespace tidemark::cuda
