// SPDX-License-Identifier: Apache-2.0
#include <tidemark/diagnose/detail/device_marks.hpp>

#if TIDEMARK_NVTX

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace tidemark::detail {

bool device_marks::reserve() noexcept {
  constexpr std::size_t first_blocks = 32;
  try {
    if (blocks_.size() == blocks_.capacity()) blocks_.reserve(std::max(first_blocks, 2 * blocks_.size()));
    return true;
  } catch (...) {
    return false;
  }
}

void device_marks::on_commit(std::uintptr_t first, std::uintptr_t last, char const* name) noexcept {
  if (first >= last || (heap_ != 0 && last <= end_)) return;
  const std::uintptr_t begin = begin_ == 0 ? first : begin_;
  on_decommit(begin);
  begin_ = begin;
  end_ = last;
  name_ = name;
  heap_ = current_tool().open_heap(begin_, end_ - begin_, name);
  if (heap_ == 0) return;
  heard_ = true;
  for (byte_range const& known : blocks_) current_tool().open_region(heap_, known.begin, known.size, name);
}

void device_marks::on_decommit(std::uintptr_t from, std::uintptr_t) noexcept {
  if (begin_ < from) return;
  begin_ = 0;  // the record may get the memory of another chunk
  if (heap_ != 0) current_tool().close_heap(std::exchange(heap_, 0));
}

void device_marks::open(std::uintptr_t first, std::size_t bytes) noexcept {
  blocks_.push_back({first, 0});
  resize(blocks_.back(), bytes);
}

void device_marks::on_resize(std::uintptr_t block, std::size_t bytes, std::size_t) noexcept {
  const bool had_bytes = !blocks_.empty() && blocks_.back().begin == block;
  if (!had_bytes) return on_allocate(block, bytes);
  resize(blocks_.back(), bytes);
  if (bytes == 0) blocks_.pop_back();
}

void device_marks::resize(byte_range& known, std::size_t bytes) noexcept {
  const std::size_t before = std::exchange(known.size, bytes);
  if (heap_ == 0 || before == bytes) return;
  if (before == 0) current_tool().open_region(heap_, known.begin, bytes, name_);
  else if (bytes == 0) current_tool().close_regions(&known.begin, 1);
  else current_tool().resize_region(known.begin, bytes);
}

// Resets a heap that becomes empty, which takes one call for any number of regions.
void device_marks::close(std::uintptr_t from) noexcept {
  const auto gone = std::ranges::lower_bound(blocks_, from, {}, &byte_range::begin);
  if (gone != blocks_.begin()) {
    byte_range& kept = *std::prev(gone);
    if (kept.end() > from) resize(kept, from - kept.begin);
  } else if (heap_ != 0) {
    current_tool().reset_heap(heap_);
  }
  std::array<std::uintptr_t, listening_tool::max_closed> regions{};
  for (auto block = gone; heap_ != 0 && gone != blocks_.begin() && block != blocks_.end();) {
    std::size_t n = 0;
    while (block != blocks_.end() && n < regions.size()) regions[n++] = (block++)->begin;
    current_tool().close_regions(regions.data(), n);
  }
  blocks_.erase(gone, blocks_.end());
}

}  // namespace tidemark::detail

#endif
