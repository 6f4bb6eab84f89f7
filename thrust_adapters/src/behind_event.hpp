// SPDX-License-Identifier: Apache-2.0
// What is given back behind an event.
#pragma once

#include <cstddef>

#include <tidemark/cuda/driver.hpp>

namespace tidemark::cuda::detail {

/// Puts later work of a stream behind an event; if the stream cannot wait, the calling thread does.
/// @return whether that was done; if not, with a warning that so many bytes of `resource` are lost.
/// @pre the stream's device is current.
[[nodiscard]] bool put_behind(driver& driver, stream_handle stream, event_handle event, char const* resource,
                              std::size_t bytes) noexcept;

}  // namespace tidemark::cuda::detail
