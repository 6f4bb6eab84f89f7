// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::event`: a point in a stream's work. Owns the driver's event.
#pragma once

#include <tidemark/core/reuse_fence.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu {

/// An event without timing, which other streams and threads can wait for.
///
/// ```cpp
/// gpu::event copied{copies};  // behind the work that is on stream `copies` now
/// device_pool pool{{.stream = stream}};
/// pool.deallocate_after(block, bytes, 256, copied);  // `stream` waits; the caller keeps the event
/// reuse_cache cache{{.upstream = &memory}};
/// cache.deallocate_after(buffer, bytes, 256, std::move(copied).as_fence());  // the cache owns the event now
/// ```
/// Move-only; a moved-from event may only be destroyed or assigned to. Thread-safety: one thread at a time;
/// `done` and `wait` any. Its calls disturb no capture of another stream; the host must not ask for, nor
/// wait for, an event that was recorded in a capture: the driver invalidates that capture.
class event {
 public:
  /// An event that was not recorded: it is done. @throws cuda_error.
  explicit event(driver& driver = default_driver()) : handle_{driver} {
    require_success(driver, "cuEventCreate", driver.create_event(handle_.out()));
  }
  /// An event behind all work that is on `stream` now. @throws cuda_error.
  explicit event(stream_handle stream, driver& driver = default_driver()) : event{driver} { record(stream); }

  /// Records it behind all work that is on `stream` now. @throws cuda_error; its place is unchanged then.
  void record(stream_handle stream) {
    const detail::relaxed_mode recording{handle_.calls()};
    require_success(handle_.calls(), "cuEventRecord", handle_.calls().record(get(), stream));
  }
  /// Whether the work before it has ended, or its device is lost. False if the driver returns another
  /// error. @pre it was not recorded in a capture, which to ask would end; other captures go on.
  [[nodiscard]] bool done() const noexcept {
    const detail::relaxed_mode asking{handle_.calls()};
    return detail::shows_end_of_work(handle_.calls().query(get()));
  }
  /// Returns when the work before it has ended. @throws cuda_error, also of that work.
  void wait() const {
    const detail::relaxed_mode waiting{handle_.calls()};
    require_success(handle_.calls(), "cuEventSynchronize", handle_.calls().synchronize(get()));
  }

  /// A fence that owns the event and is done when the event is, or when its device is lost. It does not
  /// report errors of the work. @throws std::bad_alloc; the event is unchanged then.
  [[nodiscard]] reuse_fence as_fence() &&;

  /// The driver's handle, as `cudaEvent_t`.
  [[nodiscard]] event_handle get() const noexcept { return handle_.get(); }
  /// The same, implicitly, as Thrust's and RMM's events.
  operator event_handle() const noexcept { return get(); }  // NOLINT(google-explicit-constructor)

 private:
  detail::unique_handle<event_handle, &driver::destroy_event> handle_;
};

}  // namespace tidemark::gpu
