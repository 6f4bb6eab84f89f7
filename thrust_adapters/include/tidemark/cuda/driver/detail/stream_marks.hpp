// SPDX-License-Identifier: Apache-2.0
/// @file
/// `stream_marks`: how far the work of a stream has come. Owns events.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/driver/event.hpp>

namespace tidemark::gpu::detail {

/// Numbered events on one stream. Memory that is freed now gets the number `next()`; the stream no longer
/// uses it once `has_passed` is true of that number.
///
/// Invariant: `passed <= number of each pending event < next()`; at most 8 events are pending. Every call to
/// the driver needs the device current, in relaxed mode, and a stream that is not capturing. Thread-safety:
/// one thread at a time.
class stream_marks {
 public:
  stream_marks(driver& driver, stream_handle stream) noexcept : driver_{&driver}, stream_{stream} {}

  [[nodiscard]] std::uint32_t next() const noexcept { return next_; }
  [[nodiscard]] bool has_passed(std::uint32_t number) const noexcept { return number < passed_; }

  /// Records an event behind the work so far, unless 8 are pending or the driver refuses.
  void record() noexcept {
    if (pending_ == events_.size()) return;
    std::optional<event>& at = events_[(first_ + pending_) % events_.size()];
    try {
      if (!at) at.emplace(*driver_);
      at->record(stream_);
    } catch (...) {  // memory then counts as in use until the stream is waited for
      return;
    }
    ++pending_;
    ++next_;
  }
  /// Asks the driver which events have passed.
  void query() noexcept {
    while (pending_ != 0 && events_[first_]->done()) {
      first_ = (first_ + 1) % events_.size();
      passed_ = next_ - static_cast<std::uint32_t>(--pending_);
    }
  }
  /// Waits for the stream. @return false if the driver refuses; nothing has changed then.
  [[nodiscard]] bool wait() noexcept {
    if (!shows_end_of_work(driver_->synchronize(stream_))) return false;
    first_ = pending_ = 0;
    passed_ = ++next_;
    return true;
  }

 private:
  driver* driver_;
  stream_handle stream_;
  std::array<std::optional<event>, 8> events_;  // a ring
  std::size_t first_ = 0, pending_ = 0;
  std::uint32_t next_ = 0;    // number of the event that is recorded next
  std::uint32_t passed_ = 0;  // events below this number have passed
};

}  // namespace tidemark::gpu::detail
