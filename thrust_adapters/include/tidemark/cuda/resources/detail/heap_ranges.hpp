// SPDX-License-Identifier: Apache-2.0
/// @file
/// `heap_ranges`: the live and the free ranges of a heap's addresses, and best fit among the free ones. Owns
/// records, not memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <list>
#include <memory_resource>
#include <set>
#include <vector>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/units.hpp>

namespace tidemark::gpu::detail {

struct heap_range;
struct heap_region;
struct heap_slab;

/// The key of a free range: ranges with memory behind every byte come first, then by size, then by address.
struct free_range_key {
  bool lacks_memory;
  std::size_t bytes;
  std::uintptr_t begin;
  heap_range* range;

  friend bool operator<(free_range_key const& a, free_range_key const& b) noexcept {
    if (a.lacks_memory != b.lacks_memory) return b.lacks_memory;
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.begin < b.begin;
  }
};

/// A live or free part of a region.
struct heap_range {
  heap_region* region = nullptr;
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  heap_range* before = nullptr;  // the neighbours in the region; null at its ends
  heap_range* after = nullptr;
  std::size_t missing_bytes = 0;  // of a free range: bytes of its units without memory
  heap_slab* slab = nullptr;      // of a live range: null unless it is cut into small blocks
  bool is_free = false;
  std::pmr::set<free_range_key>::iterator at = {};    // of a free range: its key in the index
  std::pmr::set<free_range_key>::node_type key = {};  // of any other: so that deallocation needs no memory

  [[nodiscard]] std::uintptr_t end() const noexcept { return begin + bytes; }
};

/// Addresses that were reserved at once, or a chunk of an upstream.
struct heap_region {
  static constexpr std::size_t page_bytes = 64 * KiB;

  byte_range addresses;
  bool is_chunk = false;        // of an upstream: memory lies behind all of it, and goes back as a whole
  heap_range* first = nullptr;  // the ranges, which cover `addresses`
  heap_range* last = nullptr;
  std::pmr::vector<heap_range*> pages;         // see `heap_ranges`
  std::pmr::vector<unsigned long long> units;  // handles of physical memory; 0 is none
  std::pmr::vector<std::uint32_t> freed_at;    // by unit: the mark of the stream before which it is in use

  heap_region(byte_range range, bool chunk, std::pmr::memory_resource* bookkeeping)
      : addresses{range}, is_chunk{chunk}, pages{bookkeeping}, units{bookkeeping}, freed_at{bookkeeping} {}
  [[nodiscard]] std::size_t page_of(std::uintptr_t address) const noexcept {
    return (address - addresses.begin) / page_bytes;
  }
};

/// The ranges of all regions of a heap.
///
/// Every region is covered by ranges; no two free ranges of a region touch. A live range has at least
/// `heap_region::page_bytes` bytes, so that at most one begins in a page. `region.pages[page]` is the live
/// range that begins in the page, or else the slab that covers its first byte, or null: the range behind any
/// address is found in O(1).
///
/// Best fit takes the smallest free range that is large enough, and the lowest address among equals.
///
/// Invariants: ranges of a region are sorted and cover it; `missing_bytes <= bytes`; free ranges and keys in
/// the index correspond; `returnable_bytes()` is the sum over free ranges.
/// Complexity: O(log(free ranges)) where not said otherwise. Thread-safety: one thread at a time.
class heap_ranges {
 public:
  using free_index = std::pmr::set<free_range_key>;

  /// Sizes and addresses within a region are multiples of this.
  static constexpr std::size_t granule_bytes = 512;

  explicit heap_ranges(std::pmr::memory_resource* bookkeeping)
      : records_{bookkeeping},
        spare_{bookkeeping},
        index_{bookkeeping},
        regions_{bookkeeping},
        sorted_{bookkeeping} {}
  heap_ranges(heap_ranges const&) = delete;
  heap_ranges& operator=(heap_ranges const&) = delete;
  ~heap_ranges() = default;

  /// Bytes of one physical handle, a power of two. @pre there is no region.
  void set_unit_bytes(std::size_t bytes) noexcept { unit_bytes_ = bytes; }

  /// Makes room for the records of one `add` and one `cut`. @throws what the bookkeeping resource throws;
  /// nothing has changed then.
  void prepare();
  /// One free range more. Without memory behind it unless it is a chunk. @pre `prepare()`. @throws as it.
  heap_range& add(byte_range addresses, bool is_chunk);
  /// Removes a region that is one free range. @return its addresses.
  byte_range remove(heap_range& whole) noexcept;

  /// The free range with memory that best fits; null if there is none. Up to 8 ranges are tried before
  /// padding for `align` is taken as its largest.
  [[nodiscard]] heap_range* best_fit(std::size_t bytes, std::size_t align) const noexcept;
  /// Free ranges of at least this many bytes that lack memory, the smallest first.
  [[nodiscard]] free_index::const_iterator lacking(std::size_t bytes) const noexcept {
    return index_.lower_bound({true, bytes, 0, nullptr});
  }
  [[nodiscard]] free_index::const_iterator end() const noexcept { return index_.end(); }
  /// Calls `visit` with free ranges until it returns false: those that lack memory and then the others, each
  /// from the largest on. `visit` may call `set_missing` of the range.
  template <class Visit>
  void visit_largest_first(Visit visit) {
    for (auto at = index_.end(); at != index_.begin();) {
      heap_range& range = *std::prev(at)->range;
      // The range may leave its place in the index, and then comes to an earlier one in this order.
      heap_range* const next = std::prev(at) != index_.begin() ? std::prev(at, 2)->range : nullptr;
      if (!visit(range) || next == nullptr) return;
      at = std::next(next->at);
    }
  }
  /// Where a block would begin in a free range; 0 if it does not fit.
  [[nodiscard]] static std::uintptr_t place_in(heap_range const& range, std::size_t bytes,
                                               std::size_t align) noexcept;

  /// Makes a live range of a part of a free one. @param missing_before bytes of the units before the part
  /// without memory. @pre the part has memory; `prepare()` and `reserve_pages` were called.
  heap_range& cut(heap_range& from, std::uintptr_t begin, std::size_t bytes,
                  std::size_t missing_before) noexcept;
  /// Makes a live range free. @return the range that it is part of then.
  heap_range& give(heap_range& live) noexcept;
  /// Records memory that came or went behind a free range.
  void set_missing(heap_range& range, std::size_t missing_bytes) noexcept;
  /// All pages that a slab covers name it from here on.
  void set_slab(heap_range& live, heap_slab& slab) noexcept;
  /// Makes room for pages up to an address. @throws what the bookkeeping resource throws.
  static void reserve_pages(heap_region& region, std::uintptr_t end);

  /// The live range in which an address lies; null if there is none. O(1) for a heap of one region, else
  /// O(log(regions)).
  [[nodiscard]] heap_range* live_at(std::uintptr_t address) const noexcept {
    heap_region* const region = region_at(address);
    if (region == nullptr) return nullptr;
    const std::size_t page = region->page_of(address);
    if (page >= region->pages.size()) return nullptr;
    heap_range* found = region->pages[page];
    if (found != nullptr && found->begin > address) found = live_before(*found);
    return found != nullptr && !found->is_free && address - found->begin < found->bytes ? found : nullptr;
  }

  [[nodiscard]] std::pmr::list<heap_region>& regions() noexcept { return regions_; }
  [[nodiscard]] std::pmr::list<heap_region> const& regions() const noexcept { return regions_; }
  /// Makes every live range free. O(ranges).
  void free_all() noexcept;

  /// Bytes of whole units, or whole chunks, that have memory and no live block.
  [[nodiscard]] std::size_t returnable_bytes() const noexcept { return returnable_bytes_; }
  [[nodiscard]] std::size_t returnable_bytes(heap_range const& range) const noexcept;
  /// The units that lie wholly in a range, as indices [first, last).
  struct unit_span {
    std::size_t first, last;
  };
  [[nodiscard]] unit_span whole_units(heap_range const& range) const noexcept;
  /// The first invariant that does not hold, as a formula; null if all do. O(ranges).
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  [[nodiscard]] heap_region* region_at(std::uintptr_t address) const noexcept {
    if (latest_ != nullptr && latest_->addresses.contains(address)) return latest_;
    return find_region(address);
  }
  [[nodiscard]] heap_region* find_region(std::uintptr_t address) const noexcept;
  // No two free ranges touch.
  [[nodiscard]] static heap_range* live_before(heap_range const& range) noexcept {
    heap_range* const before = range.before;
    return before != nullptr && before->is_free ? before->before : before;
  }
  [[nodiscard]] heap_range& take_spare() noexcept;
  void list(heap_range& range) noexcept;
  void unlist(heap_range& range) noexcept;
  void merge_with_next(heap_range& range) noexcept;
  void forget_pages(heap_range& range) noexcept;

  std::size_t unit_bytes_ = 2 * MiB;
  std::pmr::deque<heap_range> records_;
  std::pmr::vector<heap_range*> spare_;  // records without a range; capacity for all
  free_index index_;
  std::pmr::list<heap_region> regions_;
  std::pmr::vector<heap_region*> sorted_;  // by address
  mutable heap_region* latest_ = nullptr;  // where the last address was found
  std::size_t returnable_bytes_ = 0;
};

}  // namespace tidemark::gpu::detail
