// SPDX-License-Identifier: Apache-2.0
#include <tidemark/diagnose/detail/device_marks.hpp>

#if TIDEMARK_NVTX

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace tidemark::detail {
namespace {

constexpr std::size_t first_heaps = 8;
constexpr std::size_t first_blocks = 32;

}  // namespace

std::vector<device_marks::heap>::const_iterator device_marks::first_heap_above(
    std::uintptr_t address) const noexcept {
  return std::ranges::upper_bound(heaps_, address, {}, &heap::last);
}

// Bytes of a block that lie in this heap.
std::size_t device_marks::heap::part_of(std::uintptr_t block, std::size_t bytes) const noexcept {
  const std::uintptr_t from = std::max(first, block), to = std::min(last, block + bytes);
  return from < to ? to - from : 0;
}

bool device_marks::reserve() noexcept {
  try {
    if (heaps_.size() == heaps_.capacity()) heaps_.reserve(std::max(first_heaps, 2 * heaps_.size()));
    if (blocks_.size() == blocks_.capacity()) blocks_.reserve(std::max(first_blocks, 2 * blocks_.size()));
    return true;
  } catch (...) {
    return false;
  }
}

void device_marks::on_commit(std::uintptr_t first, std::uintptr_t last, char const* name) noexcept {
  if (!heaps_.empty()) first = std::max(first, heaps_.back().last);
  if (first >= last) return;
  const heap added{first, last, current_tool().open_heap(first, last - first, name), name};
  if (added.id == 0) return;
  heard_ = true;
  heaps_.push_back(added);
  const auto in_it = std::ranges::upper_bound(
      blocks_, first, {}, [](block_record const& known) { return known.first + known.bytes; });
  for (block_record const& known : std::ranges::subrange{in_it, blocks_.end()}) {
    const std::size_t part = added.part_of(known.first, known.bytes);
    if (part != 0) current_tool().open_region(added.id, std::max(first, known.first), part, name);
  }
}

void device_marks::on_decommit(std::uintptr_t from, std::uintptr_t) noexcept {
  while (!heaps_.empty() && heaps_.back().first >= from) {
    current_tool().close_heap(heaps_.back().id);
    heaps_.pop_back();
  }
}

void device_marks::open(std::uintptr_t first, std::size_t bytes) noexcept {
  blocks_.push_back({first, 0});
  resize(blocks_.back(), bytes);
}

void device_marks::on_resize(std::uintptr_t block, std::size_t bytes, std::size_t) noexcept {
  const bool had_bytes = !blocks_.empty() && blocks_.back().first == block;
  if (!had_bytes) return on_allocate(block, bytes);
  resize(blocks_.back(), bytes);
  if (bytes == 0) blocks_.pop_back();
}

void device_marks::resize(block_record& known, std::size_t bytes) noexcept {
  const std::uintptr_t first = known.first;
  const std::size_t before_bytes = std::exchange(known.bytes, bytes);
  const std::uintptr_t reach = first + std::max(before_bytes, bytes);
  for (auto heap = first_heap_above(first); heap != heaps_.end() && heap->first < reach; ++heap) {
    const std::uintptr_t region = std::max(heap->first, first);
    const std::size_t before = heap->part_of(first, before_bytes), now = heap->part_of(first, bytes);
    if (before == now) continue;
    if (before == 0) current_tool().open_region(heap->id, region, now, heap->name);
    else if (now == 0) current_tool().close_regions(&region, 1);
    else current_tool().resize_region(region, now);
  }
}

// Resets a heap that becomes empty, which takes one call for any number of regions.
void device_marks::close(std::uintptr_t from) noexcept {
  const auto gone = std::ranges::lower_bound(blocks_, from, {}, &block_record::first);
  std::uintptr_t kept_end = 0;
  if (gone != blocks_.begin()) {
    block_record& kept = *std::prev(gone);
    if (kept.first + kept.bytes > from) resize(kept, from - kept.first);
    kept_end = kept.first + kept.bytes;
  }
  if (gone == blocks_.end()) return;
  const std::uintptr_t reach = blocks_.back().first + blocks_.back().bytes;
  for (auto heap = first_heap_above(gone->first); heap != heaps_.end() && heap->first < reach; ++heap) {
    if (heap->first >= kept_end) {
      current_tool().reset_heap(heap->id);
      continue;
    }
    std::array<std::uintptr_t, listening_tool::max_closed> regions{};
    const auto end = std::ranges::lower_bound(gone, blocks_.end(), heap->last, {}, &block_record::first);
    for (auto block = gone; block != end;) {
      std::size_t n = 0;
      while (block != end && n < regions.size()) regions[n++] = (block++)->first;
      current_tool().close_regions(regions.data(), n);
    }
  }
  blocks_.erase(gone, blocks_.end());
}

}  // namespace tidemark::detail

#endif
