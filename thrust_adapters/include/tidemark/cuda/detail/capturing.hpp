// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether a stream is capturing. Owns nothing.
#pragma once

#include <tidemark/cuda/driver.hpp>

namespace tidemark::cuda::detail {

/// Whether a stream is capturing, as far as the driver tells. @pre its device is current.
[[nodiscard]] inline bool is_capturing(driver& driver, stream_handle stream) noexcept {
  bool capturing = false;
  return driver.is_capturing(stream, capturing) == status::success && capturing;
}

/// The same, or the driver does not tell: for those who must not disturb a capture.
[[nodiscard]] inline bool may_be_capturing(driver& driver, stream_handle stream) noexcept {
  bool capturing = false;
  return driver.is_capturing(stream, capturing) != status::success || capturing;
}

}  // namespace tidemark::cuda::detail
