// SPDX-License-Identifier: Apache-2.0
// The ranges of blocks and slabs: where a request is placed.
#include <tidemark/cuda/resources/detail/device_heap.hpp>

#include <algorithm>
#include <limits>
#include <new>
#include <span>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>

#include "../driver/driver_errors.hpp"

namespace tidemark::gpu::detail {
namespace {

using tidemark::detail::add_saturating;
using tidemark::detail::align_up;
using tidemark::detail::free_result;

// Many times the device's memory, because blocks move to new addresses as free ranges get short.
constexpr std::size_t addresses_per_byte_of_memory = 8;
// Maximum free ranges without full memory that are tried for one block.
constexpr int places_tried = 16;
// Freed units after which the next mark is recorded, if these are more than a 12th of the held units.
constexpr std::size_t least_units_per_mark = 8;
constexpr std::size_t max_chunk_bytes = 64 * MiB;

}  // namespace

inline heap_range& device_heap::cut(heap_range& from, std::uintptr_t begin, std::size_t bytes,
                                    std::uint32_t missing_before) noexcept {
  cut_bytes_ += bytes;
  all_cut_bytes_ += bytes;
  peak_cut_bytes_ = std::max(peak_cut_bytes_, cut_bytes_);
  heap_range& taken = ranges_.cut(from, begin, bytes, missing_before);
  if (stranded_idle_bytes_ != 0) stranded_idle_bytes_ = std::min(stranded_idle_bytes_, idle_bytes());
  return taken;
}

// Slabs and blocks smaller than a unit take the end of the range, larger blocks the beginning. Blocks of
// similar sizes thus become neighbours, and their free ranges merge into larger ones. Memory of graphs does
// not move, and its low end is reused most. If a program with plans begins, blocks of whole units begin at a
// unit: they live long, and memory that is freed beside them then has whole units too.
inline heap_range& device_heap::cut_ready(heap_range& ready, std::size_t bytes, std::size_t align) noexcept {
  const bool at_end = bytes < unit_bytes_ && !keeps_addresses_;
  std::uintptr_t begin =
      at_end ? tidemark::detail::align_down(ready.end() - bytes, align) : align_up(ready.begin, align);
  if (begins_plans() && (bytes & (unit_bytes_ - 1)) == 0) [[unlikely]] {
    const std::uintptr_t unit = align_up(begin, std::max(align, unit_bytes_));
    if (unit + bytes <= ready.end()) begin = unit;
  }
  return cut(ready, begin, bytes);
}

// The second try selects a new place, because slabs and callbacks of the budget may free blocks of this heap.
// Free chunks are returned first, because the upstream may need them.
heap_range& device_heap::allocate_range(std::size_t bytes, std::size_t align) {
  char const* refusal = "";
  try {
    if (heap_range* const taken = try_allocate_range(bytes, align, refusal)) return *taken;
    (void)make_room();
  } catch (std::bad_alloc const&) {
    if (!make_room()) throw;
  }
  if (heap_range* const taken = try_allocate_range(bytes, align, refusal)) return *taken;
  if (!keeps_addresses_) release_unmapped_handles();  // others may need less
  refuse(bytes, align, refusal);
}

// @return true if there may be more memory now
bool device_heap::make_room() {
  free_empty_slabs();
  const std::size_t released = upstream_ != nullptr ? release_free(0) : 0;
  const bool relieved = budget_->relieve(&budget_subscription_);
  free_empty_slabs();
  return relieved || released != 0;
}

heap_range* device_heap::try_allocate_range(std::size_t bytes, std::size_t align, char const*& refusal) {
  ranges_.prepare();
  if (heap_range* const ready = ranges_.best_fit(bytes, align)) return &cut_ready(*ready, bytes, align);
  if (upstream_ == nullptr) {
    try {
      return map_range(bytes, align, refusal);
    } catch (cuda_error const& error) {
      if (error.status() != status::not_supported || !try_replace_mapping_by_chunks()) throw;
    }
  }
  const std::size_t padded = add_saturating(bytes, align - default_alignment);
  if (padded > tidemark::detail::max_block_bytes) refuse(bytes, align, "");
  ranges_.prepare();
  heap_range& chunk = add_chunk(padded);
  ++misses_;
  return &cut_ready(chunk, bytes, align);
}

void* device_heap::allocate_ready(std::size_t bytes) noexcept {
  if (bytes > tidemark::detail::max_block_bytes || !ranges_.is_prepared()) return nullptr;
  const std::size_t size = align_up(bytes, heap_ranges::granule_bytes);
  heap_range* const ready = ranges_.ready().first(size);
  if (ready == nullptr) return nullptr;
  requested_bytes_ += bytes;
  ++large_allocations_;
  return reinterpret_cast<void*>(cut_ready(*ready, size, default_alignment).begin);
}

heap_range* device_heap::map_range(std::size_t bytes, std::size_t align, char const*& refusal) {
  if (bytes > total_bytes_ || align > addresses_per_byte_of_memory * total_bytes_) {
    refusal = device_memory_exhausted;
    return nullptr;
  }
  // Memory that was gathered before a refusal may be sufficient.
  const auto cut_ready_range = [&]() -> heap_range* {
    ranges_.prepare();  // `map` may have retired a range
    heap_range* const fits = ranges_.best_fit(bytes, align);
    return fits != nullptr ? &cut_ready(*fits, bytes, align) : nullptr;
  };
  placement to = cheapest_place(bytes, align);
  const auto cut_place = [&]() -> heap_range& {
    const bool is_at_begin = to.begin == to.range->begin;  // then no unit lies before the block
    return cut(*to.range, to.begin, bytes, is_at_begin ? 0 : missing_before(*to.range, to.begin));
  };
  if (to.range != nullptr && to.missing == 0) return &cut_place();
  const on_device here{*driver_, device_};
  require_memory(*driver_, "cudaSetDevice", here.result(), name_);
  if (!may_map()) {
    refusal = no_mapping_in_captures;
    return cut_ready_range();
  }
  if (to.range == nullptr) {
    heap_range* const added = add_reservation(add_saturating(bytes, align > unit_bytes_ ? align : 0));
    if (added == nullptr) {
      refusal = no_addresses;
      return cut_ready_range();
    }
    to = cheapest_place_in(*added, bytes, align);
  }
  heap_region& region = *to.range->region;
  if (region.units.size() < to.last) {
    region.freed_at.resize(to.last, 0);
    region.units.resize(to.last, 0);
  }
  if (!gather(to, cut_bytes_ + bytes, refusal)) return cut_ready_range();
  const outcome mapped = map(to);
  if (mapped.result == status::out_of_memory) {
    refusal = device_memory_exhausted;
    return cut_ready_range();
  }
  require_success(*driver_, mapped.call, mapped.result);
  heap_range& taken = cut_place();
  ++misses_;
  return &taken;
}

inline void device_heap::free_range(heap_range& live) noexcept {
  cut_bytes_ -= live.bytes;
  freed_since_mark_ += live.bytes;
  if (!live.region->is_chunk) {
    const std::uintptr_t base = live.region->addresses.begin;
    const std::size_t unit = ranges_.unit_at(live.begin - base),
                      units = ranges_.units_over(live.end() - base) - unit;
    std::uint32_t* const freed_at = live.region->freed_at.data() + unit;
    const std::uint32_t mark = marks_.next();
    constexpr std::size_t few = 8;  // written without a branch, because their number is hard to predict
    for (std::size_t i = 0; i < few; ++i) freed_at[std::min(i, units - 1)] = mark;
    for (std::size_t i = few; i < units; ++i) freed_at[i] = mark;
  }
  (void)ranges_.free_and_merge(live);
  if (marks_due_ != 0) [[unlikely]]
    record_due_mark();
}

void device_heap::free_slab(heap_slab& slab) noexcept {
  slab_bytes_ -= slab.range->bytes;
  free_range(slabs_.close(slab));
}

// @return `not_listed`, with nothing done, if no such block is live
free_result device_heap::deallocate_large(void* block, std::size_t bytes) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  heap_range* const range = ranges_.live_from(address, large_size(bytes));
  if (range == nullptr || range->slab != nullptr || range->is_retired) return free_result::not_listed;
  requested_bytes_ -= bytes;
  ++large_deallocations_;
  free_range(*range);
  return cached_bytes() > watermark_bytes_ ? free_result::over_watermark : free_result::listed;
}

void device_heap::record_due_mark() noexcept {
  if (freed_since_mark_ < std::max(held_bytes_ / 12, least_units_per_mark * unit_bytes_)) return;
  const on_device here{*driver_, device_};
  record_mark();
  --marks_due_;
}

// ---- memory behind addresses ------------------------------------------------------------------------------

device_heap::placement device_heap::place_at(heap_range& range, std::uintptr_t begin,
                                             std::size_t bytes) const noexcept {
  heap_region const& region = *range.region;
  placement here{.range = &range,
                 .begin = begin,
                 .first = ranges_.unit_at(begin - region.addresses.begin),
                 .last = ranges_.units_over(begin + bytes - region.addresses.begin)};
  const std::span below{region.units.data(), std::min(region.units.size(), here.last)};
  const std::span known = below.subspan(std::min(below.size(), here.first));
  here.missing =
      here.last - here.first - known.size() + static_cast<std::size_t>(std::ranges::count(known, 0u));
  return here;
}

// Finds the place in a free range with the fewest units without memory, and the lowest of these places. The
// place is the start of the range or of a unit. Returns no range if the block does not fit.
device_heap::placement device_heap::cheapest_place_in(heap_range& range, std::size_t bytes,
                                                      std::size_t align) const noexcept {
  const std::uintptr_t lowest = heap_ranges::place_in(range, bytes, align);
  if (lowest == 0) return {};
  heap_region const& region = *range.region;
  placement best = place_at(range, lowest, bytes);
  const std::size_t units = ranges_.units_over(bytes);
  const auto lacks = [&](std::size_t unit) { return unit >= region.units.size() || region.units[unit] == 0; };
  std::size_t first = ranges_.units_over(range.begin - region.addresses.begin);
  if (best.missing == 0 || align > unit_bytes_ || first >= region.units.size()) return best;
  std::uintptr_t begin = region.addresses.begin + first * unit_bytes_;
  if (begin > range.end() || bytes > range.end() - begin) return best;
  std::size_t missing = place_at(range, begin, bytes).missing, fewest = best.missing;
  for (std::uintptr_t at = begin;;) {
    if (missing < fewest) {
      fewest = missing;
      begin = at;
    }
    missing += std::size_t{lacks(first + units)} - std::size_t{lacks(first)};
    at += unit_bytes_;
    if (++first >= region.units.size() || at > range.end() || bytes > range.end() - at) break;
  }
  return fewest < best.missing ? place_at(range, begin, bytes) : best;
}

// Prefers the fewest units without memory, then the smallest range. Always includes the largest free range.
device_heap::placement device_heap::cheapest_place(std::size_t bytes, std::size_t align) const noexcept {
  placement best;
  const auto consider = [&](heap_range* range) {
    const placement here = cheapest_place_in(*range, bytes, align);
    if (here.range != nullptr && (best.range == nullptr || here.missing < best.missing)) best = here;
  };
  int tries = places_tried;
  free_lists const& lacking = ranges_.lacking();
  for (heap_range* at = lacking.first(bytes); at != nullptr && --tries >= 0; at = lacking.next(*at)) {
    consider(at);
    if (best.range != nullptr && best.missing == 0) return best;
  }
  if (tries < 0) consider(lacking.last());
  return best;
}

// @return the free range of new addresses; null if the driver has none
heap_range* device_heap::add_reservation(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) return nullptr;
  const std::size_t most = (keeps_addresses_ ? 1 : addresses_per_byte_of_memory) * total_bytes_;
  const byte_range range = reserve_addresses(*driver_, align_up(bytes, unit_bytes_), most, unit_bytes_);
  if (range.empty()) return nullptr;
  try {
    return &ranges_.add(range, false);
  } catch (...) {
    (void)driver_->free_reservation(range);
    throw;
  }
}

// A chunk is a quarter as large as all chunks before it, which keeps the number and the unused parts small.
heap_range& device_heap::add_chunk(std::size_t bytes) {
  const std::size_t wanted = std::clamp(held_bytes_ / 4, 2 * MiB, max_chunk_bytes);
  constexpr std::size_t granule = heap_ranges::granule_bytes;
  const byte_range chunk =
      tidemark::detail::allocate_by_halves(*upstream_, align_up(bytes, granule) / granule,
                                           std::max(bytes, wanted) / granule, granule, default_alignment);
  try {
    heap_range& added = ranges_.add(chunk, true);
    held_bytes_ += chunk.size;
    return added;
  } catch (...) {
    upstream_->deallocate(chunk.data(), chunk.size, default_alignment);
    throw;
  }
}

}  // namespace tidemark::gpu::detail
