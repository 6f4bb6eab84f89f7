// SPDX-License-Identifier: Apache-2.0
/// @file
/// `planner::improve`: searches for a lower plan than the one it is given. Owns nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include <tidemark/plan/make_plan.hpp>
#include <tidemark/plan/memory_plan.hpp>
#include <tidemark/plan/replay/step_plan.hpp>

namespace tidemark::planner {

/// How far the search for a plan has come. Texts are literals.
struct progress {
  char const* stage = "";               ///< the current stage
  std::size_t height = 0;               ///< bytes, of the best plan so far
  std::size_t lower_bound = 0;          ///< bytes, below which no plan is
  std::uint64_t nodes = 0;              ///< blocks placed so far, in all stages
  std::chrono::nanoseconds elapsed{0};  ///< since the search began
  std::size_t proven_bound = 0;         ///< bytes: the search has shown that no plan is lower
};

/// How a plan is searched for.
///
/// The search is one sequence of steps that depends on the blocks, the plan it starts from, `alignment`, `seed`,
/// `exact` and `capacity` alone; `time_limit`, `node_limit` and `stop` only say where it is cut off. So more nodes
/// never give a worse plan, nor does more time where lifetimes are given: of conflicts the bound is what is
/// found in the time, and the steps depend on it. Where only `node_limit` cuts, the plan is always the same.
struct options {
  /// Each block's offset is a multiple of this power of two, and of its own alignment. A block takes a
  /// multiple of it.
  std::size_t alignment = default_plan_alignment;
  /// The search ends after that time, or some milliseconds later, some tens where there are many blocks.
  std::chrono::nanoseconds time_limit = std::chrono::milliseconds{100};
  /// The search ends when this many blocks were placed, those of the plan it starts from and failed tries included.
  std::uint64_t node_limit = (std::numeric_limits<std::uint64_t>::max)();
  /// Of the random choices of the search.
  std::uint64_t seed = 0;
  /// If true the search goes on until it has a plan that cannot be lower, or is cut off. If not, each of
  /// its tries ends after some ten thousand blocks, and then only what takes turns with it goes on.
  bool exact = false;
  /// A plan of at most this many bytes is good enough, and ends the search; 0: only one that cannot be lower.
  std::size_t capacity = 0;
  /// Called now and then by the thread that plans: at the beginning, at each lower plan, and at
  /// most every few milliseconds besides.
  /// An exception from it ends the search and passes through.
  std::function<void(progress const&)> on_progress = nullptr;
  /// Once it is true the search ends, as if its time was over; null: never. Another thread or a signal
  /// handler may set it.
  std::atomic<bool> const* stop = nullptr;
};

/// The result of a stage of the search.
struct stage {
  char const* name = "";                ///< of the stage: a literal
  std::size_t height = 0;               ///< bytes, of the best plan when it ended
  std::uint64_t nodes = 0;              ///< blocks that it placed
  std::chrono::nanoseconds elapsed{0};  ///< that it took
};

/// A plan, and what is known of it. `lower_bound <= proven_bound <= height`.
struct result : memory_plan {
  std::size_t proven_bound = 0;  ///< bytes: the search has shown that no plan is lower
  bool optimal = false;          ///< true if no plan is lower than this one: height == proven_bound
  std::vector<stage> stages;     ///< of the search, in order
};

/// Searches for a lower plan than `start`, within the limits of `options`.
///
/// The stages, each of which begins only while the plan can still become lower and no limit is reached:
///  - "time": of more than 2,048 blocks that are neither fixed nor aligned further, one pass over the moments, in
///    which blocks that are born take the places of those that died; for steps that are full at every moment;
///  - "orders": by birth, duration, area and size, each block in the lowest gap, for lifetimes of 16,384 blocks or
///    fewer;
///  - "promotion", layouts in which next is a block that can lie lowest, over the fullest moments first; they go back
///    where these get too full, and blocks that came too high move ahead;
///  - "ejection", where blocks that lie too high are taken out and put back where they are least in the way;
///  - "search": backtracking searches for a plan of a given height, that of the bound first; of 256 blocks at
///    most also by which of two is the lower one. The three take turns, each time for longer; the search has the
///    first turn of up to 2,048 blocks, else the last.
///
/// Three kinds of problems have no "promotion": those whose conflicts are given as pairs, those with more than 2^22
/// conflicts between another block and one that is fixed and not always live, and those that alignments make longer
/// by more than an eighth together.
///
/// Memory is O(n log n), O(n) of more than 16,384 blocks, and 100 MiB for the search. A layout of "promotion" mostly takes
/// O(log n) steps for each block, up to some 50 times that where it goes back, and as much again each time that a block
/// waits for a fixed one in its way. "ejection" takes O(k log k) for a block that is in conflict with k. The search
/// takes O(n) for each block that is placed; where more than 2,048 blocks hang together there is no search.
/// It goes one call deeper for each block, and takes up to 1.5 MiB of the calling thread's stack in an optimized build.
///
/// Safe to call from several threads.
/// @param start a plan of the blocks, with the alignment of the options: `make_plan` returns one
/// @return a plan that is not higher than `start`
/// @throws std::invalid_argument as `require_valid` does for a plan that is not one of these blocks; std::bad_alloc;
/// any exception from `on_progress`.
[[nodiscard]] result improve(std::span<lifetime const> blocks, memory_plan const& start,
                             options const& options = {});

/// The same where any two blocks may be in conflict, as in captures of several streams, whose order is
/// partial. Pairs may be named more than once; a block is in no conflict with itself.
///
/// There is no search: a plan is known to be `optimal` only where it is at the `lower_bound`. That is the
/// weight of a clique that was found, and so may be below the largest there is, the more so where
/// the time is over before it is found. Memory is linear in blocks and conflicts.
/// @throws as above, and std::invalid_argument if a conflict names a block that does not exist.
[[nodiscard]] result improve(std::span<plan_block const> blocks, std::span<plan_conflict const> conflicts,
                             memory_plan const& start, options const& options = {});

/// The same for the plan of a step. Blocks that outlive the step stay where they lie; the alignment is that of the
/// plan.
///
/// ```cpp
/// memory.use(planner::improve(load_step_plan("step.csv")));
/// ```
/// @return a valid plan of the same step that is not higher
/// @throws std::invalid_argument as `step_plan::require_valid`; otherwise as above.
[[nodiscard]] step_plan improve(step_plan const& plan, options const& options = {});

/// `improve` from the plan of `make_plan`. The time limit includes both, and the plan of `make_plan` is always finished.
/// @throws std::invalid_argument as `make_plan` does; otherwise as `improve`.
[[nodiscard]] result find_plan(std::span<lifetime const> blocks, options const& options = {});
[[nodiscard]] result find_plan(std::span<plan_block const> blocks, std::span<plan_conflict const> conflicts,
                               options const& options = {});

}  // namespace tidemark::planner
