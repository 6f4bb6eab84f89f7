// SPDX-License-Identifier: Apache-2.0
/// @file
/// `heap_ranges`: the live and free ranges of a heap's addresses, with a best-fit search in the free ranges.
/// Owns records, not memory.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory_resource>
#include <utility>
#include <vector>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/units.hpp>

namespace tidemark::gpu::detail {

struct heap_range;
struct heap_region;
struct heap_slab;

/// Means "no slab" in tables: it begins above every address and has no block. Never changes.
extern heap_slab no_slab;

/// A live or free part of a region, in one cache line.
struct alignas(64) heap_range {
  heap_region* region = nullptr;
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  heap_range* before = nullptr;  // neighbours in the region; null at its ends
  heap_range* after = nullptr;
  heap_range* previous_free = nullptr;  // free range: neighbour in its list
  union {
    heap_range* next_free = nullptr;  // free range: neighbour in its list; unused record: the next one
    heap_slab* slab;                  // live range: its slab; null unless it is cut into small blocks
  };
  std::uint32_t missing_units = 0;  // free range: its units without memory
  std::uint16_t bin = 0;            // free range: its list
  bool is_free = false;
  bool is_retired = false;  // live range: holds no block; see `retire`

  [[nodiscard]] std::uintptr_t end() const noexcept { return begin + bytes; }
};
static_assert(sizeof(heap_range) == 64);

/// One reservation of addresses, or a chunk of an upstream.
struct heap_region {
  static constexpr std::size_t page_bytes = 64 * KiB, section_bytes = 1 * MiB;

  byte_range addresses;
  bool is_chunk = false;        // a chunk is fully backed by memory and returned as a whole
  heap_range* first = nullptr;  // first of the ranges that cover `addresses`
  heap_range* last = nullptr;
  std::size_t paged_bytes = 0;  // bytes with entries in `slabs`
  // By page, and for the page after them: the slab that covers its first byte, or `no_slab`.
  std::pmr::vector<heap_slab*> slabs;
  std::pmr::vector<heap_range*> live;  // by offset / section_bytes: the first live range that begins there
  std::pmr::vector<unsigned long long> units;  // handles of physical memory; 0: no memory
  std::pmr::vector<std::uint32_t> freed_at;    // by unit: stream mark before which it is in use

  heap_region(byte_range range, bool chunk, std::pmr::memory_resource* bookkeeping)
      : addresses{range},
        is_chunk{chunk},
        slabs{bookkeeping},
        live{bookkeeping},
        units{bookkeeping},
        freed_at{bookkeeping} {
    if (chunk) reserve_pages(range.end());
  }
  [[nodiscard]] std::size_t page_of(std::uintptr_t address) const noexcept {
    return (address - addresses.begin) / page_bytes;
  }
  [[nodiscard]] heap_range*& first_live(std::uintptr_t begin) noexcept {
    return live[(begin - addresses.begin) / section_bytes];
  }
  /// Reserves entries of `slabs` and `live` up to an address, before its units get memory. @throws the
  /// exceptions of the bookkeeping resource.
  void reserve_pages(std::uintptr_t end) {
    const std::size_t count = page_of(end - 1) + 1;
    if (count * page_bytes <= paged_bytes) return;
    live.resize((count * page_bytes - 1) / section_bytes + 1, nullptr);
    slabs.resize(count + 1, &no_slab);
    paged_bytes = count * page_bytes;
  }
};

/// Free ranges in lists by size, 256 for each power of two, as in TLSF (Masmano and others, 2004). A list is
/// sorted by size and address. An insertion or a search ends after 32 steps, so that later parts of a long
/// list may be unsorted; a bin's sizes differ by at most 0.4 %, or are all above 4 GiB.
///
/// Invariants: `used_bins_` has the bits of the lists that are not empty, and `used_words_` the bits of the
/// words of `used_bins_` that are not 0. Complexity: O(1), but `first` searches a list to its end if no later
/// list has a range; `last` and `previous` O(list).
class free_lists {
 public:
  explicit free_lists(std::pmr::memory_resource* bookkeeping) : lists_(bin_count, bookkeeping) {}

  void insert(heap_range& range) noexcept;
  void erase(heap_range& range) noexcept;
  /// Returns the smallest range of at least this size; null if there is none.
  [[nodiscard]] heap_range* first(std::size_t bytes) const noexcept;
  [[nodiscard]] heap_range* last() const noexcept { return last_below(bin_count); }
  /// Returns the next range in the order of sizes; null at the end.
  [[nodiscard]] heap_range* next(heap_range const& range) const noexcept {
    return range.next_free != nullptr ? range.next_free : first_from(range.bin + 1);
  }
  [[nodiscard]] heap_range* previous(heap_range const& range) const noexcept {
    return range.previous_free != nullptr ? range.previous_free : last_below(range.bin);
  }
  /// Returns true if the range is in its list. O(list).
  [[nodiscard]] bool contains(heap_range const& range) const noexcept;
  /// Returns the number of ranges. O(ranges).
  [[nodiscard]] std::size_t count() const noexcept;

 private:
  static constexpr std::size_t granule_bytes = 512, bins_per_doubling = 256, bin_count = 4096, steps = 32;
  // The last bin also has all larger ranges.
  [[nodiscard]] static std::size_t bin_of(std::size_t bytes) noexcept {
    const std::size_t granules = bytes / granule_bytes;
    const auto shift = static_cast<std::size_t>(std::bit_width(granules | bins_per_doubling)) -
                       std::bit_width(bins_per_doubling);
    return (std::min)(shift * bins_per_doubling + (granules >> shift), bin_count - 1);
  }
  [[nodiscard]] heap_range* first_from(std::size_t bin) const noexcept;
  [[nodiscard]] heap_range* last_below(std::size_t bin) const noexcept;

  std::pmr::vector<heap_range*> lists_;  // first range of each list
  std::array<std::uint64_t, bin_count / 64> used_bins_{};
  std::uint64_t used_words_ = 0;
};

/// The ranges of all regions of a heap.
///
/// Ranges cover every region, and no two free ranges of a region touch. A live range has at least
/// `heap_region::page_bytes` bytes.
///
/// Best fit returns the smallest sufficient free range, and the lowest address among equals, within the
/// limits of `free_lists`.
///
/// Invariants: ranges of a region are sorted and cover it; `missing_units <= units`; free ranges of a page or
/// more are in the lists; `returnable_bytes()` is the sum over free ranges. Complexity: O(1) unless stated
/// otherwise. Thread-safety: one thread at a time.
class heap_ranges {
 public:
  /// Granule of sizes, and of addresses within a region.
  static constexpr std::size_t granule_bytes = 512;

  explicit heap_ranges(std::pmr::memory_resource* bookkeeping)
      : records_{bookkeeping},
        ready_{bookkeeping},
        lacking_{bookkeeping},
        regions_{bookkeeping},
        sorted_{bookkeeping},
        no_region_{{}, false, bookkeeping} {}
  heap_ranges(heap_ranges const&) = delete;
  heap_ranges& operator=(heap_ranges const&) = delete;
  ~heap_ranges() = default;

  /// Sets the bytes of a physical handle, a power of two and at least `heap_region::page_bytes`. @pre The
  /// heap has no region.
  void set_unit_bytes(std::size_t bytes) noexcept {
    unit_bytes_ = bytes;
    unit_digits_ = static_cast<unsigned>(std::countr_zero(bytes));
  }

  /// Reserves records for one `add` and one `cut`. @throws the exceptions of the bookkeeping resource;
  /// nothing has changed then.
  void prepare() {
    if (!is_prepared()) [[unlikely]]
      add_records();
  }
  /// Returns true if `prepare` would reserve no record.
  [[nodiscard]] bool is_prepared() const noexcept { return free_record_count_ >= 3; }
  /// Adds a free range, without memory unless it is a chunk. @pre `prepare()` was called. @throws as
  /// `prepare`.
  heap_range& add(byte_range addresses, bool is_chunk);
  /// Removes a region that is one free range. @return its addresses.
  byte_range remove(heap_range& whole) noexcept;

  /// Returns the free range with memory that fits best; null if there is no such range. Tries up to 8 ranges
  /// before it assumes the largest padding for `align`.
  [[nodiscard]] heap_range* best_fit(std::size_t bytes, std::size_t align) const noexcept {
    heap_range* const first = ready_.first(bytes);
    return first == nullptr || first->begin % align == 0 ? first : best_aligned_fit(*first, bytes, align);
  }
  /// Returns the free ranges with memory.
  [[nodiscard]] free_lists const& ready() const noexcept { return ready_; }
  /// Returns the free ranges that lack memory.
  [[nodiscard]] free_lists const& lacking() const noexcept { return lacking_; }
  /// Order of the free ranges that lack memory.
  enum class visit_order { smallest_first, largest_first };
  /// Calls `visit` with free ranges until it returns false: ranges that lack memory, then the other ranges
  /// from the largest on. `visit` may call `set_missing`, `cut` or `retire` for the range.
  template <class Visit>
  void visit_free(visit_order of_lacking, Visit visit) {
    for (free_lists const* lists : {&lacking_, &ready_}) {
      const bool ascends = lists == &lacking_ && of_lacking == visit_order::smallest_first;
      for (heap_range* range = ascends ? lists->first(0) : lists->last(); range != nullptr;) {
        // Found before the range moves to another list.
        heap_range* const next = ascends ? lists->next(*range) : lists->previous(*range);
        if (!visit(*range)) return;
        range = next;
      }
    }
  }
  /// Returns the start of a block in a free range; 0 if the block does not fit.
  [[nodiscard]] static std::uintptr_t place_in(heap_range const& range, std::size_t bytes,
                                               std::size_t align) noexcept;

  /// Makes a part of a free range a live range. @param missing_before units without memory before the part.
  /// @pre The part has memory; `prepare()` was called.
  heap_range& cut(heap_range& from, std::uintptr_t begin, std::size_t bytes,
                  std::uint32_t missing_before) noexcept;
  /// Makes a live range free. @return the free range that contains it
  heap_range& free_and_merge(heap_range& live) noexcept;
  /// Makes units of a free range a live range without a block, which no later block gets. Parameters and
  /// preconditions are those of `cut`.
  void retire(heap_range& from, std::uintptr_t begin, std::size_t bytes,
              std::uint32_t missing_before) noexcept {
    cut(from, begin, bytes, missing_before).is_retired = true;
  }
  /// Makes a retired range free, without memory.
  void restore(heap_range& retired) noexcept {
    retired.is_retired = false;
    retired.missing_units = static_cast<std::uint32_t>(retired.bytes >> unit_digits_);
    (void)free_and_merge(retired);
  }
  /// Records a change of the memory of a free range.
  void set_missing(heap_range& range, std::size_t units) noexcept;
  /// Enters a slab in the pages whose first byte it covers.
  void set_slab(heap_range& live, heap_slab& slab) noexcept {
    live.slab = &slab;
    enter(live, slab);
  }
  /// Returns the live range with this begin and size; null if there is no such range. O(1) for a heap of one
  /// region, else O(log(regions)).
  [[nodiscard, gnu::always_inline]] heap_range* live_from(std::uintptr_t address,
                                                          std::size_t bytes) const noexcept {
    heap_region const* const region = region_of(address);
    if (region == nullptr) return nullptr;
    const std::size_t at = (address - region->addresses.begin) / heap_region::section_bytes;
    heap_range* found = at < region->live.size() ? region->live[at] : nullptr;
    while (found != nullptr && found->begin < address) found = found->after;
    return found != nullptr && found->begin == address && found->bytes == bytes && !found->is_free ? found
                                                                                                   : nullptr;
  }
  /// Returns the region that contains the address, or null. O(1) for a heap of one region, else
  /// O(log(regions)).
  [[nodiscard]] heap_region* region_of(std::uintptr_t address) const noexcept {
    if (!latest_->addresses.contains(address)) find_region(address);
    return latest_->addresses.contains(address) ? latest_ : nullptr;
  }
  /// Returns the region of the last address, or an empty region.
  [[nodiscard]] heap_region const& latest_region() const noexcept { return *latest_; }

  [[nodiscard]] std::pmr::list<heap_region>& regions() noexcept { return regions_; }
  [[nodiscard]] std::pmr::list<heap_region> const& regions() const noexcept { return regions_; }
  /// Makes every live range free, except retired ranges. O(ranges).
  void free_all() noexcept;

  /// Returns the bytes of whole units, or whole chunks, with memory and without live blocks.
  [[nodiscard]] std::size_t returnable_bytes() const noexcept { return returnable_bytes_; }
  [[nodiscard]] std::size_t returnable_bytes(heap_range const& range) const noexcept {
    if (range.region->is_chunk) return range.before == nullptr && range.after == nullptr ? range.bytes : 0;
    const auto [first, last] = whole_units(range);
    return (last - first - range.missing_units) << unit_digits_;
  }
  /// The units that are wholly in a range, as indices [first, last).
  struct unit_span {
    std::size_t first, last;
  };
  [[nodiscard]] unit_span whole_units(heap_range const& range) const noexcept {
    const std::uintptr_t base = range.region->addresses.begin;
    const std::size_t first = units_over(range.begin - base);
    return {first, (std::max)(first, (range.end() - base) >> unit_digits_)};
  }
  /// Returns the units that cover the first bytes of a region.
  [[nodiscard]] std::size_t units_over(std::size_t bytes) const noexcept {
    return (bytes + unit_bytes_ - 1) >> unit_digits_;
  }
  /// Returns the unit of a byte of a region.
  [[nodiscard]] std::size_t unit_at(std::size_t offset) const noexcept { return offset >> unit_digits_; }
  /// Returns the first invariant that does not hold, as a formula; null if all hold. O(ranges).
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  // Smaller free ranges serve no block and have no whole unit, so they are in no list.
  static constexpr std::size_t min_listed_bytes = heap_region::page_bytes;

  TIDEMARK_COLD void add_records();
  void find_region(std::uintptr_t address) const noexcept;
  [[nodiscard]] heap_range& pop_free_record() noexcept {
    --free_record_count_;
    return *std::exchange(free_records_, free_records_->next_free);
  }
  void push_free_record(heap_range& range) noexcept {
    ++free_record_count_;
    range.next_free = std::exchange(free_records_, &range);
  }
  void list(heap_range& range) noexcept;
  void unlist(heap_range& range) noexcept;
  [[nodiscard]] TIDEMARK_COLD heap_range* best_aligned_fit(heap_range& first, std::size_t bytes,
                                                           std::size_t align) const noexcept;
  [[nodiscard]] heap_range& split(heap_range& range, std::size_t bytes) noexcept;
  TIDEMARK_COLD static void enter(heap_range& live, heap_slab& slab) noexcept;
  [[nodiscard]] static heap_range* next_of_section(heap_range const& live) noexcept;

  std::size_t unit_bytes_ = 2 * MiB;
  unsigned unit_digits_ = 21;  // a unit has this power of two of bytes
  std::pmr::deque<heap_range> records_;
  heap_range* free_records_ = nullptr;  // unused records
  std::size_t free_record_count_ = 0;
  free_lists ready_, lacking_;  // free ranges with memory, and without part of it
  std::pmr::list<heap_region> regions_;
  std::pmr::vector<heap_region*> sorted_;      // by address
  heap_region no_region_;                      // empty
  mutable heap_region* latest_ = &no_region_;  // region of the last address
  std::size_t returnable_bytes_ = 0;
};

inline void free_lists::erase(heap_range& range) noexcept {
  if (range.next_free != nullptr) range.next_free->previous_free = range.previous_free;
  if (range.previous_free != nullptr) {
    range.previous_free->next_free = range.next_free;
    return;
  }
  const std::size_t bin = range.bin;
  lists_[bin] = range.next_free;
  if (range.next_free != nullptr) return;
  const std::uint64_t used = used_bins_[bin / 64] &= ~(std::uint64_t{1} << bin % 64);
  used_words_ &= ~(std::uint64_t{used == 0} << bin / 64);  // without a branch
}

inline heap_range* free_lists::first_from(std::size_t bin) const noexcept {
  if (bin == bin_count) return nullptr;
  std::size_t word = bin / 64;
  std::uint64_t used = used_bins_[word] & (~std::uint64_t{} << bin % 64);
  if (used == 0) {
    const std::uint64_t words = used_words_ & (~std::uint64_t{} << word << 1);
    if (words == 0) return nullptr;
    word = static_cast<std::size_t>(std::countr_zero(words));
    used = used_bins_[word];
  }
  return lists_[word * 64 + static_cast<std::size_t>(std::countr_zero(used))];
}

// Searches a long list to its end before it gives up.
inline heap_range* free_lists::first(std::size_t bytes) const noexcept {
  const std::size_t bin = bin_of(bytes);
  heap_range* at = lists_[bin];
  for (std::size_t step = 0; step < steps && at != nullptr && at->bytes < bytes; ++step) at = at->next_free;
  if (at != nullptr && at->bytes >= bytes) return at;
  heap_range* const larger = first_from(bin + 1);
  if (larger != nullptr) return larger;
  while (at != nullptr && at->bytes < bytes) at = at->next_free;
  return at;
}

inline void heap_ranges::unlist(heap_range& range) noexcept {
  range.is_free = false;
  if (range.bytes < min_listed_bytes) return;
  returnable_bytes_ -= returnable_bytes(range);
  (range.missing_units != 0 ? lacking_ : ready_).erase(range);
}

}  // namespace tidemark::gpu::detail
