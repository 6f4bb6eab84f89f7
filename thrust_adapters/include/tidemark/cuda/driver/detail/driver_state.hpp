// SPDX-License-Identifier: Apache-2.0
/// @file
/// State of the driver: the current device, captures, and the end of work. `unique_handle` owns the object of
/// a handle.
#pragma once

#include <functional>
#include <utility>

#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu::detail {

/// Permits the calling thread to free and to wait during its lifetime. Otherwise the driver would reject such
/// calls and invalidate an active capture of the thread, or of another thread in mode `global`. Use it only
/// for objects that the capture does not use.
class relaxed_mode {
 public:
  [[nodiscard]] explicit relaxed_mode(driver& driver) noexcept
      : driver_{&driver}, exchanged_{driver.exchange_capture_mode(mode_) == status::success} {}
  relaxed_mode(relaxed_mode const&) = delete;
  relaxed_mode& operator=(relaxed_mode const&) = delete;
  ~relaxed_mode() {
    if (exchanged_) (void)driver_->exchange_capture_mode(mode_);
  }

 private:
  driver* driver_;
  capture_mode mode_ = capture_mode::relaxed;  // after the exchange: the thread's own mode
  bool exchanged_;
};

/// Makes a device current for the calling thread during its lifetime, in relaxed mode. Calls on the default
/// stream, on free memory and on new blocks need it, because they use the current device.
///
/// It restores the thread's context, not its device. A thread that never chose a device would otherwise make
/// a context of hundreds of MiB on device 0.
class on_device {
 public:
  [[nodiscard]] on_device(driver& driver, device_number device) noexcept
      : relaxed_{driver}, driver_{&driver} {
    device_number now = 0;
    result_ = driver.current_device(now);
    if (result_ != status::success || now == device) return;
    result_ = driver.current_context(before_);
    if (result_ != status::success) return;
    result_ = driver.make_current(device);
    has_changed_ = result_ == status::success;
  }
  on_device(on_device const&) = delete;
  on_device& operator=(on_device const&) = delete;
  ~on_device() {
    if (has_changed_) (void)driver_->set_context(before_);
  }

  /// Returns success if the device is current, or the driver's error.
  [[nodiscard]] status result() const noexcept { return result_; }

 private:
  relaxed_mode relaxed_;
  driver* driver_;
  status result_;
  context_handle before_ = nullptr;
  bool has_changed_ = false;  // the previous context must be restored
};

/// The result of the last of several calls, and its name.
struct outcome {
  status result = status::success;
  char const* call = "";

  /// Returns true if all calls succeeded.
  [[nodiscard]] bool good() const noexcept { return result == status::success; }
};

/// Returns true if a capture forbids the call, or the call has invalidated a capture.
[[nodiscard]] constexpr bool is_of_a_capture(status result) noexcept {
  return result >= status::capture_unsupported && result <= status::capture_wrong_thread;
}

/// Returns true if this result of any call shows that no device runs, or ever ran, any work.
[[nodiscard]] constexpr bool shows_that_nothing_runs(status result) noexcept {
  return result == status::no_device || result == status::not_initialized;
}

/// Returns true if this result of an event query or wait shows that the work has ended. An error of earlier
/// work shows the end too, because a lost device runs no work. An error that reports a missing device also
/// shows it. Other errors, such as those of captures, show nothing.
[[nodiscard]] constexpr bool shows_end_of_work(status result) noexcept {
  constexpr int uncorrectable_memory = 214, uncorrectable_link = 220, first_of_work = 700,
                first_of_calls = 800;
  const int number = static_cast<int>(result);
  return result == status::success || result == status::deinitialized || result == status::contained ||
         result == status::client_terminated || shows_that_nothing_runs(result) ||
         number == uncorrectable_memory || number == uncorrectable_link ||
         (number >= first_of_work && number < first_of_calls);
}

/// Effect of captures on calls on a stream.
enum class capture_state {
  none,       ///< calls on it disturb no capture
  capturing,  ///< its work becomes part of a graph; a wait for it ends the capture
  /// A call on it may end a capture: the legacy default stream beside a capturing blocking stream, or an
  /// error of unknown meaning.
  untouchable,
};

/// Queries the state. A lost device captures nothing. @pre The stream's device is current.
[[nodiscard]] inline capture_state capture_state_of(driver& driver, stream_handle stream) noexcept {
  bool capturing = false;
  const status asked = driver.is_capturing(stream, capturing);
  if (asked == status::success && capturing) return capture_state::capturing;
  return shows_end_of_work(asked) ? capture_state::none : capture_state::untouchable;
}

/// A handle that `Destroy(driver, handle)` destroys. Null means no object. A move leaves null.
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

  /// Returns the driver of the handle.
  [[nodiscard]] driver& calls() const noexcept { return *driver_; }
  [[nodiscard]] Handle get() const noexcept { return handle_; }
  /// Returns the place for a new handle from the driver. @pre The handle is null.
  [[nodiscard]] Handle& out() noexcept { return handle_; }

 private:
  driver* driver_;
  Handle handle_;
};

}  // namespace tidemark::gpu::detail
