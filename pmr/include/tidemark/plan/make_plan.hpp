// SPDX-License-Identifier: Apache-2.0
/// @file
/// `make_plan`: offsets of blocks whose lifetimes are known, by two quick orders. Owns nothing.
#pragma once

#include <cstddef>
#include <span>

#include <tidemark/plan/memory_plan.hpp>

namespace tidemark {

/// Alignment of plans, in bytes, where the caller names none.
inline constexpr std::size_t default_plan_alignment = 256;

/// Places blocks whose lifetimes are known, by the better of two orders. It does not search: the package
/// `tidemark::planner` has one, which starts from the plan that this returns.
///
///  - "lowest": next is the block that can lie lowest on the blocks already placed, and among these the block whose
///    moments are the fullest.
///  - "size": blocks in falling size, each in the lowest gap. Left out for more than 4,096 blocks, and if "lowest" is at
///    the lower bound.
///
/// The plan depends on the arguments alone. Blocks that are never live together, all live at once, or all of one
/// size and not aligned further or fixed, are at the bound.
///
/// Complexity: mostly O(n log n) steps, and O(n f) more for f blocks that are fixed. Memory is O(n). Safe to call from
/// several threads.
/// @param blocks that are to be placed
/// @param alignment in bytes, a power of two: each block's offset is a multiple of it, and of the block's own alignment.
///   A block takes a multiple of it.
/// @throws std::invalid_argument, whose text names the block by its number, if an alignment is no power
/// of two, an `upper` is below its `lower`, a fixed offset is no multiple of the alignments, or two fixed
/// blocks are in conflict and share a byte; if the blocks, each rounded up to its alignment, together
/// have more than 2^62 bytes or a fixed one ends above; std::bad_alloc.
[[nodiscard]] memory_plan make_plan(std::span<lifetime const> blocks,
                                    std::size_t alignment = default_plan_alignment);

/// The same where any two blocks may be in conflict, as in captures of several streams, whose order is partial. Pairs
/// may be named more than once; a block is in no conflict with itself.
///
/// The lower bound is the weight of a clique that was found, and so may be below the largest. Complexity: O(log m)
/// steps for each time that a block is found to lie higher than before, at worst once for each of its m conflicts.
/// Memory is linear in blocks and conflicts.
/// @throws as above, and std::invalid_argument if a conflict names a block that does not exist.
[[nodiscard]] memory_plan make_plan(std::span<plan_block const> blocks,
                                    std::span<plan_conflict const> conflicts,
                                    std::size_t alignment = default_plan_alignment);

/// Checks that a plan is one of these blocks. O(n log n). Safe to call from several threads.
/// @param alignment in bytes, that the plan was made with
/// @throws std::invalid_argument as `make_plan` for blocks that have no plan; if the plan has not one offset for each
/// block, an offset is no multiple of the alignments or not the fixed one, a block ends above the height, or two
/// blocks in conflict share a byte; std::bad_alloc.
void require_valid(memory_plan const& plan, std::span<lifetime const> blocks,
                   std::size_t alignment = default_plan_alignment);

/// The same where conflicts are given. Linear in blocks and conflicts.
/// @throws as above, and std::invalid_argument if a conflict names a block that does not exist.
void require_valid(memory_plan const& plan, std::span<plan_block const> blocks,
                   std::span<plan_conflict const> conflicts, std::size_t alignment = default_plan_alignment);

}  // namespace tidemark
