// SPDX-License-Identifier: Apache-2.0
// Reuse of memory behind an event, or behind the present work of a stream.
#pragma once

#include <cstddef>
#include <type_traits>

#include <tidemark/cuda/driver/driver.hpp>

#include "driver_errors.hpp"

namespace tidemark::gpu::detail {

/// Makes later work of a stream wait for an event. If the stream cannot wait, for example because it is
/// capturing, the calling thread waits. @return success if either waited. @pre The stream's device is
/// current.
[[nodiscard]] status wait_behind(driver& driver, stream_handle stream, event_handle event) noexcept;
/// Makes the calling thread wait for an event, also during a capture. @return success if its work has ended.
[[nodiscard]] status wait_for(driver& driver, event_handle event) noexcept;

/// Makes later work of `stream` wait for the present work of `last_used_on`, also if one capture has both. If
/// the stream cannot wait, the calling thread waits for `last_used_on`, unless that stream is capturing.
/// @return success if the stream or the thread waited; otherwise as `gpu::put_behind`. The streams may be on
/// two devices; a default stream belongs to the current device.
[[nodiscard]] status wait_behind(driver& driver, stream_handle stream, stream_handle last_used_on) noexcept;
/// Makes the calling thread wait for the present work of a stream, unless the stream is capturing. @return
/// success if the work has ended. @pre The stream's device is current.
[[nodiscard]] status wait_for(driver& driver, stream_handle last_used_on) noexcept;

/// Calls `wait_behind` for an event or a stream. @return true if it succeeded. Otherwise warns that `bytes`
/// bytes of `resource` are lost. @pre The stream's device is current.
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
