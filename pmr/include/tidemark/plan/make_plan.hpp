// SPDX-License-Identifier: Apache-2.0
/// @file
/// `lifetime` and `memory_plan`: blocks to place, and their offsets. `make_plan`: computes the offsets of
/// blocks with known lifetimes, in three quick orders. Owns offsets only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
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

/// Default alignment of plans in bytes.
inline constexpr std::size_t default_plan_alignment = 256;

/// Places blocks with known lifetimes and returns the best of three orders. It does not search: the package
/// `tidemark::planner` searches, starting from this plan.
///
///  - "nested": blocks in falling duration, each in the lowest gap. Skipped for more than 512 blocks.
///  - "lowest": the next block is the block that can have the lowest offset on the placed blocks. Ties go to
///    the block with the largest load, which is the maximum of the bytes live at one of its moments; then to
///    the longest-lived block, then to the largest. Movable blocks of one size are placed in the order of
///    `lower`.
///  - "size": blocks in falling size, each in the lowest gap. Skipped for more than 4,096 blocks.
///
/// An order that reaches the lower bound ends the list.
///
/// The plan depends only on the arguments. A plan is at the bound if its blocks are never live together or
/// all live at once. It is also at the bound if no block has an own alignment or a fixed offset, and all
/// blocks have one size or up to 512 blocks have nested lifetimes.
///
/// Complexity: usually O(n log n) steps, plus O(n f) for f fixed blocks. Memory is O(n). Thread-safe.
/// @param blocks blocks to place
/// @param alignment in bytes, a power of two. It divides the offset of each block, as the block's own
/// alignment does, and blocks are rounded up to it.
/// @throws std::invalid_argument, with the number of the block in the text, if an alignment is not a power of
/// two; if `upper < lower`; if a fixed offset is not a multiple of the alignments; if two fixed blocks in
/// conflict share a byte; if the blocks, each rounded up to its alignment, together have more than 2^62
/// bytes, or a fixed block ends above 2^62. std::bad_alloc.
[[nodiscard]] memory_plan make_plan(std::span<lifetime const> blocks,
                                    std::size_t alignment = default_plan_alignment);

/// Checks that a plan is valid for these blocks. O(n log n). Thread-safe.
/// @param alignment alignment of the plan in bytes
/// @throws std::invalid_argument as `make_plan` for invalid blocks; if the plan does not have one offset for
/// each block; if an offset is not a multiple of the alignments or differs from the fixed offset; if a block
/// ends above the height; if two blocks in conflict share a byte. std::bad_alloc.
void require_valid(memory_plan const& plan, std::span<lifetime const> blocks,
                   std::size_t alignment = default_plan_alignment);

}  // namespace tidemark
