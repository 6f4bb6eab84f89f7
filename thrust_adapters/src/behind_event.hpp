// SPDX-License-Identifier: Apache-2.0
// What is given back behind an event.
#pragma once

#include <cstddef>

#include <tidemark/cuda/driver.hpp>

namespace tidemark::cuda::detail {

/// Puts later work of a stream behind an event; if the stream cannot wait, because it is capturing for
/// example, the calling thread does. @return success if that was done. @pre the stream's device is current.
[[nodiscard]] status wait_behind(driver& driver, stream_handle stream, event_handle event) noexcept;
/// The calling thread waits for an event, during a capture too. @return success if the work before it has
/// ended.
[[nodiscard]] status wait_for(driver& driver, event_handle event) noexcept;

/// As `wait_behind`.
/// @return whether that was done; if not, with a warning that so many bytes of `resource` are lost.
/// @pre the stream's device is current.
[[nodiscard]] bool put_behind(driver& driver, stream_handle stream, event_handle event, char const* resource,
                              std::size_t bytes) noexcept;

/// Reports a violation (`violation_kind::open_capture`) if what a scope ended behind could not be waited for.
void require_waited(driver& driver, char const* resource, status waited) noexcept;

}  // namespace tidemark::cuda::detail
