// SPDX-License-Identifier: Apache-2.0
/// @file
/// `graph_layout`: the memory needs of a capture. `monotone_layout`: the offsets of its blocks. Own nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/core/detail/align.hpp>

namespace tidemark {

/// The layout of a capture's blocks in a `graph_arena`, returned by `rehearse` and `graph_arena::layout`. Two
/// captures with equal layouts have the same blocks at the same offsets.
struct graph_layout {
  std::size_t bytes = 0;          ///< memory that the capture needs
  std::size_t alignment = 256;    ///< alignment of this memory: the largest requested alignment
  std::uint64_t allocations = 0;  ///< blocks allocated
  /// Hash of offset and size of each block, in any order; FNV-1a's offset basis for no blocks.
  std::uint64_t hash = detail::fnv_basis;

  friend bool operator==(graph_layout const&, graph_layout const&) = default;
};

namespace detail {

/// Places blocks one after another and never reuses an address. `graph_arena` and `rehearse` share this rule,
/// so a rehearsed capture fits.
///
/// Invariants: `begin <= cursor <= open end <= end`; all four are multiples of `granule_bytes`. `align_next`
/// and `reserve_front` may move the cursor above the open end until the next call.
class monotone_layout {
 public:
  /// Blocks begin at multiples of this. CUDA's own allocators align to 256 bytes, and its widest loads and
  /// its copies between devices need this (CUDA C++ Programming Guide, "Device Memory Accesses").
  static constexpr std::size_t granule_bytes = 256;
  /// Maximum bytes of a layout, because granules are counted in 32 bits. Just below 1 TiB, more than any
  /// device has.
  static constexpr std::size_t max_bytes = granule_bytes * 0xFFFF'FFFFu;

  /// Creates an empty layout in [begin, end). @pre both are multiples of the granule, and begin <= end
  constexpr monotone_layout(std::uintptr_t begin, std::uintptr_t end) noexcept
      : begin_{begin}, cursor_{begin}, end_{end}, open_end_{end} {}

  /// Returns the bytes that a block of `bytes` takes. @pre bytes <= SIZE_MAX - granule_bytes
  [[nodiscard]] static constexpr std::size_t block_bytes(std::size_t bytes) noexcept {
    return align_up(bytes + (bytes == 0), granule_bytes);
  }

  /// Returns the alignment of a block requested with `align`.
  [[nodiscard]] static constexpr std::size_t block_alignment(std::size_t align) noexcept {
    return align > granule_bytes ? align : granule_bytes;
  }

  /// True if a block with the granule's alignment fits. No sum wraps for any `bytes`. The room is a multiple
  /// of the granule, so a size that fits also fits rounded up.
  [[nodiscard]] constexpr bool fits(std::size_t bytes) const noexcept {
    return bytes <= open_end_ - cursor_ && cursor_ != open_end_;
  }
  /// Places a block. @pre `fits(bytes)`
  constexpr std::uintptr_t place(std::size_t bytes) noexcept {
    const std::uintptr_t block = cursor_;
    const std::size_t size = block_bytes(bytes);
    cursor_ = block + size;
    count_block(block, size);
    return block;
  }
  /// Counts a block that is placed elsewhere, below the cursor. @pre both are multiples of the granule
  constexpr void count_block(std::uintptr_t block, std::size_t size) noexcept {
    ++allocations_;
    // A sum, because the next block then waits for an addition instead of a multiplication.
    const std::uint64_t mixed = fibonacci_hash((block - begin_) / granule_bytes << 32 ^ size / granule_bytes);
    hash_ += fibonacci_hash(mixed ^ mixed >> 32);
  }
  /// Skips blocks that exist already: later blocks lie at or above `end`. @pre `end` is a multiple of the
  /// granule, and no block lies above the range
  constexpr void skip_to(std::uintptr_t end) noexcept {
    if (end > cursor_) cursor_ = end;
  }
  /// Reserves the first `bytes` bytes for a plan, which aligns blocks to at most `align`. @pre no block is
  /// placed; `bytes` is a multiple of the granule and fits
  constexpr void reserve_front(std::size_t bytes, std::size_t align) noexcept {
    cursor_ = begin_ + bytes;
    align_ = block_alignment(align);
  }
  /// Makes `fits` return false for all sizes. Each block is then placed after `align_next`, and the layout
  /// closed again.
  constexpr void close() noexcept { open_end_ = cursor_; }
  /// Returns the bytes of the largest block that fits at a multiple of `align`; 0 if no block fits. @pre
  /// align is a power of two
  [[nodiscard]] constexpr std::size_t largest_bytes(std::size_t align) const noexcept {
    const std::uintptr_t block = align_up(cursor_, align);
    return block >= cursor_ && block < end_ ? end_ - block : 0;  // block < cursor_ if it wrapped
  }
  /// Aligns the start of the next block to `align`. @return false if a block of `bytes` bytes does not fit
  /// there; nothing has changed then. @pre align is a power of two
  [[nodiscard]] constexpr bool align_next(std::size_t bytes, std::size_t align) noexcept {
    const std::size_t largest = largest_bytes(align);
    if (largest == 0 || bytes > largest) return false;
    cursor_ = end_ - largest;
    if (align > align_) align_ = align;
    return true;
  }

  /// First address of the range.
  [[nodiscard]] constexpr std::uintptr_t begin() const noexcept { return begin_; }
  /// One past the last address.
  [[nodiscard]] constexpr std::uintptr_t end() const noexcept { return end_; }
  /// Bytes from the beginning to the end of the last block.
  [[nodiscard]] constexpr std::size_t high_water_bytes() const noexcept { return cursor_ - begin_; }
  /// The layout of all blocks so far.
  [[nodiscard]] constexpr graph_layout layout() const noexcept {
    return {.bytes = high_water_bytes(), .alignment = align_, .allocations = allocations_, .hash = hash_};
  }
  /// Restores the state after construction.
  constexpr void reset() noexcept { *this = monotone_layout{begin_, end_}; }

 private:
  std::uintptr_t begin_, cursor_, end_;
  std::uintptr_t open_end_;  // limit of `fits`
  std::uint64_t allocations_ = 0;
  std::uint64_t hash_ = graph_layout{}.hash;
  std::size_t align_ = granule_bytes;  // largest requested alignment
};

/// @throws out_of_memory always, because a block does not fit in a layout
[[noreturn]] void throw_out_of_layout(char const* resource, monotone_layout const& layout, std::size_t bytes,
                                      std::size_t align, char const* because = "");

}  // namespace detail
}  // namespace tidemark
