// SPDX-License-Identifier: Apache-2.0
/// @file
/// `planner::improve`: searches for a lower plan than a given plan. Owns no memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include <tidemark/plan/make_plan.hpp>
#include <tidemark/plan/replay/step_plan.hpp>

namespace tidemark::planner {

/// A block whose conflicts are given as pairs.
struct plan_block {
  std::size_t size = 0;                              ///< bytes
  std::size_t alignment = 1;                         ///< power of two that divides the offset
  std::optional<std::size_t> offset = std::nullopt;  ///< fixed offset, if any
};

/// Two blocks that must not share a byte, because both may be live at one moment. Blocks are numbered from 0.
struct plan_conflict {
  std::size_t first = 0;   ///< one block
  std::size_t second = 0;  ///< the other block
};

/// The progress of a search. Texts are literals.
struct progress {
  char const* stage = "";               ///< the current stage
  std::size_t height = 0;               ///< bytes, of the best plan so far
  std::size_t lower_bound = 0;          ///< bytes; no plan is lower
  std::uint64_t nodes = 0;              ///< blocks placed so far, in all stages
  std::chrono::nanoseconds elapsed{0};  ///< since the search began
  std::size_t proven_bound = 0;         ///< bytes; the search proved that no plan is lower
};

/// Options of a search.
///
/// The search is one sequence of steps. The steps depend only on the blocks, the start plan, `alignment`,
/// `seed`, `exact` and `capacity`. `time_limit`, `node_limit` and `stop` only cut the sequence off. More
/// nodes therefore never give a worse plan, and neither does more time for lifetimes. For conflicts, the
/// bound and the steps depend on the time for the clique. With `node_limit` as the only limit the plan is
/// always the same.
struct options {
  /// Offsets and occupied sizes are multiples of this power of two. Offsets are also multiples of the block's
  /// own alignment.
  std::size_t alignment = default_plan_alignment;
  /// The search ends after this time, plus some milliseconds, or some tens of milliseconds for many blocks.
  std::chrono::nanoseconds time_limit = std::chrono::milliseconds{100};
  /// The search ends after this number of placed blocks, including the blocks of the start plan and of failed
  /// tries.
  std::uint64_t node_limit = (std::numeric_limits<std::uint64_t>::max)();
  /// Seed of the random choices.
  std::uint64_t seed = 0;
  /// If true, the search continues until its plan cannot be lower or a limit is reached. If false, each try
  /// of the stage "search" ends after some ten thousand blocks, and then only the other stages continue.
  bool exact = false;
  /// The search ends when a plan takes at most this many bytes. 0: only a plan that cannot be lower ends it.
  std::size_t capacity = 0;
  /// Called by the planning thread at the start, at each lower plan, and at most every few milliseconds
  /// besides. An exception from the callback ends the search and propagates.
  std::function<void(progress const&)> on_progress = nullptr;
  /// The search ends once this is true, as at the time limit. Another thread or a signal handler may set it.
  /// Null: never.
  std::atomic<bool> const* stop = nullptr;
};

/// The result of a stage of the search.
struct stage {
  char const* name = "";                ///< a literal
  std::size_t height = 0;               ///< bytes, of the best plan at the end of the stage
  std::uint64_t nodes = 0;              ///< blocks placed by the stage
  std::chrono::nanoseconds elapsed{0};  ///< time taken by the stage
};

/// A plan and its bounds. `lower_bound <= proven_bound <= height`.
struct result : memory_plan {
  std::size_t proven_bound = 0;  ///< bytes; the search proved that no plan is lower
  bool optimal = false;          ///< true if no plan is lower: height == proven_bound
  std::vector<stage> stages;     ///< of the search, in order
};

/// Searches for a lower plan than `start`, within the limits of `options`.
///
/// A stage begins only while the plan can become lower and no limit is reached:
///  - "time": one pass over the moments, in which births take the places of deaths. For more than 2,048
///    blocks, none fixed or aligned further. Succeeds on steps that are full at every moment.
///  - "orders": first fit by birth, duration, area and size, for at most 16,384 lifetimes.
///  - "promotion": layouts that place the lowest possible block next, over the fullest moments first. They
///    backtrack if a moment gets too full, and blocks that end too high move ahead.
///  - "ejection": takes out blocks that end too high, and puts them back where they displace the least
///    weight.
///  - "search": backtracking searches for a plan of a given height, the bound first. For at most 256 blocks
///    also by pairs.
///
/// The last three stages take turns of growing length. "search" has the first turn for up to 2,048 blocks,
/// otherwise the last.
///
/// "promotion" is skipped for conflicts given as pairs, for more than 2^22 conflicts with fixed blocks that
/// are not always live, and if alignments add more than an eighth to the sizes. "search" is skipped for
/// pairs, and if more than 2,048 blocks are connected in time.
///
/// Memory is O(n log n), O(n) for more than 16,384 blocks, plus 100 MiB for "search". A layout of "promotion"
/// usually takes O(log n) steps for each block. Backtracking takes up to about 50 times as many. Each wait
/// for a fixed block takes as many steps again. "ejection" takes O(k log k) for a block with k conflicts.
/// "search" takes O(n) for each placed block. The recursion takes up to 1.5 MiB of the calling thread's stack
/// in an optimized build.
///
/// Thread-safety: safe to call from several threads.
/// @param start a plan of the blocks with the alignment of the options, such as the plan of `make_plan`
/// @return a plan that is not higher than `start`
/// @throws std::invalid_argument as `require_valid` does if `start` is not a plan of these blocks;
///   std::bad_alloc; any exception from `on_progress`.
[[nodiscard]] result improve(std::span<lifetime const> blocks, memory_plan const& start,
                             options const& options = {});

/// The same for any conflict relation, for example of several streams, whose order is partial. Pairs may
/// repeat, and a pair of a block with itself is ignored.
///
/// "search" is skipped, so a plan is known to be `optimal` only if it is at `lower_bound`. `lower_bound` is
/// the weight of the heaviest clique found in the time, and may be less than the weight of the largest
/// clique. Memory is linear in blocks and conflicts.
/// @throws as above, and std::invalid_argument if a conflict names a block that does not exist.
[[nodiscard]] result improve(std::span<plan_block const> blocks, std::span<plan_conflict const> conflicts,
                             memory_plan const& start, options const& options = {});

/// The same for the plan of a step. Blocks that outlive the step keep their offsets. The alignment is that of
/// the plan.
///
/// ```cpp
/// memory.use(planner::improve(load_step_plan("step.csv")));
/// ```
/// @return a valid plan of the same step that is not higher
/// @throws std::invalid_argument as `step_plan::require_valid`; otherwise as above.
[[nodiscard]] step_plan improve(step_plan const& plan, options const& options = {});

/// Calls `improve` with the plan of `make_plan`. The time limit includes both. The plan of `make_plan` is
/// always completed.
///
/// For conflicts given as pairs, the search starts from the better plan of two orders of `make_plan`.
/// @throws std::invalid_argument as `make_plan` does, and if a conflict names a block that does not exist;
/// otherwise as `improve`.
[[nodiscard]] result find_plan(std::span<lifetime const> blocks, options const& options = {});
[[nodiscard]] result find_plan(std::span<plan_block const> blocks, std::span<plan_conflict const> conflicts,
                               options const& options = {});

}  // namespace tidemark::planner
