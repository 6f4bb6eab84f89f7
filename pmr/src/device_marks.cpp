// SPDX-License-Identifier: Apache-2.0
#include <tidemark/detail/device_marks.hpp>

#if TIDEMARK_NVTX

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace tidemark::detail {
namespace {

constexpr std::size_t first_heaps = 8;
constexpr std::size_t first_blocks = 32;

template <class T>
bool reserve_one(std::vector<T>& records, std::size_t least) noexcept {
  if (records.size() < records.capacity()) return true;
  try {
    records.reserve(std::max(least, 2 * records.capacity()));
    return true;
  } catch (...) {
    return false;
  }
}

// Bytes of a block that lie in a heap.
template <class Heap>
std::size_t part_in(Heap const& heap, std::uintptr_t first, std::size_t bytes) noexcept {
  const std::uintptr_t from = std::max(heap.first, first), to = std::min(heap.last, first + bytes);
  return from < to ? to - from : 0;
}

template <class Heap>
void open_part(Heap const& heap, std::uintptr_t first, std::size_t bytes) noexcept {
  const std::size_t part = part_in(heap, first, bytes);
  if (part != 0) current_tool().open_region(heap.id, std::max(heap.first, first), part);
}

}  // namespace

std::vector<device_marks::piece>::const_iterator device_marks::first_heap_above(
    std::uintptr_t address) const noexcept {
  return std::ranges::upper_bound(heaps_, address, {}, &piece::last);
}

bool device_marks::reserve_heap() noexcept {
  return reserve_one(heaps_, first_heaps) && reserve_one(blocks_, first_blocks);
}

bool device_marks::reserve_block() noexcept { return has_room() || reserve_one(blocks_, first_blocks); }

void device_marks::memory_came(std::uintptr_t first, std::uintptr_t last, char const* name) noexcept {
  if (!heaps_.empty()) first = std::max(first, heaps_.back().last);
  if (first >= last) return;
  const piece heap{first, last, current_tool().open_heap(first, last - first, name)};
  if (heap.id == 0) return;
  heard_ = true;
  heaps_.push_back(heap);
  const auto in_it = std::ranges::upper_bound(blocks_, first, {},
                                              [](block const& known) { return known.first + known.bytes; });
  for (block const& known : std::ranges::subrange{in_it, blocks_.end()}) {
    open_part(heap, known.first, known.bytes);
  }
}

void device_marks::memory_goes(std::uintptr_t from) noexcept {
  while (!heaps_.empty() && heaps_.back().first >= from) {
    current_tool().close_heap(heaps_.back().id);
    heaps_.pop_back();
  }
}

void device_marks::note(std::uintptr_t first, std::size_t bytes) noexcept {
  blocks_.push_back({first, bytes});
  for (auto heap = first_heap_above(first); heap != heaps_.end() && heap->first < first + bytes; ++heap) {
    open_part(*heap, first, bytes);
  }
}

void device_marks::resize(std::uintptr_t block, std::size_t bytes) noexcept {
  if (blocks_.empty() || blocks_.back().first != block) {  // it had no bytes
    hand_out(block, bytes);
    return;
  }
  change(blocks_.back(), bytes);
  if (bytes == 0) blocks_.pop_back();
}

void device_marks::change(block& known, std::size_t bytes) noexcept {
  const std::uintptr_t first = known.first;
  const std::size_t before_bytes = std::exchange(known.bytes, bytes);
  const std::uintptr_t reach = first + std::max(before_bytes, bytes);
  for (auto heap = first_heap_above(first); heap != heaps_.end() && heap->first < reach; ++heap) {
    const std::uintptr_t region = std::max(heap->first, first);
    const std::size_t before = part_in(*heap, first, before_bytes), now = part_in(*heap, first, bytes);
    if (before == now) continue;
    if (before == 0) current_tool().open_region(heap->id, region, now);
    else if (now == 0) current_tool().close_regions(&region, 1);
    else current_tool().resize_region(region, now);
  }
}

// A heap of which nothing is left is reset, in one call however many its regions are.
void device_marks::forget(std::uintptr_t from) noexcept {
  const auto gone = std::ranges::lower_bound(blocks_, from, {}, &block::first);
  std::uintptr_t kept_end = 0;
  if (gone != blocks_.begin()) {
    block& kept = *std::prev(gone);
    if (kept.first + kept.bytes > from) change(kept, from - kept.first);
    kept_end = kept.first + kept.bytes;
  }
  if (gone == blocks_.end()) return;
  const std::uintptr_t reach = blocks_.back().first + blocks_.back().bytes;
  for (auto heap = first_heap_above(gone->first); heap != heaps_.end() && heap->first < reach; ++heap) {
    if (heap->first >= kept_end) {
      current_tool().reset_heap(heap->id);
      continue;
    }
    std::array<std::uintptr_t, 64> regions{};
    std::size_t n = 0;
    for (auto block = gone; block != blocks_.end() && block->first < heap->last; ++block) {
      regions[n++] = block->first;
      if (n < regions.size()) continue;
      current_tool().close_regions(regions.data(), n);
      n = 0;
    }
    if (n != 0) current_tool().close_regions(regions.data(), n);
  }
  blocks_.erase(gone, blocks_.end());
}

}  // namespace tidemark::detail

#endif
