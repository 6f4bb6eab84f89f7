// SPDX-License-Identifier: Apache-2.0
#include "behind_event.hpp"

#include <tidemark/cuda/detail/event_result.hpp>

#include "refusal.hpp"

namespace tidemark::cuda::detail {

bool put_behind(driver& driver, stream_handle stream, event_handle event, char const* resource,
                std::size_t bytes) noexcept {
  if (driver.wait(stream, event) == status::success) return true;
  const status waited = driver.synchronize(event);
  if (shows_end_of_work(waited)) return true;
  report_lost(driver, resource, "cuEventSynchronize", waited, bytes);
  return false;
}

}  // namespace tidemark::cuda::detail
