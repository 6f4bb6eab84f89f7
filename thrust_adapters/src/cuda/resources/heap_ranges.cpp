// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/resources/detail/heap_ranges.hpp>

#include <algorithm>
#include <utility>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/cuda/resources/detail/heap_slabs.hpp>

namespace tidemark::gpu::detail {

using tidemark::detail::align_up;

[[gnu::always_inline]] inline void free_lists::insert(heap_range& range) noexcept {
  const std::size_t bin = bin_of(range.bytes);
  heap_range *before = nullptr, *after = lists_[bin];
  for (std::size_t step = 0; step < steps && after != nullptr; ++step) {
    if (after->bytes > range.bytes || (after->bytes == range.bytes && after->begin > range.begin)) break;
    before = after;
    after = after->next_free;
  }
  range.bin = static_cast<std::uint16_t>(bin);
  range.previous_free = before;
  range.next_free = after;
  (before != nullptr ? before->next_free : lists_[bin]) = &range;
  if (after != nullptr) after->previous_free = &range;
  if (before != nullptr || after != nullptr) return;
  used_bins_[bin / 64] |= std::uint64_t{1} << bin % 64;
  used_words_ |= std::uint64_t{1} << bin / 64;
}

[[gnu::always_inline]] inline void heap_ranges::list(heap_range& range) noexcept {
  range.is_free = true;
  if (range.bytes < min_listed_bytes) return;
  returnable_bytes_ += returnable_bytes(range);
  (range.missing_units != 0 ? lacking_ : ready_).insert(range);
}

// One `add` takes one record, and one `cut` takes two.
void heap_ranges::add_records() {
  while (free_record_count_ < 3) push_free_record(records_.emplace_back());
}

heap_range& heap_ranges::add(byte_range addresses, bool is_chunk) {
  sorted_.reserve(sorted_.size() + 1);
  heap_region& region = regions_.emplace_back(addresses, is_chunk, records_.get_allocator().resource());
  sorted_.insert(std::ranges::upper_bound(sorted_, addresses.begin, {},
                                          [](heap_region const* each) { return each->addresses.begin; }),
                 &region);
  heap_range& whole = pop_free_record();
  whole.region = &region;
  whole.begin = addresses.begin;
  whole.bytes = addresses.size;
  whole.before = whole.after = nullptr;
  whole.missing_units = is_chunk ? 0 : static_cast<std::uint32_t>(addresses.size >> unit_digits_);
  region.first = region.last = &whole;
  list(whole);
  return whole;
}

byte_range heap_ranges::remove(heap_range& whole) noexcept {
  unlist(whole);
  push_free_record(whole);
  heap_region* const gone = whole.region;
  const byte_range addresses = gone->addresses;
  if (latest_ == gone) latest_ = &no_region_;
  std::erase(sorted_, gone);
  regions_.remove_if([=](heap_region const& each) { return &each == gone; });
  return addresses;
}

std::uintptr_t heap_ranges::place_in(heap_range const& range, std::size_t bytes, std::size_t align) noexcept {
  const std::uintptr_t begin = align_up(range.begin, align);
  const bool fits = begin >= range.begin && begin - range.begin <= range.bytes &&
                    bytes <= range.bytes - (begin - range.begin);
  return fits ? begin : 0;
}

heap_range* heap_ranges::best_aligned_fit(heap_range& first, std::size_t bytes,
                                          std::size_t align) const noexcept {
  heap_range* at = &first;
  for (int tries = 0; at != nullptr && tries < 8; ++tries) {
    if (place_in(*at, bytes, align) != 0) return at;
    at = ready_.next(*at);
  }
  return align > granule_bytes ? ready_.first(tidemark::detail::add_saturating(bytes, align)) : nullptr;
}

// Cuts a range off after its first bytes. @return the rest, a new range
heap_range& heap_ranges::split(heap_range& range, std::size_t bytes) noexcept {
  heap_range& rest = pop_free_record();
  rest.region = range.region;
  rest.begin = range.begin + bytes;
  rest.bytes = range.bytes - bytes;
  rest.before = &range;
  rest.after = range.after;
  (rest.after != nullptr ? rest.after->before : range.region->last) = &rest;
  range.bytes = bytes;
  range.after = &rest;
  return rest;
}

heap_range& heap_ranges::cut(heap_range& from, std::uintptr_t begin, std::size_t bytes,
                             std::uint32_t missing_before) noexcept {
  unlist(from);
  const std::uint32_t missing = from.missing_units;
  heap_range* taken = &from;
  if (begin != from.begin) {
    taken = &split(from, begin - from.begin);
    from.missing_units = missing_before;
    list(from);
  }
  if (bytes != taken->bytes) {
    heap_range& rest = split(*taken, bytes);
    rest.missing_units = missing - missing_before;
    list(rest);
  }
  taken->is_free = false;
  taken->missing_units = 0;
  taken->slab = nullptr;
  heap_range*& first = taken->region->first_live(begin);
  if (first == nullptr || first->begin > begin) first = taken;
  return *taken;
}

heap_range& heap_ranges::free_and_merge(heap_range& live) noexcept {
  heap_range *const before = live.before, *after = live.after, *merged = &live;
  const bool joins_before = before != nullptr && before->is_free,
             joins_after = after != nullptr && after->is_free;
  if (live.slab != nullptr) [[unlikely]]
    enter(live, no_slab);
  heap_range*& first = live.region->first_live(live.begin);
  if (first == &live) first = live.bytes < heap_region::section_bytes ? next_of_section(live) : nullptr;
  if (joins_after) {
    unlist(*after);
    live.bytes += after->bytes;
    live.missing_units += after->missing_units;
    push_free_record(*std::exchange(after, after->after));
  }
  if (joins_before) {
    unlist(*before);
    before->bytes += live.bytes;
    before->missing_units += live.missing_units;
    push_free_record(*std::exchange(merged, before));
  }
  merged->after = after;
  (after != nullptr ? after->before : merged->region->last) = merged;
  list(*merged);
  return *merged;
}

void heap_ranges::set_missing(heap_range& range, std::size_t units) noexcept {
  unlist(range);
  range.missing_units = static_cast<std::uint32_t>(units);
  list(range);
}

void heap_ranges::free_all() noexcept {
  for (heap_region& region : regions_) {
    for (heap_range* range = region.first; range != nullptr; range = range->after) {
      if (!range->is_free && !range->is_retired) range = &free_and_merge(*range);
    }
  }
}

// ---- pages ------------------------------------------------------------------------------------------------

// Enters a slab in the pages whose first byte the range covers.
void heap_ranges::enter(heap_range& live, heap_slab& slab) noexcept {
  heap_region& region = *live.region;
  const std::size_t last = region.page_of(live.end() - 1);
  for (std::size_t page = region.page_of(live.begin + heap_region::page_bytes - 1); page <= last; ++page)
    region.slabs[page] = &slab;
}

// Returns the next live range that begins in the same section. No two free ranges touch.
heap_range* heap_ranges::next_of_section(heap_range const& live) noexcept {
  heap_range* next = live.after;
  if (next != nullptr && next->is_free) next = next->after;
  return next != nullptr && &live.region->first_live(next->begin) == &live.region->first_live(live.begin)
             ? next
             : nullptr;
}

void heap_ranges::find_region(std::uintptr_t address) const noexcept {
  const auto above = std::ranges::upper_bound(sorted_, address, {},
                                              [](heap_region const* each) { return each->addresses.begin; });
  if (above != sorted_.begin() && above[-1]->addresses.contains(address)) latest_ = above[-1];
}

// ---- free ranges ------------------------------------------------------------------------------------------

heap_range* free_lists::last_below(std::size_t bin) const noexcept {
  const auto top_bit = [](std::uint64_t bits) { return static_cast<std::size_t>(std::bit_width(bits)) - 1; };
  if (bin-- == 0) return nullptr;
  std::size_t word = bin / 64;
  std::uint64_t used = used_bins_[word] & (~std::uint64_t{} >> (63 - bin % 64));
  if (used == 0) {
    const std::uint64_t words = used_words_ & ~(~std::uint64_t{} << word);
    if (words == 0) return nullptr;
    word = top_bit(words);
    used = used_bins_[word];
  }
  heap_range* at = lists_[word * 64 + top_bit(used)];
  while (at->next_free != nullptr) at = at->next_free;
  return at;
}

bool free_lists::contains(heap_range const& range) const noexcept {
  const std::size_t bin = bin_of(range.bytes);
  heap_range const* at = lists_[bin];
  while (at != nullptr && at != &range) at = at->next_free;
  return at != nullptr && range.bin == bin && (used_bins_[bin / 64] >> bin % 64 & 1) != 0;
}

std::size_t free_lists::count() const noexcept {
  std::size_t ranges = 0;
  for (heap_range const* at : lists_) {
    for (; at != nullptr; at = at->next_free) ++ranges;
  }
  return ranges;
}

char const* heap_ranges::broken_invariant() const noexcept {
  std::size_t free = 0, returnable = 0;
  for (heap_region const& region : regions_) {
    std::uintptr_t next = region.addresses.begin;
    heap_range const* before = nullptr;
    for (heap_range const* range = region.first; range != nullptr; range = range->after) {
      if (range->region != &region || range->before != before || range->begin != next || range->bytes == 0)
        return "ranges of a region are sorted and cover it";
      if (range->missing_units > units_over(range->bytes)) return "missing_units <= units";
      if (range->is_free) {
        if (before != nullptr && before->is_free) return "no two free ranges touch";
        if (range->bytes >= min_listed_bytes) {
          if (!(range->missing_units != 0 ? lacking_ : ready_).contains(*range))
            return "each free range is in its list";
          ++free;
          returnable += returnable_bytes(*range);
        }
      } else if (live_from(range->begin, range->bytes) != range ||
                 (range->slab != nullptr && (&slab_at(region, range->begin) != range->slab ||
                                             &slab_at(region, range->end() - 1) != range->slab))) {
        return "tables name the live range behind an address";
      }
      before = range;
      next = range->end();
    }
    if (before != region.last || next != region.addresses.end()) return "ranges of a region cover it";
  }
  if (free != ready_.count() + lacking_.count()) return "the lists have free ranges only";
  if (returnable != returnable_bytes_) return "returnable_bytes == sum over free ranges";
  return nullptr;
}

}  // namespace tidemark::gpu::detail
