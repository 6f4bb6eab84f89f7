// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/driver/detail/captures.hpp>

#include <algorithm>
#include <mutex>
#include <thread>

#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu::detail {
namespace {

/// One unit of memory, mapped to its own addresses and unmapped again. Its destructor undoes the rest.
class mapped_unit {
 public:
  mapped_unit(driver& calls, device_number device) noexcept : calls_{&calls}, device_{device} {}
  mapped_unit(mapped_unit const&) = delete;
  mapped_unit& operator=(mapped_unit const&) = delete;
  ~mapped_unit() { (void)undo(); }

  /// Makes all calls of an address space. @return the first error
  [[nodiscard]] status try_out() noexcept {
    memory_info info;
    std::size_t bytes = 0;
    status result = calls_->memory(info);
    if (result == status::success) result = calls_->granularity(device_, bytes);
    if (result == status::success) result = calls_->reserve(bytes, 0, range_);
    if (result == status::success) result = calls_->create(device_, bytes, memory_);
    if (result == status::success) result = calls_->map(range_, memory_);
    is_mapped_ = result == status::success;
    if (is_mapped_) result = calls_->allow_access(range_, device_set{device_});
    return result == status::success ? undo() : result;
  }

 private:
  // A refused undo is tried again at the end.
  [[nodiscard]] status undo() noexcept {
    if (is_mapped_) {
      if (const status refused = calls_->unmap(range_); refused != status::success) return refused;
      is_mapped_ = false;
    }
    if (memory_ != 0) {
      if (const status refused = calls_->release(memory_); refused != status::success) return refused;
      memory_ = 0;
    }
    if (!range_.empty()) {
      if (const status refused = calls_->free_reservation(range_); refused != status::success) return refused;
      range_ = {};
    }
    return status::success;
  }

  driver* calls_;
  device_number device_;
  byte_range range_;
  physical_handle memory_ = 0;
  bool is_mapped_ = false;
};

}  // namespace

bool capture_probe::maps_during_captures(driver& calls, int device) noexcept {
  answer known = known_.load(std::memory_order_acquire);
  if (known == answer::unknown) {
    try {
      // The calling thread may be capturing, and a refusal would end its capture too.
      std::thread{[&] { known = query_driver(calls, device); }}.join();
    } catch (...) {  // the host has no memory or no thread
      return false;
    }
    known_.store(known, std::memory_order_release);
  }
  return known == answer::yes;
}

capture_probe::answer capture_probe::query_driver(driver& calls, int device) noexcept {
  capture_mode mode = capture_mode::thread_local_;  // captures of other threads do not restrict this mode
  stream_handle stream = nullptr;
  if (calls.make_current(device) != status::success || calls.exchange_capture_mode(mode) != status::success)
    return answer::unknown;
  status mapped = calls.create_stream(stream), ended = mapped;
  if (mapped == status::success) {
    mapped_unit unit{calls, device};
    graph_handle graph = nullptr;
    ended = calls.begin_capture(stream, capture_mode::thread_local_);
    if (ended == status::success) {
      mapped = unit.try_out();
      ended = calls.end_capture(stream, graph);
    }
    if (graph != nullptr) (void)calls.destroy_graph(graph);
  }
  if (stream != nullptr) (void)calls.destroy_stream(stream);
  (void)calls.exchange_capture_mode(mode);
  if (mapped == status::success && ended == status::success) return answer::yes;
  const bool lacks_memory = mapped == status::out_of_memory || ended == status::out_of_memory;
  return lacks_memory ? answer::unknown : answer::no;
}

// ---- executables ------------------------------------------------------------------------------------------

void retired_executables::capture_begins() noexcept {
  const std::scoped_lock lock{mutex_};
  ++captures_;
}

void retired_executables::capture_ended(driver& calls) noexcept {
  const std::scoped_lock lock{mutex_};
  --captures_;
  destroy_waiting(calls);
}

void retired_executables::reserve_one() {
  const std::scoped_lock lock{mutex_};
  if (waiting_.capacity() <= executables_) waiting_.reserve(std::max<std::size_t>(8, 2 * executables_));
  ++executables_;
}

void retired_executables::retire(driver& calls, ::CUgraphExec_st* executable) noexcept {
  const std::scoped_lock lock{mutex_};
  if (executable == nullptr) {  // it was not made
    --executables_;
    return;
  }
  waiting_.push_back(executable);  // has the capacity
  destroy_waiting(calls);
}

// A refusal ends the attempt, because the other executables would meet the same capture.
void retired_executables::destroy_waiting(driver& calls) noexcept {
  if (captures_ != 0 || waiting_.empty()) return;
  const relaxed_mode destroying{calls};
  while (!waiting_.empty() && !is_of_a_capture(calls.destroy_executable(waiting_.back()))) {
    waiting_.pop_back();
    --executables_;
  }
}

std::size_t retired_executables::size() const noexcept {
  const std::scoped_lock lock{mutex_};
  return waiting_.size();
}

}  // namespace tidemark::gpu::detail
