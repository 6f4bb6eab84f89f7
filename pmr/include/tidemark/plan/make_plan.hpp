// SPDX-License-Identifier: Apache-2.0
/// @file
/// `make_plan`: computes offsets of blocks with known lifetimes, in two quick orders. Owns nothing.
#pragma once

#include <cstddef>
#include <span>

#include <tidemark/plan/memory_plan.hpp>

namespace tidemark {

/// Default alignment of plans in bytes.
inline constexpr std::size_t default_plan_alignment = 256;

/// Places blocks with known lifetimes and returns the better of two orders. It does not search: the package
/// `tidemark::planner` searches, starting from this plan.
///
///  - "lowest": the next block is the block that can have the lowest offset on the placed blocks. Ties go to
///    the block with the largest load, which is the maximum of the bytes live at one of its moments; then to
///    the longest-lived block, then to the largest. Movable blocks of one size are placed in the order of
///    `lower`.
///  - "size": blocks in falling size, each in the lowest gap. Skipped for more than 4,096 blocks, and if
///    "lowest" reaches the lower bound.
///
/// The plan depends only on the arguments. A plan is at the bound if its blocks are never live together or
/// all live at once. It is also at the bound if all blocks have one size and no own alignment or fixed
/// offset.
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
