// SPDX-License-Identifier: Apache-2.0
/// @file
/// `lifetime` and `memory_plan`: blocks to place, and their offsets. Owns offsets only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tidemark {

/// A block that is live in `[lower, upper)`. Two blocks are in conflict if a moment is in both intervals.
///
/// Moments are any increasing numbers: events of a trace, nanoseconds. A block has no conflicts if
/// `size == 0` or `lower == upper`.
struct lifetime {
  std::uint64_t lower = 0;                           ///< first moment
  std::uint64_t upper = 0;                           ///< moment after the last; not below `lower`
  std::size_t size = 0;                              ///< bytes
  std::size_t alignment = 1;                         ///< power of two that divides the offset
  std::optional<std::size_t> offset = std::nullopt;  ///< fixed offset, if any

  friend bool operator==(lifetime const&, lifetime const&) = default;
};

/// Offsets of blocks; no two blocks in conflict share a byte.
///
/// `lower_bound <= height`. Both are multiples of the plan's alignment, computed with sizes rounded up to it.
struct memory_plan {
  std::vector<std::size_t> offsets;  ///< offset of each block in bytes, in the order of the blocks
  std::size_t height = 0;            ///< bytes of the memory for all blocks
  std::size_t lower_bound = 0;       ///< bytes: largest sum live at once, or end of a fixed block

  /// Returns `height / lower_bound`, which is 1 at best; 1 if there is nothing to place.
  [[nodiscard]] double ratio() const noexcept {
    return lower_bound == 0 ? 1.0 : static_cast<double>(height) / static_cast<double>(lower_bound);
  }

  friend bool operator==(memory_plan const&, memory_plan const&) = default;
};

}  // namespace tidemark
