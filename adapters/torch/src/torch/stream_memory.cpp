// SPDX-License-Identifier: Apache-2.0
#include "stream_memory.hpp"

#include <limits>
#include <utility>

namespace tidemark::torch {
namespace {

constexpr char const* name = "PyTorch";

// PyTorch calls from any thread, one after another. A heap makes the first thread its owner.
struct any_thread {
  device_pool& heap;
  ~any_thread() { heap.release_thread_ownership(); }
};

}  // namespace

stream_memory::stream_memory(memory_place const& place, settings const& chosen)
    : heap_{{.stream = place.stream,
             .device = place.device,
             .max_cached_bytes = chosen.max_cached_bytes.value_or(std::numeric_limits<std::size_t>::max()),
             .name = name},
            *place.driver},
      front_{&heap_} {
  if (chosen.resource == resource_kind::planned) {
    planned_.emplace(planned_arena_options{.fallback = front_, .name = name});
    front_ = &*planned_;
  }
  trace(place);
}

stream_memory::stream_memory(memory_place const& place)
    : heap_{{.stream = place.stream, .device = place.device, .keeps_addresses = true, .name = name},
            *place.driver},
      front_{&heap_} {
  trace(place);
}

void stream_memory::trace(memory_place const& place) {
  if (place.log != nullptr) front_ = &traced_.emplace(front_, *place.log, place.name);
}

void* stream_memory::allocate(std::size_t bytes) {
  const any_thread next{heap_};
  return front_->allocate(bytes, alignment);
}

void stream_memory::deallocate(void* block, std::size_t bytes) noexcept {
  const any_thread next{heap_};
  front_->deallocate(block, bytes, alignment);
}

void stream_memory::begin_step(std::int64_t kind) {
  if (!planned_) return;
  const any_thread next{heap_};
  step_.reset();
  step_.emplace(*planned_, kind);
}

void stream_memory::end_step() noexcept {
  const any_thread next{heap_};
  step_.reset();
}

void stream_memory::collect() noexcept {
  const any_thread next{heap_};
  if (planned_) (void)planned_->trim();
  heap_.clear();
}

stream_counts stream_memory::counts() const noexcept {
  stream_counts counts;
  counts.cached_bytes = heap_.stats().cached_bytes;
  if (planned_) {
    const planned_arena_stats stats = planned_->stats();
    counts.steps = stats.steps;
    counts.planned_steps = stats.planned_steps;
    counts.partly_planned_steps = stats.partly_planned_steps;
    counts.unplanned_steps = stats.unplanned_steps;
    counts.planned_allocations = stats.planned_allocations;
    counts.fallback_allocations = stats.fallback_allocations;
    counts.outside_allocations = stats.outside_allocations;
    counts.misses = stats.misses;
  }
  return counts;
}

}  // namespace tidemark::torch
