// SPDX-License-Identifier: Apache-2.0
/// @file
/// `unique_handle`: a handle of the driver with one owner. Owns what the handle is for.
#pragma once

#include <functional>
#include <utility>

#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu::detail {

/// A handle that is destroyed by `Destroy(driver, handle)`. Null: there is nothing to destroy. Moving
/// leaves null.
template <class Handle, auto Destroy>
class unique_handle {
 public:
  explicit unique_handle(driver& driver, Handle handle = nullptr) noexcept
      : driver_{&driver}, handle_{handle} {}
  unique_handle(unique_handle&& other) noexcept
      : driver_{other.driver_}, handle_{std::exchange(other.handle_, nullptr)} {}
  unique_handle& operator=(unique_handle&& other) noexcept {
    unique_handle moved{std::move(other)};
    std::swap(driver_, moved.driver_);
    std::swap(handle_, moved.handle_);
    return *this;
  }
  ~unique_handle() {
    if (handle_ != nullptr) (void)std::invoke(Destroy, *driver_, handle_);
  }

  /// The driver of the handle.
  [[nodiscard]] driver& calls() const noexcept { return *driver_; }
  [[nodiscard]] Handle get() const noexcept { return handle_; }
  /// Where a call of the driver writes a new handle. @pre it is null.
  [[nodiscard]] Handle& out() noexcept { return handle_; }

 private:
  driver* driver_;
  Handle handle_;
};

}  // namespace tidemark::gpu::detail
