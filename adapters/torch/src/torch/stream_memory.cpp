// SPDX-License-Identifier: Apache-2.0
#include "stream_memory.hpp"

#include <limits>
#include <utility>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>

namespace tidemark::torch {
namespace {

constexpr char const* name = "PyTorch";
// Activations are often larger than the 32 MiB that a pool keeps by default.
constexpr std::size_t largest_pooled_bytes = 1 * GiB;

// What a `device_cache` keeps unless it is told.
std::size_t quarter_of(memory_place const& place) noexcept {
  const gpu::detail::on_device here{*place.driver, place.device};
  gpu::memory_info info;
  const bool is_known =
      here.result() == gpu::status::success && place.driver->memory(info) == gpu::status::success;
  return is_known ? info.total_bytes / 4 : 1 * GiB;
}

// PyTorch calls from any thread, one after another; a pool takes the first for its own.
struct any_thread {
  std::optional<device_pool>& pool;
  ~any_thread() {
    if (pool) pool->release_thread_ownership();
  }
};

}  // namespace

// ---- lasting_blocks ---------------------------------------------------------------------------------------

lasting_blocks::~lasting_blocks() {
  for (auto const& [bytes, block] : free_) upstream_->deallocate(block, bytes, stream_memory::alignment);
}

void* lasting_blocks::do_allocate(std::size_t bytes, std::size_t) {
  if (const auto found = free_.find(bytes); found != free_.end()) {
    void* const block = found->second;
    auto& node = lent_[block];
    node = free_.extract(found);
    return block;
  }
  free_blocks one;
  one.emplace(bytes, nullptr);
  free_blocks::node_type node = one.extract(one.begin());
  node.mapped() = upstream_->allocate(bytes, stream_memory::alignment);
  void* const block = node.mapped();
  try {
    lent_.emplace(block, std::move(node));
  } catch (...) {
    upstream_->deallocate(block, bytes, stream_memory::alignment);
    throw;
  }
  return block;
}

void lasting_blocks::do_deallocate(void* block, std::size_t, std::size_t) noexcept {
  const auto lent = lent_.find(block);
  free_.insert(std::move(lent->second));
  lent_.erase(lent);
}

// ---- stream_memory ----------------------------------------------------------------------------------------

stream_memory::stream_memory(memory_place const& place, settings const& chosen)
    : driver_{place.driver}, stream_{place.stream} {
  gpu::driver& driver = *place.driver;
  if (chosen.resource == resource_kind::pool) {
    const std::size_t limit = chosen.max_cached_bytes ? *chosen.max_cached_bytes : quarter_of(place);
    pool_.emplace(device_pool_options{.stream = stream_,
                                      .device = place.device,
                                      .largest_pooled_bytes = largest_pooled_bytes,
                                      .max_cached_bytes = limit,
                                      .name = name},
                  driver);
    front_ = &*pool_;
  } else {
    cache_.emplace(device_cache_options{.stream = stream_,
                                        .device = place.device,
                                        .max_blocks_per_size = 0,  // the bytes are limited
                                        .max_cached_bytes = chosen.max_cached_bytes,
                                        .name = name},
                   driver);
    front_ = &*cache_;
  }
  if (chosen.resource == resource_kind::planned) {
    planned_.emplace(planned_arena_options{.fallback = front_, .name = name},
                     gpu::virtual_memory_options{.device = place.device, .stream = stream_}, driver);
    front_ = &*planned_;
  }
  if (place.log != nullptr) front_ = &traced_.emplace(*place.log, front_, place.name);
}

stream_memory::stream_memory(memory_place const& place, std::pmr::memory_resource& upstream)
    : driver_{place.driver}, stream_{place.stream} {
  lasting_.emplace(upstream);
  pool_.emplace(device_pool_options{.stream = stream_,
                                    .device = place.device,
                                    .max_cached_bytes = std::numeric_limits<std::size_t>::max(),
                                    .upstream = &*lasting_,
                                    .upstream_is_ordered = true,
                                    .name = name},
                *place.driver);
  front_ = &*pool_;
  if (place.log != nullptr) front_ = &traced_.emplace(*place.log, front_, place.name);
}

void* stream_memory::allocate(std::size_t bytes) {
  const any_thread next{pool_};
  return front_->allocate(bytes, alignment);
}

void stream_memory::deallocate(void* block, std::size_t bytes) noexcept {
  const any_thread next{pool_};
  front_->deallocate(block, bytes, alignment);
}

void stream_memory::begin_step(std::int64_t kind) {
  if (!planned_) return;
  step_.reset();
  step_.emplace(*planned_, kind);
}

void stream_memory::collect() noexcept {
  if (planned_) (void)planned_->trim();
  if (cache_) (void)cache_->collect(true);
  if (!pool_) return;
  const any_thread next{pool_};
  pool_->clear();
  // What was returned in the order of the stream leaves the driver's pool at a wait.
  const gpu::detail::on_device here{*driver_, pool_->options().device};
  if (gpu::detail::capture_state_of(*driver_, stream_) == gpu::detail::capture_state::none)
    (void)driver_->synchronize(stream_);
}

stream_counts stream_memory::counts() const noexcept {
  stream_counts counts;
  if (cache_) counts.cached_bytes += cache_->stats().cached_bytes;
  if (pool_) counts.cached_bytes += pool_->stats().cached_bytes;
  if (planned_) {
    const planned_arena_stats stats = planned_->stats();
    counts.steps = stats.steps;
    counts.planned_steps = stats.planned_steps;
    counts.planned_allocations = stats.planned_allocations;
    counts.fallback_allocations = stats.fallback_allocations + stats.outside_allocations;
  }
  return counts;
}

}  // namespace tidemark::torch
