// SPDX-License-Identifier: Apache-2.0
/// @file
/// `coalescing_heap`: blocks beyond a pool's classes, cut from chunks of an upstream, which the heap owns.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory_resource>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/pool/detail/block_cache.hpp>

namespace tidemark::detail {

/// A heap with boundary tags (Knuth, "The Art of Computer Programming" 1, 2.5): what is left of a chunk when
/// a block is cut from it serves other requests, of any size, and free neighbours are merged.
///
/// A chunk is a row of ranges, live or free, each with a tag of 16 bytes in front. The first chunk is as
/// large as its request, a further one a quarter of what is held, so that chunks are few. Free ranges lie in
/// bins, four to each doubling of the size, the one freed last in front. A request looks at some of its own
/// bin, and then takes the first of the next bin that has one (the good fit of TLSF: Masmano et al., "TLSF: a
/// new dynamic memory allocator for real-time systems", 2004). What it does not need stays free.
///
/// A chunk goes back to the upstream when all of it is free. If that is not enough for a limit, chunks are
/// *stranded*: their free ranges count by themselves, and are used when the others have none that fits. A
/// stranded chunk all of which is free is not stranded any more.
///
/// Invariants:
/// - in each chunk, the ranges follow each other without gaps, and no two neighbours are free
/// - a free range lies in the bin of its size, in those of the stranded ones if its chunk is stranded
/// - `used_bytes() == sum over live ranges`, `cached_bytes()` and `stranded_bytes()` over free ones
/// - a stranded chunk has a live range
///
/// Bytes are those of ranges, with their tags: a block takes up to 79 bytes more than was requested. The
/// upstream gets back exactly the (pointer, bytes, alignment) that it gave. Complexity: O(1) where not said
/// otherwise. One thread at a time.
class coalescing_heap {
 public:
  /// Smaller blocks have no place here: a tag would be much beside them.
  static constexpr std::size_t min_block_bytes = 4 * KiB;

  /// What is in front of each block.
  static constexpr std::size_t tag_bytes = 16;
  /// Of the range of a block that was requested with `bytes`. @pre the sum fits.
  [[nodiscard]] static std::size_t range_bytes(std::size_t bytes) noexcept {
    return align_up(bytes + tag_bytes, granule_bytes);
  }

  explicit coalescing_heap(std::pmr::memory_resource* upstream) noexcept : upstream_{upstream} {}
  coalescing_heap(coalescing_heap const&) = delete;
  coalescing_heap& operator=(coalescing_heap const&) = delete;
  ~coalescing_heap() { release(); }

  /// A block of a free range; null if none that was looked at fits.
  [[nodiscard]] void* take(std::size_t bytes, std::size_t align) noexcept;
  /// A block of a new chunk, with `max_more_bytes` at most for others. If the upstream does not have that,
  /// the chunk is for this block alone. @throws what the upstream throws; nothing has changed then.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align, std::size_t max_more_bytes);
  /// Takes a block back.
  void deallocate(void* block, std::size_t requested_bytes) noexcept;

  /// Returns chunks all of which is free to the upstream until `bytes_wanted` are gone or there is none: the
  /// largest, until one is enough, and of those the least. O(free ranges) a chunk. @return their bytes.
  std::size_t release_free(std::size_t bytes_wanted) noexcept;
  /// Strands chunks until `bytes_wanted` that were cached are not, or none is cached. O(ranges).
  void strand(std::size_t bytes_wanted) noexcept;
  /// Returns everything to the upstream, also live blocks.
  void release() noexcept;

  /// Of live blocks.
  [[nodiscard]] std::size_t used_bytes() const noexcept {
    return held_bytes_ - cached_bytes_ - stranded_bytes_;
  }
  /// Of live blocks, as they were requested.
  [[nodiscard]] std::size_t requested_bytes() const noexcept { return requested_bytes_; }
  /// Free, in chunks that are not stranded.
  [[nodiscard]] std::size_t cached_bytes() const noexcept { return cached_bytes_; }
  /// Free, in stranded chunks.
  [[nodiscard]] std::size_t stranded_bytes() const noexcept { return stranded_bytes_; }
  /// Of all ranges.
  [[nodiscard]] std::size_t held_bytes() const noexcept { return held_bytes_; }

  /// The first invariant that does not hold, as a formula; null if all do. O(ranges).
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  // Ranges are multiples of this, and begin a tag before one: so blocks are aligned to it.
  static constexpr std::size_t granule_bytes = 64;
  // As many ranges of the own bin are looked at as cost less than a split would.
  static constexpr std::size_t ranges_looked_at = 4;
  // A further chunk is this part of what is held. On the recorded traces (bench/trace_footprint) a quarter
  // leaves less free than an eighth or a half, or a floor of 64 KiB to 1 MiB.
  static constexpr std::size_t growth_divisor = 4;
  static constexpr std::size_t page_bytes = 4 * KiB;

  /// In front of each range, and behind the last one of a chunk, where it is of 0 bytes and live.
  struct tag {
    std::size_t previous_bytes;  // of the range before; 0: it is the first
    std::size_t bytes : 62;      // with the tag
    std::size_t is_free : 1;
    std::size_t is_stranded : 1;
  };
  static_assert(sizeof(tag) == tag_bytes);
  /// Behind the tag of a free range.
  struct links {
    tag* previous;
    tag* next;
  };
  /// At the beginning of a chunk.
  struct chunk {
    chunk* previous;
    chunk* next;
    std::size_t bytes;  // of its ranges
  };
  static constexpr std::size_t first_range_offset = granule_bytes - sizeof(tag);
  // What a chunk has besides its ranges: its beginning, and the tag behind them.
  static constexpr std::size_t chunk_overhead_bytes = granule_bytes;
  static_assert(sizeof(chunk) <= first_range_offset && sizeof(tag) + sizeof(links) <= granule_bytes);

  /// Free ranges by size.
  class bins {
   public:
    void insert(tag* range) noexcept;
    void remove(tag* range) noexcept;
    /// A range of at least that size; null if there is none among those looked at.
    [[nodiscard]] tag* find(std::size_t bytes) const noexcept;
    /// Calls `visit(range)`, which may remove it, until that returns false: the larger bins first. O(ranges).
    template <class Visit>
    void for_each_from_largest(Visit visit) const noexcept {
      for (std::size_t bin = count; bin-- > 0;) {
        for (tag* range = first_[bin]; range != nullptr;) {
          tag* const next = opened_block{links_of(range)}->next;
          if (!visit(range)) return;
          range = next;
        }
      }
    }
    /// Whether each range lies in the bin of its size. O(ranges).
    [[nodiscard]] bool is_sorted() const noexcept;

   private:
    static constexpr unsigned bins_per_doubling_log2 = 2;
    static constexpr unsigned min_size_log2 = std::countr_zero(granule_bytes);
    static constexpr unsigned max_size_log2 = 48;  // of an address space; what is larger shares the last bin
    static constexpr std::size_t count = (max_size_log2 - min_size_log2) << bins_per_doubling_log2;
    static constexpr std::size_t none = count;

    [[nodiscard]] static std::size_t index_of(std::size_t bytes) noexcept {
      const auto size_log2 = static_cast<unsigned>(std::bit_width(bytes)) - 1;
      const std::size_t steps = bytes >> (size_log2 - bins_per_doubling_log2);  // 4 to 7
      const std::size_t bin =
          (std::size_t{size_log2 - min_size_log2} << bins_per_doubling_log2) + (steps & 3U);
      return bin < count ? bin : count - 1;
    }
    /// The first bin from `index` on that has a range, or `none`.
    [[nodiscard]] std::size_t first_from(std::size_t index) const noexcept;

    std::array<tag*, count> first_{};
    std::array<std::uint64_t, (count + 63) / 64> has_range_{};  // a bit for each bin
  };

  [[nodiscard]] static tag* at(tag* range, std::size_t offset) noexcept {
    return reinterpret_cast<tag*>(reinterpret_cast<std::byte*>(range) + offset);
  }
  [[nodiscard]] static tag* next_of(tag* range) noexcept { return at(range, range->bytes); }
  [[nodiscard]] static tag* first_of(chunk* of) noexcept {
    return reinterpret_cast<tag*>(reinterpret_cast<std::byte*>(of) + first_range_offset);
  }
  [[nodiscard]] static chunk* chunk_of(tag* first) noexcept {
    return reinterpret_cast<chunk*>(reinterpret_cast<std::byte*>(first) - first_range_offset);
  }
  [[nodiscard]] static void* block_of(tag* range) noexcept { return range + 1; }
  [[nodiscard]] static links* links_of(tag* range) noexcept { return reinterpret_cast<links*>(range + 1); }
  [[nodiscard]] static bool is_whole_chunk(tag* range) noexcept {
    return range->previous_bytes == 0 && next_of(range)->bytes == 0;
  }
  /// Writes a tag of a live range, and what the next one says of it.
  static tag* make_range(tag* where, std::size_t previous_bytes, std::size_t bytes,
                         bool is_stranded) noexcept;

  [[nodiscard]] static std::size_t bytes_for(std::size_t bytes, std::size_t align) noexcept;
  /// Splits a live range. @return what is behind the offset.
  static tag* split(tag* range, std::size_t offset) noexcept;
  [[nodiscard]] void* cut(tag* range, std::size_t bytes, std::size_t align) noexcept;
  [[nodiscard]] tag* add_chunk(std::size_t least_bytes, std::size_t wanted_bytes);
  void insert_free(tag* range) noexcept;
  void remove_free(tag* range) noexcept;
  [[nodiscard]] static bool has_free_range(chunk* of) noexcept;
  [[nodiscard]] tag* find_free_chunk(std::size_t bytes_wanted) const noexcept;
  void return_to_upstream(chunk* gone) noexcept;

  std::pmr::memory_resource* upstream_;
  chunk* chunks_ = nullptr;
  std::size_t held_bytes_ = 0, cached_bytes_ = 0, stranded_bytes_ = 0, requested_bytes_ = 0;
  std::size_t whole_bytes_ = 0;  // of chunks all of which is free
  bins ready_, stranded_;
};

}  // namespace tidemark::detail
