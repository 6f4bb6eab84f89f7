// SPDX-License-Identifier: Apache-2.0
#include "segment_memory.hpp"

#include <algorithm>
#include <utility>

#include <tidemark/cuda/driver/detail/driver_state.hpp>

namespace tidemark::torch {

segment_memory::segment_memory(memory_place place, std::optional<std::size_t> max_cached_bytes)
    : place_{std::move(place)}, max_cached_bytes_{max_cached_bytes} {}

void* segment_memory::allocate(std::size_t bytes) {
  const std::scoped_lock lock{mutex_};
  if (!cache_) {
    if (!blocks_)
      blocks_.emplace(gpu::block_resource_options{.device = place_.device, .name = "PyTorch's segments"},
                      *place_.driver);
    // Blocks return unused, and need no order by a stream.
    cache_.emplace(device_cache_options{.device = place_.device,
                                        .max_cached_bytes = max_cached_bytes_,
                                        .upstream = &*blocks_,
                                        .upstream_is_ordered = true,
                                        .name = "PyTorch's segments"},
                   *place_.driver);
  }
  if (place_.log != nullptr && !traced_)
    traced_.emplace(&*cache_, *place_.log, "cuda:" + std::to_string(place_.device) + " segments");
  waiting_.reserve(live_.size() + 1);
  std::pmr::memory_resource& front = traced_ ? static_cast<std::pmr::memory_resource&>(*traced_) : *cache_;
  void* const segment = front.allocate(bytes, stream_memory::alignment);
  try {
    live_.emplace(segment, bytes);
  } catch (...) {
    front.deallocate(segment, bytes, stream_memory::alignment);
    throw;
  }
  used_bytes_ += bytes;
  return segment;
}

bool segment_memory::deallocate(void* segment) noexcept {
  const std::scoped_lock lock{mutex_};
  if (!live_.contains(segment) || std::ranges::find(waiting_, segment) != waiting_.end()) return false;
  waiting_.push_back(segment);  // capacity is reserved
  return_waiting();
  return true;
}

void segment_memory::return_waiting() noexcept {
  if (waiting_.empty()) return;
  const gpu::detail::on_device here{*place_.driver, place_.device};
  if (!gpu::detail::shows_end_of_work(place_.driver->synchronize())) return;
  std::pmr::memory_resource& front = traced_ ? static_cast<std::pmr::memory_resource&>(*traced_) : *cache_;
  for (void* const segment : waiting_) {
    const auto found = live_.find(segment);
    front.deallocate(segment, found->second, stream_memory::alignment);
    used_bytes_ -= found->second;
    live_.erase(found);
  }
  waiting_.clear();
}

void segment_memory::collect() noexcept {
  const std::scoped_lock lock{mutex_};
  return_waiting();
  if (cache_) (void)cache_->collect(true);
}

std::size_t segment_memory::used_bytes() const noexcept {
  const std::scoped_lock lock{mutex_};
  return used_bytes_;
}

}  // namespace tidemark::torch
