// SPDX-License-Identifier: Apache-2.0
/// @file
/// `make_plan`: where blocks lie whose lifetimes are known, in little memory. Owns offsets only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tidemark/lifetime.hpp>
#include <tidemark/plan_options.hpp>

namespace tidemark {

/// What a stage of the search came to.
struct plan_stage {
  char const* name = "";                ///< of the stage: a literal
  std::size_t height = 0;               ///< bytes, of the best plan when it ended
  std::uint64_t nodes = 0;              ///< blocks that it placed
  std::chrono::nanoseconds elapsed{0};  ///< that it took
};

/// Offsets of blocks, such that no two in conflict share a byte.
///
/// `lower_bound <= height`, and `optimal` if they are equal, or if the search has shown that no plan is
/// lower. Both are multiples of `plan_options::alignment`, and of sizes rounded up to it.
struct plan {
  std::vector<std::size_t> offsets;  ///< of each block in bytes, in the order of the blocks
  std::size_t height = 0;            ///< bytes of the memory that holds them all
  std::size_t lower_bound = 0;  ///< bytes: the largest sum live at once, or the end of a block that is fixed
  bool optimal = false;         ///< whether no plan is lower
  std::vector<plan_stage> stages;  ///< what the search did, in order

  /// How much more than the bound it takes: 1 at best. 1 where there is nothing to place.
  [[nodiscard]] double ratio() const noexcept {
    return lower_bound == 0 ? 1.0 : static_cast<double>(height) / static_cast<double>(lower_bound);
  }
};

/// Places blocks whose lifetimes are known, in as little memory as is found within the limits.
///
/// The stages, each of which begins only while the plan can still become lower and no limit is reached:
///  - "size": blocks in falling size, each in the lowest gap. No plan is higher than this one;
///  - "lowest": next is the block that can lie lowest, with several choices among equals;
///  - "orders": by birth, life, area and size, each block in the lowest or the smallest gap. Where there are
///    more than 4,096 blocks, those with the lowest gap come before "lowest";
///  - "climb": the order among equals is changed at random, mostly at the blocks that hold up the top, and
///    what comes to a little more is gone on from too;
///  - "search": a backtracking search for a plan of a given height, that of the bound first. It takes turns
///    with the climb, each time for longer.
///
/// Blocks that are never live together, all live at once, or all of one size and not aligned further or
/// fixed, are at the bound after the first. Memory is O(n log n), whatever the number of conflicts, and 40
/// MiB for the search. "size" and "orders" take O(log n) steps for each block and range that is read beside
/// it. "lowest" takes O(log n) steps for each time that a block is found to lie higher than when it was last
/// looked at: mostly a few times, at worst as often as there are blocks in conflict with it. The climb takes
/// O(n) and the search O(n) for each block that is placed; where more than some 2,000 blocks hang together
/// the search gives up.
///
/// @throws std::invalid_argument, whose text names the block by its number, if an alignment is no power of
/// two, an `upper` is below its `lower`, a fixed offset is no multiple of the alignments, or two fixed blocks
/// are in conflict and share a byte; if the blocks, each rounded up to its alignment, together have more than
/// 2^62 bytes or a fixed one ends above; std::bad_alloc.
[[nodiscard]] plan make_plan(std::span<lifetime const> blocks, plan_options const& options = {});

/// The same where any two blocks may be in conflict, as in captures of several streams, whose order is
/// partial. Pairs may be named more than once; a block is in no conflict with itself.
///
/// There is no search: a plan is known to be `optimal` only where it is at the `lower_bound`. That is the
/// weight of a clique that was found, and so may be below the largest there is, the more so where
/// the time is over before it is found. Memory is linear in blocks and conflicts.
/// @throws as above, and std::invalid_argument if a conflict names a block that is not there.
[[nodiscard]] plan make_plan(std::span<plan_block const> blocks, std::span<conflict const> conflicts,
                             plan_options const& options = {});

}  // namespace tidemark
