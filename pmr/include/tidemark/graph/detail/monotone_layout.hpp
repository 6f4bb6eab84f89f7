// SPDX-License-Identifier: Apache-2.0
/// @file
/// `monotone_layout`: where the blocks of a capture lie, as an offset from the first. Owns no memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/graph/graph_layout.hpp>

namespace tidemark::detail {

/// Places one block behind the other, and never two at one place. The rule that `graph_arena` and
/// `rehearse` share, so that what was rehearsed fits.
///
/// Invariants: `begin <= cursor <= open end <= end`; all four are multiples of `granule_bytes`. Between
/// `align_next` or `leave` and what follows them the open end may lie lower.
class monotone_layout {
 public:
  /// Blocks begin at multiples of this: what CUDA's own allocators give, and its widest loads and its
  /// copies between devices want (CUDA C++ Programming Guide, "Device Memory Accesses").
  static constexpr std::size_t granule_bytes = 256;
  /// No layout is larger: its granules are counted in 32 bits. Just below 1 TiB, more than any device has.
  static constexpr std::size_t max_bytes = granule_bytes * 0xFFFF'FFFFu;

  /// Blocks will lie in [begin, end). @pre both are multiples of the granule, and begin <= end.
  constexpr monotone_layout(std::uintptr_t begin, std::uintptr_t end) noexcept
      : begin_{begin}, cursor_{begin}, end_{end}, open_end_{end} {}

  /// What a block of so many bytes takes. @pre bytes <= SIZE_MAX - granule_bytes
  [[nodiscard]] static constexpr std::size_t block_bytes(std::size_t bytes) noexcept {
    return align_up(bytes + (bytes == 0), granule_bytes);
  }

  /// The alignment that a block of such a one has.
  [[nodiscard]] static constexpr std::size_t block_alignment(std::size_t align) noexcept {
    return align > granule_bytes ? align : granule_bytes;
  }

  /// Whether a block of no more than the granule's alignment fits. No sum wraps, whatever `bytes` is: the
  /// room is a multiple of the granule, so that what is not larger is not larger rounded up either.
  [[nodiscard]] constexpr bool fits(std::size_t bytes) const noexcept {
    return bytes <= open_end_ - cursor_ && cursor_ != open_end_;
  }
  /// Places it. @pre `fits(bytes)`
  constexpr std::uintptr_t place(std::size_t bytes) noexcept {
    const std::uintptr_t block = cursor_;
    const std::size_t size = block_bytes(bytes);
    cursor_ = block + size;
    note(block, size);
    return block;
  }
  /// Counts a block that lies elsewhere, below the cursor. @pre both are multiples of the granule
  constexpr void note(std::uintptr_t block, std::size_t size) noexcept {
    ++allocations_;
    // Like FNV-1a (Fowler, Noll, Vo), by words instead of bytes: of offset and size.
    hash_ = (hash_ ^ ((block - begin_) / granule_bytes << 32 ^ size / granule_bytes)) * fnv_prime;
  }
  /// Blocks that lie below `end` are there already: what is placed next lies above it. @pre `end` is a
  /// multiple of the granule, and no block lies above the range
  constexpr void skip_to(std::uintptr_t end) noexcept {
    if (end > cursor_) cursor_ = end;
  }
  /// Leaves the first `bytes` bytes to a plan, which aligns blocks there to `align` at most. @pre
  /// nothing was placed; `bytes` is a multiple of the granule and fits
  constexpr void leave(std::size_t bytes, std::size_t align) noexcept {
    cursor_ = begin_ + bytes;
    align_ = block_alignment(align);
  }
  /// From now on nothing `fits`: each block is placed after `align_next`, and the layout closed again.
  constexpr void close() noexcept { open_end_ = cursor_; }
  /// Bytes of the largest block that fits at a multiple of `align`; 0: none fits. @pre align is a power of
  /// two.
  [[nodiscard]] constexpr std::size_t largest_bytes(std::size_t align) const noexcept {
    const std::uintptr_t block = align_up(cursor_, align);
    return block >= cursor_ && block < end_ ? end_ - block : 0;  // less than the cursor where it has wrapped
  }
  /// Leaves room so that the next block begins at a multiple of `align`. @return false, with nothing
  /// changed, if a block of `bytes` bytes does not fit there. @pre align is a power of two.
  [[nodiscard]] constexpr bool align_next(std::size_t bytes, std::size_t align) noexcept {
    const std::size_t largest = largest_bytes(align);
    if (largest == 0 || bytes > largest) return false;
    cursor_ = end_ - largest;
    if (align > align_) align_ = align;
    return true;
  }

  /// First address.
  [[nodiscard]] constexpr std::uintptr_t begin() const noexcept { return begin_; }
  /// One past the last.
  [[nodiscard]] constexpr std::uintptr_t end() const noexcept { return end_; }
  /// Bytes from the beginning to the end of the last block.
  [[nodiscard]] constexpr std::size_t high_water_bytes() const noexcept { return cursor_ - begin_; }
  /// What was placed so far.
  [[nodiscard]] constexpr graph_layout layout() const noexcept {
    return {.bytes = high_water_bytes(), .alignment = align_, .allocations = allocations_, .hash = hash_};
  }
  /// As it was when it was made.
  constexpr void reset() noexcept { *this = monotone_layout{begin_, end_}; }

 private:
  std::uintptr_t begin_, cursor_, end_;
  std::uintptr_t open_end_;  // as far as `fits` looks
  std::uint64_t allocations_ = 0;
  std::uint64_t hash_ = graph_layout{}.hash;
  std::size_t align_ = granule_bytes;  // the largest that was requested
};

/// @throws out_of_memory: a block does not fit in a layout.
[[noreturn]] void throw_out_of_layout(char const* resource, monotone_layout const& layout, std::size_t bytes,
                                      std::size_t align);

}  // namespace tidemark::detail
