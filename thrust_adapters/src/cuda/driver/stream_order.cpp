// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/driver/stream_order.hpp>

#include <tidemark/cuda/driver/detail/driver_state.hpp>

namespace tidemark::gpu {
namespace {

/// Makes the context of a stream current during its lifetime. An event can be recorded only on a stream of
/// the device of its creation. A default stream belongs to the current context.
class context_of_stream {
 public:
  [[nodiscard]] context_of_stream(driver& driver, stream_handle stream) noexcept : driver_{&driver} {
    if (is_same_stream(stream, nullptr) || stream == per_thread_stream) return;
    context_handle wanted = nullptr;
    result_ = driver.context_of(stream, wanted);
    if (is_missing(result_)) result_ = status::success;
    if (result_ != status::success || wanted == nullptr) return;
    result_ = driver.current_context(before_);
    if (result_ != status::success || before_ == wanted) return;
    result_ = driver.set_context(wanted);
    has_changed_ = result_ == status::success;
  }
  context_of_stream(context_of_stream const&) = delete;
  context_of_stream& operator=(context_of_stream const&) = delete;
  ~context_of_stream() {
    if (has_changed_) (void)driver_->set_context(before_);
  }

  [[nodiscard]] status result() const noexcept { return result_; }

 private:
  // Returns true if a driver or table lacks the call, or lacks it for this stream. The stream must then be on
  // the current device.
  static bool is_missing(status result) noexcept {
    return result == status::no_device || result == status::not_found || result == status::not_supported;
  }

  driver* driver_;
  status result_ = status::success;
  context_handle before_ = nullptr;
  bool has_changed_ = false;
};

}  // namespace

status put_behind(driver& driver, stream_handle later, stream_handle earlier) noexcept {
  if (is_same_stream(later, earlier)) return status::success;
  const detail::relaxed_mode ordering{driver};
  // Checked first, because a wait across the border of a capture ends the capture, or adds the waiting stream
  // to the capture.
  bool later_is_captured = false, earlier_is_captured = false;
  status result = driver.is_capturing(later, later_is_captured);
  if (result == status::success) result = driver.is_capturing(earlier, earlier_is_captured);
  if (result != status::success) return result;
  if (later_is_captured != earlier_is_captured) return status::capture_isolation;

  event_handle event = nullptr;
  {
    const context_of_stream there{driver, earlier};
    if (there.result() != status::success) return there.result();
    result = driver.create_event(event);
    if (result != status::success) return result;
    result = driver.record(event, earlier);
  }
  // The stream may be on any device; a default stream belongs to the current one.
  if (result == status::success) result = driver.wait(later, event);
  (void)driver.destroy_event(event);  // the driver keeps the event until the wait is over
  return result;
}

}  // namespace tidemark::gpu
