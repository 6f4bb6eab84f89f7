// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/driver/detail/retired_executables.hpp>

#include <algorithm>
#include <mutex>

#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu::detail {

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

// A refusal ends the attempt: the others would meet the same capture.
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
