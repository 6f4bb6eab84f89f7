// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the result of asking an event tells of the work before it. Owns nothing.
#pragma once

#include <tidemark/cuda/status.hpp>

namespace tidemark::cuda::detail {

/// Whether an event that was asked, or waited for, with this result has its work behind it. So it is where an
/// error of earlier work comes up, because the device is lost then and nothing runs there any more. Any other
/// refusal, as that of a capture, tells nothing, and the work may go on.
[[nodiscard]] constexpr bool shows_end_of_work(status result) noexcept {
  constexpr int uncorrectable_memory = 214, uncorrectable_link = 220, first_of_work = 700,
                first_of_calls = 800;
  const int number = static_cast<int>(result);
  return result == status::success || result == status::deinitialized || number == uncorrectable_memory ||
         number == uncorrectable_link || (number >= first_of_work && number < first_of_calls);
}

/// Whether a call that ended so shows that nothing runs on any device, and nothing ever has: there is none,
/// or the driver was not begun.
[[nodiscard]] constexpr bool shows_that_nothing_runs(status result) noexcept {
  return result == status::no_device || result == status::not_initialized;
}

}  // namespace tidemark::cuda::detail
