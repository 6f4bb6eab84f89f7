// SPDX-License-Identifier: Apache-2.0
#include <tidemark/telemetry/statistics_resource.hpp>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>

namespace tidemark {
namespace {

// Saturates at 0. A frame may deallocate older blocks, and a thread between two steps of a call may have
// raised the frame's starting value.
template <class Number>
void subtract(Number& value, Number base) noexcept {
  value = value > base ? value - base : 0;
}

}  // namespace

resource_stats statistics_resource::stats() const noexcept {
  const std::scoped_lock lock{mutex_};
  resource_stats now = counter_.stats(name());
  for (resource_stats const& frame : frames_) {
    now.peak_blocks = std::max(now.peak_blocks, frame.peak_blocks);
    now.peak_bytes = std::max(now.peak_bytes, frame.peak_bytes);
  }
  return now;
}

void statistics_resource::push_counters() {
  const std::scoped_lock lock{mutex_};
  frames_.push_back(counter_.stats(name()));
  const resource_stats outer = counter_.restart_peaks();
  frames_.back().peak_bytes = outer.peak_bytes;
  frames_.back().peak_blocks = outer.peak_blocks;
}

resource_stats statistics_resource::pop_counters() {
  const std::scoped_lock lock{mutex_};
  if (frames_.empty()) {
    throw std::logic_error(std::string{"statistics_resource '"} + name() +
                           "': pop_counters without a push_counters before it");
  }
  const resource_stats begin = frames_.back();
  resource_stats frame = counter_.stats(name());
  frames_.pop_back();
  counter_.raise_peaks(begin.peak_bytes, begin.peak_blocks);
  subtract(frame.allocations, begin.allocations);
  subtract(frame.deallocations, begin.deallocations);
  subtract(frame.refused, begin.refused);
  subtract(frame.total_bytes, begin.total_bytes);
  subtract(frame.used_blocks, begin.used_blocks);
  subtract(frame.used_bytes, begin.used_bytes);
  subtract(frame.peak_blocks, begin.used_blocks);
  subtract(frame.peak_bytes, begin.used_bytes);
  return frame;
}

std::size_t statistics_resource::frames() const noexcept {
  const std::scoped_lock lock{mutex_};
  return frames_.size();
}

void statistics_resource::record(size_histogram& sizes, std::size_t bytes) noexcept try {
  sizes.record(bytes);
} catch (std::bad_alloc const&) {
  return;  // the block is allocated; only the histogram lacks it
}

}  // namespace tidemark
