// SPDX-License-Identifier: Apache-2.0
/// @file
/// `relaxed_mode`: what captures forbid this thread is allowed for a while. Owns nothing.
#pragma once

#include <tidemark/cuda/driver.hpp>

namespace tidemark::cuda::detail {

/// Lets the calling thread free and wait, as long as it lives, though a capture goes on, its own or in mode
/// `global` another's. Such calls are refused then, and end the capture, lest their result depends on work
/// that is only recorded. What is freed and waited for where this is used was used before the capture, or not
/// at all.
class relaxed_mode {
 public:
  explicit relaxed_mode(driver& driver) noexcept
      : driver_{&driver}, exchanged_{driver.exchange_capture_mode(mode_) == status::success} {}
  relaxed_mode(relaxed_mode const&) = delete;
  relaxed_mode& operator=(relaxed_mode const&) = delete;
  ~relaxed_mode() {
    if (exchanged_) (void)driver_->exchange_capture_mode(mode_);
  }

 private:
  driver* driver_;
  capture_mode mode_ = capture_mode::relaxed;  // once it is exchanged, the thread's own
  bool exchanged_;
};

}  // namespace tidemark::cuda::detail
