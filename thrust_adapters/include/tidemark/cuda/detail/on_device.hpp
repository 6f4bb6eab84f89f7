// SPDX-License-Identifier: Apache-2.0
/// @file
/// `on_device`: a device is the current one of this thread for a while. Owns nothing.
#pragma once

#include <tidemark/cuda/driver.hpp>

namespace tidemark::cuda::detail {

/// Makes a device current for the calling thread as long as it lives, if it is not so already. What belongs
/// to one device must do so around its calls: the thread that makes them may have another device current, and
/// then the default stream, the free memory and new blocks are those of that one.
class on_device {
 public:
  on_device(driver& driver, device_number device) noexcept : driver_{&driver} {
    device_number now = 0;
    result_ = driver.current_device(now);
    if (result_ != status::success || now == device) return;
    result_ = driver.make_current(device);
    if (result_ == status::success) before_ = now;
  }
  on_device(on_device const&) = delete;
  on_device& operator=(on_device const&) = delete;
  ~on_device() {
    if (before_ >= 0) (void)driver_->make_current(before_);
  }

  /// Whether the device is current; if not, why.
  [[nodiscard]] status result() const noexcept { return result_; }

 private:
  driver* driver_;
  status result_;
  device_number before_ = -1;  // to be made current again; -1: none
};

}  // namespace tidemark::cuda::detail
