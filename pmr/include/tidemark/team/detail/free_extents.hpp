// SPDX-License-Identifier: Apache-2.0
/// @file
/// `free_extents`: the free extents of a region. Owns no memory of the region.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/units.hpp>

namespace tidemark::detail {

/// The free extents of a region, each of whole pages.
///
/// Invariants: `bytes() == sum of their sizes`; they are sorted by address and apart, except between `add` and
/// `merge`.
///
/// Complexity: O(extents), unless stated otherwise. One thread at a time.
class free_extents {
 public:
  static constexpr std::size_t page_bytes = 4 * KiB;  ///< the page size of most machines

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t largest_bytes() const noexcept;
  [[nodiscard]] std::vector<byte_range> const& ranges() const noexcept { return ranges_; }

  /// Makes room for `more` further ranges. @throws std::bad_alloc
  void reserve(std::size_t more);
  /// Removes up to `wanted` bytes, rounded up to pages, of the lowest extent that has `least` bytes; empty if
  /// there is none.
  [[nodiscard]] byte_range claim(std::size_t least, std::size_t wanted) noexcept;
  /// Removes the free bytes that end at `end`, of one extent, and not below `least`; empty if there are none.
  [[nodiscard]] byte_range claim_below(std::uintptr_t end, std::uintptr_t least) noexcept;
  /// Adds an extent at any place. @pre `reserve` made room. O(1).
  void add(byte_range range) noexcept;
  /// Sorts the extents, and joins adjacent ones. O(n log n).
  void merge() noexcept;
  void clear() noexcept;

 private:
  void cut(std::vector<byte_range>::iterator from, byte_range range) noexcept;

  std::vector<byte_range> ranges_;
  std::size_t bytes_ = 0;
};

}  // namespace tidemark::detail
