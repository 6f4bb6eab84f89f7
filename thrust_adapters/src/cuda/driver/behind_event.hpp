// SPDX-License-Identifier: Apache-2.0
// Reuse of memory behind an event, or behind what is on a stream.
#pragma once

#include <cstddef>
#include <type_traits>

#include <tidemark/cuda/driver/driver.hpp>

#include "driver_errors.hpp"

namespace tidemark::gpu::detail {

/// Later work of a stream waits for an event; if the stream cannot wait, for example because it is
/// capturing, the calling thread does. @return success if either has. @pre the stream's device is current.
[[nodiscard]] status wait_behind(driver& driver, stream_handle stream, event_handle event) noexcept;
/// The calling thread waits for an event, also during a capture. @return success if its work has ended.
[[nodiscard]] status wait_for(driver& driver, event_handle event) noexcept;

/// Later work of `stream` waits for what is on `last_used_on` now, in a capture of both too; if it cannot,
/// the calling thread waits for that stream, unless that is capturing. @return success if either has; as
/// `gpu::put_behind` if not. The streams may be of two devices; a default stream is that of the current one.
[[nodiscard]] status wait_behind(driver& driver, stream_handle stream, stream_handle last_used_on) noexcept;
/// The calling thread waits for what is on a stream, unless that is capturing. @return success if that has
/// ended. @pre the stream's device is current.
[[nodiscard]] status wait_for(driver& driver, stream_handle last_used_on) noexcept;

/// As `wait_behind` an event or a stream. @return whether it succeeded; if not, a warning says that so many
/// bytes of `resource` are lost. @pre the stream's device is current.
template <class Handle>
[[nodiscard]] bool put_behind(driver& driver, stream_handle stream, Handle last_use, char const* resource,
                              std::size_t bytes) noexcept {
  const status waited = wait_behind(driver, stream, last_use);
  if (waited == status::success) return true;
  constexpr bool is_event = std::is_same_v<Handle, event_handle>;
  report_lost(driver, resource, is_event ? "cuEventSynchronize" : "cuStreamSynchronize", waited, bytes);
  return false;
}

/// Reports a violation (`violation_kind::open_capture`) if the wait at the end of a scope has failed.
void require_waited(driver& driver, char const* resource, status waited) noexcept;

}  // namespace tidemark::gpu::detail
