// SPDX-License-Identifier: Apache-2.0
/// @file
/// `size_classes`: the sizes that a pool keeps blocks of, and which of them serves a request. Owns nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tidemark/units.hpp>

namespace tidemark::detail {

/// A sorted list of block sizes.
///
/// Invariants: `block_bytes_min <= bytes(0) < bytes(1) < ... <= block_bytes_max`, each a multiple of
/// `granule_bytes`; `table_[(n + 15) / 16]` is the least `i` with `bytes(i) >= n`, for `n <= table_bytes_max`.
class size_classes {
 public:
  static constexpr std::size_t count_max = 64;
  static constexpr std::size_t granule_bytes = 16;
  static constexpr std::size_t block_bytes_min = 32;  // room for the words of a free block
  static constexpr std::size_t block_bytes_max = 1 * GiB;
  static constexpr std::size_t table_bytes_max = 16 * KiB;  // beyond it the class is searched, not looked up
  static constexpr std::size_t alignment_max = 256;         // of a vector for a device
  static constexpr std::size_t none = count_max;

  /// @throws std::invalid_argument, naming the pool and the size, if the invariants do not hold.
  size_classes(char const* pool, std::span<std::size_t const> sizes);

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] std::size_t bytes(std::size_t i) const noexcept { return bytes_[i]; }
  [[nodiscard]] std::size_t largest_bytes() const noexcept { return bytes_[count_ - 1]; }
  /// What the addresses of blocks are multiples of: as many powers of two as are in the size, up to
  /// `alignment_max`.
  [[nodiscard]] std::size_t alignment(std::size_t i) const noexcept {
    return std::min(bytes_[i] & (~bytes_[i] + 1), alignment_max);
  }

  /// The largest size that `index_of_small` may be asked for.
  [[nodiscard]] std::size_t small_bytes_max() const noexcept {
    return std::min(largest_bytes(), table_bytes_max);
  }
  /// The alignment that every block has.
  [[nodiscard]] std::size_t common_alignment() const noexcept;

  /// The least class for `bytes`. @pre `bytes <= small_bytes_max()`. O(1).
  [[nodiscard]] std::size_t index_of_small(std::size_t bytes) const noexcept {
    return table_[(bytes + granule_bytes - 1) / granule_bytes];
  }
  /// The least class whose blocks have that size and alignment; `none` if there is none. O(classes).
  [[nodiscard]] std::size_t index_of(std::size_t bytes, std::size_t align) const noexcept;

 private:
  std::array<std::uint8_t, table_bytes_max / granule_bytes + 1> table_{};
  std::array<std::size_t, count_max> bytes_{};
  std::size_t count_ = 0;
};

}  // namespace tidemark::detail
