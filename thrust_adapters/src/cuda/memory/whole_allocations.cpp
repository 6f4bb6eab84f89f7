// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/memory/detail/whole_allocations.hpp>

#include <algorithm>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/cuda/memory/block_memory.hpp>
#include <tidemark/diagnose/detail/listening_tool.hpp>

namespace tidemark::gpu::detail {

bool whole_allocations::are_needed() noexcept {
#if TIDEMARK_NVTX
  return tidemark::detail::current_tool().takes_whole_allocations_only();
#else
  return false;
#endif
}

outcome whole_allocations::allocate(std::size_t least_bytes, std::size_t wanted_bytes, byte_range& range) {
  allocations_.reserve(allocations_.size() + 1);
  const auto whole = [](std::size_t bytes) {
    return tidemark::detail::align_up(bytes, driver_block_alignment);
  };
  const std::size_t least = whole(least_bytes);
  outcome allocated;
  range = tidemark::detail::reserve_by_halves(
      least, std::min(whole(wanted_bytes), next_chunk_bytes_), [&](std::size_t tried) {
        byte_range made;
        if (allocated.good() || allocated.result == status::out_of_memory)
          allocated = allocate_exactly(whole(tried), made);
        return made;
      });
  if (!allocated.good()) return allocated;
  allocations_.push_back({range});
  if (range.size == next_chunk_bytes_) next_chunk_bytes_ *= 2;
  return allocated;
}

outcome whole_allocations::allocate_exactly(std::size_t bytes, byte_range& range) noexcept {
  device_budget::claim claim{*budget_, bytes};
  if (!claim.is_allowed()) return {status::out_of_memory, "cuMemAlloc"};
  std::uintptr_t first = 0;
  const status result = driver_->allocate(bytes, first);
  if (result == status::success) {
    claim.commit();
    range = {first, bytes};
  }
  return {result, "cuMemAlloc"};
}

void whole_allocations::end(byte_range range) noexcept {
  std::ranges::find(allocations_, range, &allocation::range)->has_ended = true;
}

void whole_allocations::end_all() noexcept {
  for (allocation& each : allocations_) each.has_ended = true;
}

outcome whole_allocations::free_ended() noexcept {
  outcome result;
  std::erase_if(allocations_, [&](allocation const& each) {
    if (!each.has_ended) return false;
    const outcome freed{driver_->free(each.range.begin), "cuMemFree"};
    if (freed.good()) budget_->subtract_bytes(each.range.size);
    else result = freed;
    return freed.good();
  });
  return result;
}

bool whole_allocations::has_ended_ranges() const noexcept {
  return std::ranges::any_of(allocations_, &allocation::has_ended);
}

void whole_allocations::abandon(byte_range range) noexcept {
  std::erase_if(allocations_, [&](allocation const& each) { return each.range == range; });
}

std::size_t whole_allocations::bytes_behind(std::uintptr_t address) const noexcept {
  const auto found = std::ranges::find_if(
      allocations_, [&](allocation const& each) { return each.range.contains(address); });
  return found != allocations_.end() ? found->range.end() - address : 0;
}

std::size_t whole_allocations::held_bytes() const noexcept {
  std::size_t bytes = 0;
  for (allocation const& each : allocations_) bytes += each.range.size;
  return bytes;
}

}  // namespace tidemark::gpu::detail
