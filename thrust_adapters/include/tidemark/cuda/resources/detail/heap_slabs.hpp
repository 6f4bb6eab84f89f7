// SPDX-License-Identifier: Apache-2.0
/// @file
/// `heap_slabs`: small blocks of a heap, by size class. Owns the records of slabs, not their memory.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory_resource>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/cuda/resources/detail/heap_ranges.hpp>

namespace tidemark::gpu::detail {

/// Size classes by arithmetic: multiples of 256 bytes up to 2 KiB, then four classes for each power of two:
/// 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10 KiB ... Above 2 KiB no request wastes more than a fifth of its block.
///
/// For `x = (bytes - 1) / 256` in binary, the class is the length of `x` followed by its three leading
/// digits.
class device_classes {
 public:
  /// Granule of sizes, and alignment of every block, as for blocks of the driver.
  static constexpr std::size_t granule_bytes = 256;
  static constexpr std::size_t max_bytes = 1 * MiB;

  /// Returns the smallest class for `bytes`, 0 bytes included. @pre `bytes <= max_bytes`. O(1).
  [[nodiscard]] static constexpr std::size_t index_of(std::size_t bytes) noexcept {
    const std::size_t x = (bytes - (bytes != 0 ? 1 : 0)) / granule_bytes;
    const auto shift = static_cast<std::size_t>(std::bit_width(x | steps)) - digits;
    return shift * steps + (x >> shift);
  }
  /// Returns the size of a class. O(1).
  [[nodiscard]] static constexpr std::size_t bytes(std::size_t index) noexcept {
    const std::size_t shift = index < 2 * steps ? 0 : index / steps - 1;
    return (index - shift * steps + 1) * granule_bytes << shift;
  }

 private:
  static constexpr std::size_t steps = 4;   // classes for each power of two
  static constexpr std::size_t digits = 3;  // leading digits of a number in `[steps, 2 * steps)`
};

/// Number of classes.
inline constexpr std::size_t device_class_count = device_classes::index_of(device_classes::max_bytes) + 1;

static_assert(device_classes::index_of(0) == 0 && device_classes::index_of(256) == 0 &&
              device_classes::index_of(257) == 1 && device_classes::bytes(0) == 256);
static_assert(device_classes::bytes(7) == 2 * KiB && device_classes::bytes(8) == 2 * KiB + 512 &&
              device_classes::bytes(11) == 4 * KiB && device_classes::bytes(12) == 5 * KiB);
static_assert(device_classes::bytes(device_class_count - 1) == device_classes::max_bytes);

/// The head or a member of a circular list.
struct slab_link {
  slab_link* previous = this;
  slab_link* next = this;
};

/// A live range that is cut into blocks of one class; its free blocks are reused in LIFO order.
///
/// Invariant: `unused <= free <= blocks`; `free - unused` free blocks are in the stack.
struct heap_slab : slab_link {  // in the list of the class's open slabs
  heap_range* range = nullptr;
  std::uintptr_t begin = 0;       // of the range
  std::uint32_t block_bytes = 0;  // size of the class
  std::uint32_t least_bytes = 0;  // of a request in this class
  std::uint32_t reciprocal = 0;   // see `is_block_at`
  std::uint16_t index = 0;        // class
  std::uint16_t blocks = 0;
  std::uint16_t free = 0;    // blocks that are not live
  std::uint16_t unused = 0;  // blocks that have never been live; they come last

  // Followed by the stack: offsets of free blocks, in units of `device_classes::granule_bytes`. The first
  // `unused` entries have no value.
  [[nodiscard]] std::uint16_t* stack() noexcept { return reinterpret_cast<std::uint16_t*>(this + 1); }

  /// Returns true if the class is the smallest for a request of this size.
  [[nodiscard]] bool is_class_of(std::size_t bytes) const noexcept {
    return bytes >= least_bytes && bytes <= block_bytes;
  }
  // `n * reciprocal >> reciprocal_digits == n / d`, with `n` the granules of the offset and `d` those of a
  // block: `n * d < 1 << reciprocal_digits` is sufficient (Granlund and Montgomery, 1994).
  static constexpr unsigned reciprocal_digits = 26;
  [[nodiscard]] static constexpr std::uint32_t reciprocal_of(std::size_t block_bytes) noexcept {
    return static_cast<std::uint32_t>(
        (std::size_t{1} << reciprocal_digits) / (block_bytes / device_classes::granule_bytes) + 1);
  }
  /// Returns true if a block that has been used begins at this offset in the slab, without a division.
  [[nodiscard]] bool is_block_at(std::size_t offset) const noexcept {
    const std::size_t granules = offset / device_classes::granule_bytes;
    const std::size_t number = granules * reciprocal >> reciprocal_digits;
    return number + unused < blocks && number * block_bytes == offset;
  }
};

/// Returns the slab that contains the address. Returns any slab, or `no_slab`, for other addresses. O(1).
///
/// A slab has at least a page, so it covers the first byte of the address's page or of the next one.
[[nodiscard]] inline heap_slab& slab_at(heap_region const& region, std::uintptr_t address) noexcept {
  const std::size_t offset = address - region.addresses.begin;
  if (offset >= region.paged_bytes) [[unlikely]]
    return no_slab;
  heap_slab* const* const slabs = region.slabs.data() + offset / heap_region::page_bytes;
  return *slabs[std::size_t{slabs[1]->begin <= address}];  // without a branch
}

/// Slabs of each class.
///
/// A class takes its blocks from the slab that most recently got a block back. A slab has a quarter of the
/// bytes of its class's live blocks, which keeps unused parts small: at least 64 KiB or one block, at most 2
/// MiB.
///
/// Lists change without a branch, because a slab that is full in turn with one free block is mispredicted.
///
/// Invariants: the open slabs of a class are the slabs with a free block; `used_bytes()` is the sum over live
/// blocks. Complexity: O(1). Thread-safety: one thread at a time.
class heap_slabs {
 public:
  static constexpr std::size_t max_slab_bytes = 2 * MiB;

  explicit heap_slabs(std::pmr::memory_resource* bookkeeping) noexcept : bookkeeping_{bookkeeping} {}
  heap_slabs(heap_slabs const&) = delete;
  heap_slabs& operator=(heap_slabs const&) = delete;
  ~heap_slabs() = default;

  /// Allocates a block; returns null if no slab of the class has a free block.
  [[nodiscard]] void* try_allocate(std::size_t index) noexcept {
    slab_link& open = open_[index];
    if (open.next == &open) [[unlikely]]
      return nullptr;
    auto* const slab = static_cast<heap_slab*>(open.next);
    const std::size_t offset = --slab->free >= slab->unused
                                   ? slab->stack()[slab->free] * device_classes::granule_bytes
                                   : (std::size_t{slab->blocks} - slab->unused--) * slab->block_bytes;
    unlink(slab->free == 0 ? *slab : nothing_);
    used_bytes_ += slab->block_bytes;
    ++allocations_;
    return reinterpret_cast<void*>(slab->begin + offset);
  }
  /// Returns a block to its slab. @return false, with nothing changed, if all blocks of the slab are free or
  /// no block that has been used begins at this offset.
  [[nodiscard]] bool try_deallocate(heap_slab& slab, std::size_t offset) noexcept {
    const std::size_t free = slab.free;
    if (free == slab.blocks || !slab.is_block_at(offset)) [[unlikely]]
      return false;
    slab.stack()[free] = static_cast<std::uint16_t>(offset / device_classes::granule_bytes);
    slab.free = static_cast<std::uint16_t>(free + 1);
    link(free == 0 ? open_[slab.index] : nothing_, free == 0 ? slab : nothing_);
    used_bytes_ -= slab.block_bytes;
    ++deallocations_;
    return true;
  }
  /// Returns true if the slab is empty and another slab of its class has a free block.
  [[nodiscard]] bool is_surplus(heap_slab const& slab) const noexcept {
    if (slab.free != slab.blocks) [[likely]]
      return false;
    return slab.previous != slab.next;
  }

  [[nodiscard]] bool has_free_block(std::size_t index) const noexcept {
    return open_[index].next != &open_[index];
  }
  /// Returns the bytes of the class's next slab. @pre All blocks of the class are live.
  [[nodiscard]] std::size_t next_slab_bytes(std::size_t index) const noexcept {
    const std::size_t block_bytes = device_classes::bytes(index);
    const std::size_t wanted = std::clamp(bytes_[index] / 4, heap_region::page_bytes, max_slab_bytes);
    const std::size_t bytes = (std::max<std::size_t>)(wanted / block_bytes, 1) * block_bytes;
    return (std::max)(tidemark::detail::align_up(bytes, heap_ranges::granule_bytes), heap_region::page_bytes);
  }
  /// Makes a record of a slab for `open`. @throws the exceptions of the bookkeeping resource.
  [[nodiscard]] heap_slab* make(std::size_t index, std::size_t slab_bytes);
  /// Frees the record. @pre No block of the slab is live, or the whole heap is released.
  void destroy(heap_slab& slab) noexcept;
  /// Makes the class take blocks from the range.
  void open(heap_slab& slab, heap_range& range) noexcept {
    slab.range = &range;
    slab.begin = range.begin;
    bytes_[slab.index] += std::size_t{slab.blocks} * slab.block_bytes;
    link(open_[slab.index], slab);
  }
  /// Removes a slab without live blocks. @return its range.
  [[nodiscard]] heap_range& close(heap_slab& slab) noexcept;
  /// Returns an empty slab; null if there is no empty slab. O(open slabs).
  [[nodiscard]] heap_slab* find_empty() const noexcept;
  /// Forgets all slabs; live blocks count as deallocated.
  void forget() noexcept;

  /// Returns the bytes of live blocks, each with the size of its class.
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_bytes_; }
  [[nodiscard]] std::uint64_t allocations() const noexcept { return allocations_; }
  [[nodiscard]] std::uint64_t deallocations() const noexcept { return deallocations_; }
  /// Returns the first invariant that does not hold; null if all hold. O(open slabs).
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  static void link(slab_link& first, slab_link& slab) noexcept {
    slab.previous = &first;
    slab.next = first.next;
    first.next->previous = &slab;
    first.next = &slab;
  }
  static void unlink(slab_link& slab) noexcept {
    slab.previous->next = slab.next;
    slab.next->previous = slab.previous;
  }

  std::pmr::memory_resource* bookkeeping_;
  std::size_t used_bytes_ = 0;
  // Between the bytes and the counts: a 16-byte load of both would wait for the last store to one of them.
  std::array<slab_link, device_class_count> open_;       // by class: slabs with a free block
  std::array<std::size_t, device_class_count> bytes_{};  // by class: blocks of all slabs, live and free
  slab_link nothing_;  // a list of itself, for writes if no slab enters or leaves a list
  std::uint64_t allocations_ = 0, deallocations_ = 0;
};

}  // namespace tidemark::gpu::detail
