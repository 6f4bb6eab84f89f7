// SPDX-License-Identifier: Apache-2.0
/// @file
/// `size_classes`: the sizes that a pool keeps blocks of, and which of them serves a request. Owns nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tidemark/core/units.hpp>

namespace tidemark::detail {

/// A sorted list of block sizes.
///
/// Invariants: `bytes(0) < bytes(1) < ... <= max_block_bytes`, each a multiple of `granule_bytes`;
/// `table_[i]` is the least class of at least `n = (i + 1) * granule_bytes` bytes whose alignment is that of
/// `n`, or 16 if that is less, or 8 if no class is aligned to 16.
class size_classes {
 public:
  static constexpr std::size_t max_count = 96;
  static constexpr std::size_t granule_bytes = 8;
  static constexpr std::size_t max_block_bytes = 1 * GiB;
  static constexpr std::size_t max_table_bytes = 16 * KiB;  // beyond it the class is searched, not looked up
  static constexpr std::size_t max_alignment = 256;         // of a vector for a device
  static constexpr std::size_t none = max_count;

  /// The classes that a pool has if it is told of none: each multiple of 8 bytes up to 64, then eight to each
  /// doubling up to 16 KiB. So less than a ninth of a block above 64 bytes is waste, a fifth where it is to
  /// be aligned to 16; and each multiple of an alignment fits a block of that alignment as well as any.
  [[nodiscard]] static std::span<std::size_t const> default_sizes() noexcept;

  /// @param sizes none: the default ones that are no smaller than `min_block_bytes`.
  /// @throws std::invalid_argument, naming the pool and the size, if the invariants do not hold.
  size_classes(char const* pool, std::span<std::size_t const> sizes,
               std::size_t min_block_bytes = granule_bytes);

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] std::size_t bytes(std::size_t i) const noexcept { return bytes_[i]; }
  [[nodiscard]] std::size_t largest_bytes() const noexcept { return bytes_[count_ - 1]; }
  /// What the addresses of blocks are multiples of: as many powers of two as are in the size, up to
  /// `max_alignment`.
  [[nodiscard]] std::size_t alignment(std::size_t i) const noexcept { return alignment_of(bytes_[i]); }

  /// The offset of the last byte of a block of `bytes`, rounded up to `align`. Of 0 bytes the largest there
  /// is.
  [[nodiscard]] static constexpr std::size_t last_offset(std::size_t bytes, std::size_t align) noexcept {
    return (bytes - 1) | (align - 1);
  }
  /// The end of the offsets that `index_at` may be called with.
  [[nodiscard]] std::size_t table_end() const noexcept { return table_end_; }
  /// The largest alignment that `index_at` serves.
  [[nodiscard]] std::size_t fast_alignment() const noexcept { return fast_alignment_; }
  /// The least class for `last == last_offset(bytes, align)`. @pre `last < table_end() && align <=
  /// fast_alignment()`. O(1).
  [[nodiscard]] std::size_t index_at(std::size_t last) const noexcept { return table_[last / granule_bytes]; }
  /// The class that `index_at` finds, or if it may not be called the least whose blocks have that size and
  /// alignment; `none` if there is none. O(classes).
  [[nodiscard]] std::size_t index_of(std::size_t bytes, std::size_t align) const noexcept;

 private:
  [[nodiscard]] static constexpr std::size_t alignment_of(std::size_t bytes) noexcept {
    return (std::min)(bytes & (~bytes + 1), max_alignment);
  }
  void fill_table() noexcept;

  std::array<std::uint8_t, max_table_bytes / granule_bytes> table_{};
  std::array<std::size_t, max_count> bytes_{};
  std::size_t count_ = 0;
  std::size_t table_end_ = 0;
  std::size_t fast_alignment_ = granule_bytes;
};

}  // namespace tidemark::detail
