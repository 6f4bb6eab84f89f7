// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/resources/device_caches.hpp>

#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>

#include "completed_options.hpp"

namespace tidemark {
namespace {

// One key for both handles of the legacy stream.
gpu::stream_handle key_of(gpu::stream_handle stream) noexcept {
  return gpu::is_same_stream(stream, nullptr) ? nullptr : stream;
}

device_cache_options of_each(device_cache_options options, gpu::driver& driver) {
  gpu::detail::complete(options, driver);
  return options;
}

}  // namespace

/// The cache of one stream, and the resource that stands for it.
class device_caches::stream_cache final : public detail::forwarding_resource<stream_cache> {
 public:
  stream_cache(device_caches& all, device_cache_options const& options, gpu::driver& driver)
      : cache{options, driver}, all_{&all} {}

  void* allocate(std::size_t bytes, std::size_t align) {
    return all_->allocate(bytes, align, cache.stream());
  }
  void deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
    all_->deallocate(block, bytes, align, cache.stream());
  }

  device_cache cache;

 private:
  device_caches* all_;
};

device_caches::device_caches(device_cache_options const& each, gpu::driver& driver)
    : driver_{&driver}, options_{of_each(each, driver)}, owners_{options_.bookkeeping} {}

device_caches::~device_caches() = default;

device_caches::stream_cache& device_caches::of(gpu::stream_handle stream) {
  {
    const std::scoped_lock lock{mutex_};
    if (const auto found = caches_.find(key_of(stream)); found != caches_.end()) return *found->second;
  }
  device_cache_options options = options_;
  options.stream = key_of(stream);
  auto made = std::make_shared<stream_cache>(*this, options, *driver_);
  const std::scoped_lock lock{mutex_};
  return *caches_.try_emplace(key_of(stream), std::move(made)).first->second;
}

void* device_caches::allocate(std::size_t bytes, std::size_t align, gpu::stream_handle stream) {
  stream_cache& from = of(stream);
  void* const block = from.cache.allocate(bytes, align);
  try {
    const std::scoped_lock lock{mutex_};
    owners_.emplace(block, &from);
  } catch (...) {
    from.cache.deallocate(block, bytes, align);
    throw;
  }
  return block;
}

void device_caches::deallocate(void* block, std::size_t bytes, std::size_t align,
                               gpu::stream_handle last_used_on) noexcept {
  if (block == nullptr) return;
  stream_cache* owner = nullptr;
  {
    const std::scoped_lock lock{mutex_};
    if (const auto found = owners_.find(block); found != owners_.end()) {
      owner = found->second;
      owners_.erase(found);
    }
  }
  if (owner != nullptr) return owner->cache.deallocate(block, bytes, align, last_used_on);
  detail::report_violation(
      violation_kind::bad_deallocate, options_.name,
      "device_caches '%s': %zu bytes are deallocated at %p, where no block is live: a double "
      "free or a foreign pointer",
      options_.name, bytes, block);
}

std::pmr::memory_resource* device_caches::on(gpu::stream_handle stream) { return &of(stream); }

void device_caches::forget(gpu::stream_handle stream) {
  std::shared_ptr<stream_cache> gone;  // ends without the lock
  const std::scoped_lock lock{mutex_};
  const auto found = caches_.find(key_of(stream));
  if (found == caches_.end()) return;
  if (const std::size_t blocks = found->second->cache.stats().used_blocks; blocks != 0) {
    throw std::logic_error{"device_caches '" + std::string{options_.name} + "': forget while " +
                           std::to_string(blocks) +
                           " blocks of the stream are in use, or of a graph (release_captured)"};
  }
  gone = std::move(found->second);
  caches_.erase(found);
}

// Each is held on to while it is called, so that another thread may forget its stream.
template <class Call>
void device_caches::for_each_cache(Call call) const noexcept {
  std::shared_ptr<stream_cache> next;
  for (gpu::stream_handle last = nullptr;; call(next->cache)) {
    const std::shared_ptr<stream_cache> before = std::move(next);  // may end here, and not under the lock
    const std::scoped_lock lock{mutex_};
    const auto found = before == nullptr ? caches_.begin() : caches_.upper_bound(last);
    if (found == caches_.end()) return;
    last = found->first;
    next = found->second;
  }
}

std::size_t device_caches::collect(bool force) noexcept {
  std::size_t bytes = 0;
  for_each_cache([&](device_cache& each) { bytes += each.collect(force); });
  return bytes;
}

std::size_t device_caches::release_captured() noexcept {
  std::size_t bytes = 0;
  for_each_cache([&](device_cache& each) { bytes += each.release_captured(); });
  return bytes;
}

reuse_cache_stats device_caches::stats() const noexcept {
  reuse_cache_stats all;
  all.name = options_.name;
  for_each_cache([&](device_cache const& each) {
    const reuse_cache_stats one = each.stats();
    all.allocations += one.allocations;
    all.deallocations += one.deallocations;
    all.refused += one.refused;
    all.hits += one.hits;
    all.misses += one.misses;
    all.used_blocks += one.used_blocks;
    all.peak_blocks += one.peak_blocks;
    all.used_bytes += one.used_bytes;
    all.peak_bytes += one.peak_bytes;
    all.cached_bytes += one.cached_bytes;
    all.peak_cached_bytes += one.peak_cached_bytes;
    all.pending_bytes += one.pending_bytes;
    all.held_bytes += one.held_bytes;
  });
  return all;
}

std::size_t device_caches::streams() const noexcept {
  const std::scoped_lock lock{mutex_};
  return caches_.size();
}

}  // namespace tidemark
