// SPDX-License-Identifier: Apache-2.0
/// @file
/// `lifetime`, `plan_block`, `plan_conflict` and `memory_plan`: blocks to place, and where they lie. Owns offsets only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tidemark {

/// A block that is live in `[lower, upper)`. Two blocks are in conflict if a moment is in both.
///
/// Moments are any numbers that grow: events of a trace, nanoseconds. A block of no bytes, or whose `lower`
/// is its `upper`, has no conflicts.
struct lifetime {
  std::uint64_t lower = 0;                           ///< the first moment
  std::uint64_t upper = 0;                           ///< the moment after the last; not below `lower`
  std::size_t size = 0;                              ///< bytes
  std::size_t alignment = 1;                         ///< its offset is a multiple of this power of two
  std::optional<std::size_t> offset = std::nullopt;  ///< where it must lie, if that is fixed

  friend bool operator==(lifetime const&, lifetime const&) = default;
};

/// A block whose conflicts are given as pairs.
struct plan_block {
  std::size_t size = 0;                              ///< bytes
  std::size_t alignment = 1;                         ///< its offset is a multiple of this power of two
  std::optional<std::size_t> offset = std::nullopt;  ///< where it must lie, if that is fixed

  friend bool operator==(plan_block const&, plan_block const&) = default;
};

/// Two blocks, by their number from 0, that must not share a byte: both may be live at one moment.
struct plan_conflict {
  std::size_t first = 0;   ///< one
  std::size_t second = 0;  ///< the other

  friend bool operator==(plan_conflict const&, plan_conflict const&) = default;
};

/// Offsets of blocks, such that no two in conflict share a byte.
///
/// `lower_bound <= height`; both are multiples of the alignment that the plan was made with, and of sizes rounded
/// up to it.
struct memory_plan {
  std::vector<std::size_t> offsets;  ///< of each block in bytes, in the order of the blocks
  std::size_t height = 0;            ///< bytes of the memory that holds them all
  std::size_t lower_bound = 0;  ///< bytes: the largest sum live at once, or the end of a block that is fixed

  /// How much more than the bound it takes: 1 at best. 1 where there is nothing to place.
  [[nodiscard]] double ratio() const noexcept {
    return lower_bound == 0 ? 1.0 : static_cast<double>(height) / static_cast<double>(lower_bound);
  }

  friend bool operator==(memory_plan const&, memory_plan const&) = default;
};

}  // namespace tidemark
