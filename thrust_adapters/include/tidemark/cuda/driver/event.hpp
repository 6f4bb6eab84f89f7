// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::event`: a point in a stream's work. Owns the driver's event.
#pragma once

#include <tidemark/core/reuse_fence.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu {

/// An event without timing, for which other streams and threads can wait.
///
/// ```cpp
/// gpu::event copied{copies};  // behind the work that is on stream `copies` now
/// device_pool pool{{.stream = stream}};
/// pool.deallocate_after(block, bytes, 256, copied);  // `stream` waits; the caller keeps the event
/// reuse_cache cache{{.upstream = &memory}};
/// cache.deallocate_after(buffer, bytes, 256, std::move(copied).as_fence());  // the cache owns the event now
/// ```
/// Move-only; a moved-from event may only be destroyed or assigned to. Thread-safety: one thread at a time;
/// `done` and `wait` on any thread. Its calls disturb no capture of another stream. Do not call `done` or
/// `wait` for an event that was recorded in a capture, because the driver then invalidates the capture.
class event {
 public:
  /// Makes an unrecorded event, which is done. @throws cuda_error.
  explicit event(driver& driver = default_driver()) : handle_{driver} {
    require_success(driver, "cuEventCreate", driver.create_event(handle_.out()));
  }
  /// Makes an event behind all work that is on `stream` now. @throws cuda_error.
  explicit event(stream_handle stream, driver& driver = default_driver()) : event{driver} { record(stream); }

  /// Records the event behind all work that is on `stream` now. @throws cuda_error; the event has not changed
  /// then.
  void record(stream_handle stream) {
    const detail::relaxed_mode recording{handle_.calls()};
    require_success(handle_.calls(), "cuEventRecord", handle_.calls().record(get(), stream));
  }
  /// Returns true if the work before the event has ended, or the device is lost. Returns false for other
  /// errors.
  /// @pre The event was not recorded in a capture, because the query would end the capture.
  [[nodiscard]] bool done() const noexcept {
    const detail::relaxed_mode querying{handle_.calls()};
    return detail::shows_end_of_work(handle_.calls().query(get()));
  }
  /// Waits until the work before the event has ended. @throws cuda_error, also for errors of the work.
  void wait() const {
    const detail::relaxed_mode waiting{handle_.calls()};
    require_success(handle_.calls(), "cuEventSynchronize", handle_.calls().synchronize(get()));
  }

  /// Returns a fence that owns the event. The fence is done when the event is done or its device is lost. It
  /// does not report errors of the work. @throws std::bad_alloc; the event has not changed then.
  [[nodiscard]] reuse_fence as_fence() &&;

  /// Returns the driver's handle, as `cudaEvent_t`.
  [[nodiscard]] event_handle get() const noexcept { return handle_.get(); }
  /// Converts to the driver's handle, as Thrust's and RMM's events do.
  operator event_handle() const noexcept { return get(); }  // NOLINT(google-explicit-constructor)

 private:
  detail::unique_handle<event_handle, &driver::destroy_event> handle_;
};

}  // namespace tidemark::gpu
