// SPDX-License-Identifier: Apache-2.0
/// @file
/// `cuda::event`: a point in a stream's work. Owns the driver's event.
#pragma once

#include <utility>

#include <tidemark/cuda/cuda_error.hpp>
#include <tidemark/cuda/detail/event_result.hpp>
#include <tidemark/cuda/detail/relaxed_mode.hpp>
#include <tidemark/cuda/driver.hpp>
#include <tidemark/reuse_fence.hpp>

namespace tidemark::cuda {

/// An event without timing, which work elsewhere can wait for.
///
/// ```cpp
/// cuda::event copied{copies};  // behind what is on stream `copies` now
/// device_pool pool{{.stream = stream}};
/// pool.deallocate_after(block, bytes, 256, copied);  // `stream` waits; the event stays the caller's
/// reuse_cache cache{{.upstream = &memory}};
/// cache.deallocate_after(piece, bytes, 256, std::move(copied).as_fence());  // the cache asks and ends it
/// ```
/// Move-only; a moved-from event is empty and may only be destroyed or assigned to. Thread-safety: one thread
/// at a time; `done` and `wait` any.
class event {
 public:
  /// An event that was recorded nowhere: it is done. @throws cuda_error.
  explicit event(driver& driver = default_driver()) : driver_{&driver} {
    require(driver, "cuEventCreate", driver.create_event(handle_));
  }
  /// An event behind all work that is on `stream` now. @throws cuda_error.
  explicit event(stream_handle stream, driver& driver = default_driver()) : event{driver} { record(stream); }
  event(event&& other) noexcept : driver_{other.driver_}, handle_{std::exchange(other.handle_, nullptr)} {}
  event& operator=(event&& other) noexcept {
    if (this != &other) {
      destroy();
      driver_ = other.driver_;
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~event() { destroy(); }

  /// Puts it behind all work that is on `stream` now. @throws cuda_error; it is where it was then.
  void record(stream_handle stream) { require(*driver_, "cuEventRecord", driver_->record(handle_, stream)); }
  /// Whether the work before it has ended, or its device is lost: nothing runs there any more then. Where the
  /// driver refuses to tell, it is not. To ask during a capture does not disturb it.
  [[nodiscard]] bool done() const noexcept {
    const detail::relaxed_mode asking{*driver_};
    return detail::shows_end_of_work(driver_->query(handle_));
  }
  /// Returns when the work before it has ended. @throws cuda_error of that work, too.
  void wait() const { require(*driver_, "cuEventSynchronize", driver_->synchronize(handle_)); }

  /// A fence that is done when the event is, and that owns it from here on. What the event's work ended with
  /// is not told: a fence that cannot tell any more is done. @throws std::bad_alloc; the event is as it was.
  [[nodiscard]] reuse_fence as_fence() &&;

  /// The driver's own handle, as `cudaEvent_t`.
  [[nodiscard]] event_handle get() const noexcept { return handle_; }
  /// The same, for the calls that take one.
  // Implicit, as Thrust's and RMM's are.
  operator event_handle() const noexcept { return handle_; }  // NOLINT(google-explicit-constructor)

 private:
  void destroy() noexcept {
    if (handle_ != nullptr) (void)driver_->destroy_event(handle_);
  }

  driver* driver_;
  event_handle handle_ = nullptr;
};

}  // namespace tidemark::cuda
