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
/// Invariants: `min_block_bytes <= bytes(0) < bytes(1) < ... <= max_block_bytes`, each a multiple of
/// `granule_bytes`; `table_[(n + 15) / 16]` is the least `i` with `bytes(i) >= n`, for `n <=
/// max_table_bytes`.
class size_classes {
 public:
  static constexpr std::size_t max_count = 64;
  static constexpr std::size_t granule_bytes = 16;
  static constexpr std::size_t min_block_bytes = 32;  // room for the words of a free block
  static constexpr std::size_t max_block_bytes = 1 * GiB;
  static constexpr std::size_t max_table_bytes = 16 * KiB;  // beyond it the class is searched, not looked up
  static constexpr std::size_t max_alignment = 256;         // of a vector for a device
  static constexpr std::size_t none = max_count;

  /// @throws std::invalid_argument, naming the pool and the size, if the invariants do not hold.
  size_classes(char const* pool, std::span<std::size_t const> sizes);

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] std::size_t bytes(std::size_t i) const noexcept { return bytes_[i]; }
  [[nodiscard]] std::size_t largest_bytes() const noexcept { return bytes_[count_ - 1]; }
  /// What the addresses of blocks are multiples of: as many powers of two as are in the size, up to
  /// `max_alignment`.
  [[nodiscard]] std::size_t alignment(std::size_t i) const noexcept {
    return std::min(bytes_[i] & (~bytes_[i] + 1), max_alignment);
  }

  /// The largest size of which `index_of_small` may be called.
  [[nodiscard]] std::size_t max_small_bytes() const noexcept {
    return std::min(largest_bytes(), max_table_bytes);
  }
  /// The alignment that every block has.
  [[nodiscard]] std::size_t common_alignment() const noexcept;

  /// The least class for `bytes`. @pre `bytes <= max_small_bytes()`. O(1).
  [[nodiscard]] std::size_t index_of_small(std::size_t bytes) const noexcept {
    return table_[(bytes + granule_bytes - 1) / granule_bytes];
  }
  /// The least class whose blocks have that size and alignment; `none` if there is none. O(classes).
  [[nodiscard]] std::size_t index_of(std::size_t bytes, std::size_t align) const noexcept;

 private:
  std::array<std::uint8_t, max_table_bytes / granule_bytes + 1> table_{};
  std::array<std::size_t, max_count> bytes_{};
  std::size_t count_ = 0;
};

}  // namespace tidemark::detail
