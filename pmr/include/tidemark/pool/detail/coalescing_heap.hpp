// SPDX-License-Identifier: Apache-2.0
/// @file
/// `coalescing_heap`: blocks beyond a pool's size classes. Owns chunks taken from an upstream.
///
/// A chunk is a sequence of live and free ranges, each preceded by a tag of 16 bytes (boundary tags: Knuth,
/// "The Art of Computer Programming" 1, 2.5). All counts include tags: a block takes up to 79 bytes more than
/// requested. The upstream gets back exactly the (pointer, bytes, alignment) that it returned. Free ranges
/// lie in bins, four to each doubling of the size, in LIFO order. A request tries some ranges of its own bin,
/// then the first range of the next larger bin (good fit of TLSF: Masmano et al., "TLSF: a new dynamic memory
/// allocator for real-time systems", 2004).
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

/// A heap with boundary tags. The rest of a chunk after a cut serves requests of any size, and free
/// neighbours are merged. A free chunk is *cached*. Free ranges of other chunks are *stranded*, because only
/// whole chunks can be returned.
///
/// Invariants:
/// - the ranges of a chunk have no gaps, and no two neighbours are free
/// - a free range lies in the bin of its size; whole chunks have bins of their own
/// - `used_bytes() == sum over live ranges`; `cached_bytes()` and `stranded_bytes()` are sums over free chunks
///   and over other free ranges
///
/// Complexity: O(1) unless stated otherwise. Thread-safety: one thread at a time.
class coalescing_heap {
 public:
  /// Smallest block, because a tag would be large beside a smaller block.
  static constexpr std::size_t min_block_bytes = 4 * KiB;

  /// Smallest block with a chunk of its own. In a shared chunk one live block keeps the rest. On the recorded
  /// traces and the steps of a U-Net, less memory is resident than with 1, 2 or 8 MiB.
  static constexpr std::size_t min_lone_bytes = 4 * MiB;

  /// Bytes of the tag before each block.
  static constexpr std::size_t tag_bytes = 16;
  /// Returns the bytes of the range of a block of `bytes`. @pre the sum fits
  [[nodiscard]] static std::size_t range_bytes(std::size_t bytes) noexcept {
    return align_up(bytes + tag_bytes, granule_bytes);
  }

  explicit coalescing_heap(std::pmr::memory_resource* upstream) noexcept : upstream_{upstream} {}
  coalescing_heap(coalescing_heap const&) = delete;
  coalescing_heap& operator=(coalescing_heap const&) = delete;
  ~coalescing_heap() { release(); }

  /// Allocates from a free range; null if no range that was tried fits.
  [[nodiscard]] void* try_allocate(std::size_t bytes, std::size_t align) noexcept;
  /// Allocates from a new chunk. The chunk is a quarter of `held_bytes()`, with at most `max_more_bytes`
  /// beyond the block. A block of `min_lone_bytes` has the chunk alone, and so has a block for which the
  /// upstream does not have this much. @throws whatever the upstream throws; nothing has changed then
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align, std::size_t max_more_bytes);
  /// Adds a free chunk for blocks of `bytes` together, the first of which is aligned to `align`. @throws as
  /// `allocate`
  void add_free_chunk(std::size_t bytes, std::size_t align) {
    insert_free(add_chunk(range_bytes(bytes), 0, align));
  }
  /// Deallocates a block.
  void deallocate(void* block, std::size_t requested_bytes) noexcept;
  /// Returns the chunk of a block to the upstream. @pre the chunk has no other block: `allocate` added it
  /// with `max_more_bytes == 0`
  void return_chunk_of(void* block, std::size_t requested_bytes) noexcept {
    requested_bytes_ -= requested_bytes;
    return_to_upstream(chunk_of(static_cast<tag*>(block) - 1));
  }

  /// Returns free chunks to the upstream until `bytes_wanted` are returned, or no chunk is free. Prefers a
  /// chunk that is large enough and little larger than needed; otherwise returns a largest chunk. @return
  /// bytes returned
  std::size_t release_free(std::size_t bytes_wanted) noexcept;
  /// Returns all memory to the upstream, including live blocks.
  void release() noexcept;

  /// Bytes of live blocks.
  [[nodiscard]] std::size_t used_bytes() const noexcept {
    return held_bytes_ - cached_bytes_ - stranded_bytes_;
  }
  /// Bytes of live blocks, as requested.
  [[nodiscard]] std::size_t requested_bytes() const noexcept { return requested_bytes_; }
  /// Bytes of free chunks.
  [[nodiscard]] std::size_t cached_bytes() const noexcept { return cached_bytes_; }
  /// Free bytes in chunks with live blocks.
  [[nodiscard]] std::size_t stranded_bytes() const noexcept { return stranded_bytes_; }
  /// Bytes of all ranges.
  [[nodiscard]] std::size_t held_bytes() const noexcept { return held_bytes_; }

  /// Returns the first broken invariant as a formula; null if all hold. O(ranges).
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  // Size unit of ranges. A tag ends at a multiple of this, so blocks are aligned to it.
  static constexpr std::size_t granule_bytes = 64;
  // Number of ranges tried in the own bin: together they cost less than a split.
  static constexpr std::size_t max_ranges_tried = 4;
  // A further chunk is this fraction of the held bytes. On the recorded traces (bench/trace_footprint), a
  // quarter leaves less memory free than an eighth or a half, or than a minimum of 64 KiB to 1 MiB.
  static constexpr std::size_t growth_divisor = 4;
  static constexpr std::size_t page_bytes = 4 * KiB;

  /// Precedes each range. A chunk ends with a tag of a live range of 0 bytes.
  struct tag {
    std::size_t previous_bytes;  // of the previous range; 0: this is the first range
    std::size_t bytes : 63;      // including the tag
    std::size_t is_free : 1;
  };
  static_assert(sizeof(tag) == tag_bytes);
  /// Follows the tag of a free range.
  struct links {
    tag* previous;
    tag* next;
  };
  /// Begins the upstream's memory. The first range follows where its block is aligned; a pointer to the chunk
  /// lies before the tag.
  struct chunk {
    chunk* previous;
    chunk* next;
    std::size_t bytes;           // of its ranges
    std::size_t overhead_bytes;  // besides these
    tag* first;
  };
  // Alignment of all requests to the upstream. With a larger alignment glibc's malloc cuts a piece off each
  // side, and the freed memory no longer serves a request of the same size.
  static constexpr std::size_t upstream_align = alignof(std::max_align_t);
  // Least bytes before the first block.
  static constexpr std::size_t header_bytes = sizeof(chunk) + sizeof(chunk*) + sizeof(tag);
  // Returns the bytes of a chunk besides its ranges: the header, the last tag, and padding before and behind.
  [[nodiscard]] static std::size_t overhead_of(std::size_t first_align) noexcept {
    return header_bytes - upstream_align + first_align;
  }
  static_assert(header_bytes % upstream_align == 0 && sizeof(tag) + sizeof(links) <= granule_bytes);

  /// Free ranges by size.
  class bins {
   public:
    void insert(tag* range) noexcept;
    void remove(tag* range) noexcept;
    /// Returns a range of at least `bytes`; null if no range that was tried is large enough.
    [[nodiscard]] tag* find(std::size_t bytes) const noexcept;
    /// Returns a range of the largest bin; null if there is no range. O(bins).
    [[nodiscard]] tag* find_largest() const noexcept;
    /// Returns the bytes of all ranges; `wrong` if a range does not lie in the bin of its size. O(ranges).
    [[nodiscard]] std::size_t count_bytes() const noexcept;
    static constexpr std::size_t wrong = ~std::size_t{0};

   private:
    static constexpr unsigned bins_per_doubling_log2 = 2;
    static constexpr unsigned min_size_log2 = std::countr_zero(granule_bytes);
    static constexpr unsigned max_size_log2 = 48;  // of an address space; larger sizes share the last bin
    static constexpr std::size_t count = (max_size_log2 - min_size_log2) << bins_per_doubling_log2;
    static constexpr std::size_t none = count;

    [[nodiscard]] static std::size_t index_of(std::size_t bytes) noexcept {
      const auto size_log2 = static_cast<unsigned>(std::bit_width(bytes)) - 1;
      const std::size_t steps = bytes >> (size_log2 - bins_per_doubling_log2);  // 4 to 7
      const std::size_t bin =
          (std::size_t{size_log2 - min_size_log2} << bins_per_doubling_log2) + (steps & 3U);
      return bin < count ? bin : count - 1;
    }
    /// Returns the first non-empty bin from `index` on, or `none`.
    [[nodiscard]] std::size_t first_from(std::size_t index) const noexcept;

    std::array<tag*, count> first_{};
    std::array<std::uint64_t, (count + 63) / 64> has_range_{};  // one bit for each bin
  };

  [[nodiscard]] static tag* at(tag* range, std::size_t offset) noexcept {
    return reinterpret_cast<tag*>(reinterpret_cast<std::byte*>(range) + offset);
  }
  [[nodiscard]] static tag* next_of(tag* range) noexcept { return at(range, range->bytes); }
  [[nodiscard]] static chunk*& chunk_of(tag* first) noexcept { return reinterpret_cast<chunk**>(first)[-1]; }
  [[nodiscard]] static void* block_of(tag* range) noexcept { return range + 1; }
  [[nodiscard]] static links* links_of(tag* range) noexcept { return reinterpret_cast<links*>(range + 1); }
  [[nodiscard]] static bool is_whole_chunk(tag* range) noexcept {
    return range->previous_bytes == 0 && next_of(range)->bytes == 0;
  }
  /// Writes the tag of a live range, and the size of the range into the next tag.
  static tag* make_range(tag* where, std::size_t previous_bytes, std::size_t bytes) noexcept;

  // Bytes that may have to lie before a block for its alignment.
  [[nodiscard]] static std::size_t bytes_before(std::size_t align) noexcept {
    return align > granule_bytes ? align - granule_bytes : 0;
  }
  /// Splits a live range. @return the part after the offset
  static tag* split(tag* range, std::size_t offset) noexcept;
  [[nodiscard]] void* cut(tag* range, std::size_t bytes, std::size_t align) noexcept;
  [[nodiscard]] tag* add_chunk(std::size_t least_bytes, std::size_t wanted_bytes, std::size_t align);
  [[nodiscard]] bins& bins_of(tag* free_range) noexcept {
    return is_whole_chunk(free_range) ? whole_ : stranded_;
  }
  [[nodiscard]] std::size_t& count_of(tag* free_range) noexcept {
    return is_whole_chunk(free_range) ? cached_bytes_ : stranded_bytes_;
  }
  void insert_free(tag* range) noexcept;
  void remove_free(tag* range) noexcept;
  void return_to_upstream(chunk* gone) noexcept;

  std::pmr::memory_resource* upstream_;
  chunk* chunks_ = nullptr;
  std::size_t held_bytes_ = 0, cached_bytes_ = 0, stranded_bytes_ = 0, requested_bytes_ = 0;
  bins whole_, stranded_;
};

}  // namespace tidemark::detail
