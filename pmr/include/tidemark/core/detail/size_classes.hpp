// SPDX-License-Identifier: Apache-2.0
/// @file
/// `size_classes`: the block sizes of a pool, and the class for a request. Owns nothing.
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
/// Invariants: `bytes(0) < bytes(1) < ... <= max_block_bytes`, each a multiple of `granule_bytes`. With `n =
/// (i + 1) * granule_bytes`, `table_[i]` is the least class of at least `n` bytes whose alignment is the
/// smaller of `n`'s alignment and 16; 8 replaces 16 if no class has alignment 16.
class size_classes {
 public:
  static constexpr std::size_t max_count = 96;
  static constexpr std::size_t granule_bytes = 8;
  static constexpr std::size_t max_block_bytes = 1 * GiB;
  static constexpr std::size_t max_table_bytes = 16 * KiB;  // larger requests search for their class
  static constexpr std::size_t max_alignment = 256;         // alignment of a vector on a device
  static constexpr std::size_t none = max_count;

  /// Default classes of a pool: each multiple of 8 bytes up to 64, then eight per doubling up to 16 KiB. In a
  /// block above 64 bytes, less than a ninth is waste, or a fifth with alignment 16. Each multiple of an
  /// alignment gets a block of that alignment at no extra cost.
  [[nodiscard]] static std::span<std::size_t const> default_sizes() noexcept;

  /// @param sizes empty: the default classes of at least `min_block_bytes`.
  /// @throws std::invalid_argument, naming the pool and the size, if the invariants do not hold.
  size_classes(char const* pool, std::span<std::size_t const> sizes,
               std::size_t min_block_bytes = granule_bytes);

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] std::size_t bytes(std::size_t i) const noexcept { return bytes_[i]; }
  [[nodiscard]] std::size_t largest_bytes() const noexcept { return bytes_[count_ - 1]; }
  /// Alignment of the blocks: the largest power of two that divides the size, up to `max_alignment`.
  [[nodiscard]] std::size_t alignment(std::size_t i) const noexcept { return alignment_of(bytes_[i]); }

  /// Offset of the last byte of a block of `bytes`, rounded up to `align`. The largest value for 0 bytes.
  [[nodiscard]] static constexpr std::size_t last_offset(std::size_t bytes, std::size_t align) noexcept {
    return (bytes - 1) | (align - 1);
  }
  /// Upper bound (exclusive) of the offsets that `index_at` accepts.
  [[nodiscard]] std::size_t table_end() const noexcept { return table_end_; }
  /// Largest alignment that `index_at` serves.
  [[nodiscard]] std::size_t fast_alignment() const noexcept { return fast_alignment_; }
  /// The least class for `last == last_offset(bytes, align)`. @pre `last < table_end() && align <=
  /// fast_alignment()`. O(1).
  [[nodiscard]] std::size_t index_at(std::size_t last) const noexcept { return table_[last / granule_bytes]; }
  /// The class of `index_at`. If `index_at` does not apply, the least class with that size and alignment, or
  /// `none`. O(classes).
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
