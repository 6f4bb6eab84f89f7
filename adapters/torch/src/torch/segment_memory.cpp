// SPDX-License-Identifier: Apache-2.0
#include "segment_memory.hpp"

#include <algorithm>
#include <string>

#include <tidemark/cuda/driver/detail/driver_state.hpp>

namespace tidemark::torch {

namespace {

constexpr std::size_t alignment = 256;

}  // namespace

void* segment_memory::allocate(std::size_t bytes) {
  const std::scoped_lock lock{mutex_};
  if (!cache_) {
    if (!blocks_)
      blocks_.emplace(gpu::block_resource_options{.device = device_, .name = "PyTorch's segments"}, *driver_);
    // Blocks return unused, and need no order by a stream.
    reuse_cache_options options{.name = "PyTorch's segments", .upstream = &*blocks_};
    if (max_cached_bytes_)
      options.max_cached_bytes = std::max<std::size_t>(*max_cached_bytes_, 1);  // 0: no limit
    cache_.emplace(options);
  }
  if (log_ != nullptr && !traced_)
    traced_.emplace(&*cache_, *log_, "cuda:" + std::to_string(device_) + " segments");
  waiting_.reserve(live_.size() + 1);
  std::pmr::memory_resource& front = traced_ ? static_cast<std::pmr::memory_resource&>(*traced_) : *cache_;
  void* const segment = front.allocate(bytes, alignment);
  try {
    live_.emplace(segment, bytes);
  } catch (...) {
    front.deallocate(segment, bytes, alignment);
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
  const gpu::detail::on_device here{*driver_, device_};
  if (!gpu::detail::shows_end_of_work(driver_->synchronize())) return;
  std::pmr::memory_resource& front = traced_ ? static_cast<std::pmr::memory_resource&>(*traced_) : *cache_;
  for (void* const segment : waiting_) {
    const auto found = live_.find(segment);
    front.deallocate(segment, found->second, alignment);
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
