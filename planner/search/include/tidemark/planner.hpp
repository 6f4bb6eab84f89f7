// SPDX-License-Identifier: Apache-2.0
/// @file
/// `make_plan`: where blocks lie whose lifetimes are known, in little memory. Owns offsets only.
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

/// How far the search for a plan has come. Texts are literals.
struct plan_progress {
  char const* stage = "";               ///< the current stage
  std::size_t height = 0;               ///< bytes, of the best plan so far
  std::size_t lower_bound = 0;          ///< bytes, below which no plan is
  std::uint64_t nodes = 0;              ///< blocks placed so far, in all stages
  std::chrono::nanoseconds elapsed{0};  ///< since the search began
  std::size_t proven_bound = 0;         ///< bytes: the search has shown that no plan is lower
};

/// How a plan is searched for.
///
/// The search is one sequence of steps that depends on the blocks, `alignment`, `seed`, `exact` and
/// `capacity` alone; `time_limit`, `node_limit` and `stop` only say where it is cut off. So more nodes
/// never give a worse plan, nor does more time where lifetimes are given: of conflicts the bound is what is
/// found in the time, and the steps depend on it. Where only `node_limit` cuts, the plan is always the same.
struct plan_options {
  /// Each block's offset is a multiple of this power of two, and of its own alignment. A block takes a
  /// multiple of it.
  std::size_t alignment = 256;
  /// The search ends after that time, or some milliseconds later, some tens where there are many blocks: only the
  /// first order is always finished, however long it takes.
  std::chrono::nanoseconds time_limit = std::chrono::milliseconds{100};
  /// The search ends when so many blocks were placed, failed tries included; the first order is
  /// always finished.
  std::uint64_t node_limit = (std::numeric_limits<std::uint64_t>::max)();
  /// Of the random choices of the climb and of the search.
  std::uint64_t seed = 0;
  /// Whether the search goes on until it has a plan that cannot be lower, or is cut off. If not, each of
  /// its tries ends after some ten thousand blocks, and then only what takes turns with it goes on.
  bool exact = false;
  /// A plan of at most so many bytes is good enough, and ends the search; 0: only one that cannot be lower.
  std::size_t capacity = 0;
  /// Called now and then by the thread that plans: at each lower plan, and at most every few milliseconds.
  /// What it throws ends the search and passes through.
  std::function<void(plan_progress const&)> on_progress = nullptr;
  /// Once it is true the search ends, as if its time was over; null: never. Another thread or a signal
  /// handler may set it.
  std::atomic<bool> const* stop = nullptr;
};

/// The result of a stage of the search.
struct plan_stage {
  char const* name = "";                ///< of the stage: a literal
  std::size_t height = 0;               ///< bytes, of the best plan when it ended
  std::uint64_t nodes = 0;              ///< blocks that it placed
  std::chrono::nanoseconds elapsed{0};  ///< that it took
};

/// Offsets of blocks, such that no two in conflict share a byte.
///
/// `lower_bound <= proven_bound <= height`; all three are multiples of `plan_options::alignment`, and of
/// sizes rounded up to it.
struct memory_plan {
  std::vector<std::size_t> offsets;  ///< of each block in bytes, in the order of the blocks
  std::size_t height = 0;            ///< bytes of the memory that holds them all
  std::size_t lower_bound = 0;   ///< bytes: the largest sum live at once, or the end of a block that is fixed
  std::size_t proven_bound = 0;  ///< bytes: the search has shown that no plan is lower
  bool optimal = false;          ///< whether no plan is lower than this one: height == proven_bound
  std::vector<plan_stage> stages;  ///< what the search did, in order

  /// How much more than the bound it takes: 1 at best. 1 where there is nothing to place.
  [[nodiscard]] double ratio() const noexcept {
    return lower_bound == 0 ? 1.0 : static_cast<double>(height) / static_cast<double>(lower_bound);
  }
};

/// Places blocks whose lifetimes are known, in as little memory as is found within the limits.
///
/// The stages, each of which begins only while the plan can still become lower and no limit is reached:
///  - "size": blocks in falling size, each in the lowest gap. Left out of more than 4,096 blocks; where it is not,
///    no plan is higher than this one;
///  - "lowest": next is the block that can lie lowest, with several choices among equals;
///  - "time": of more than 2,048 blocks that are neither fixed nor aligned further, one pass over the moments, in
///    which what is born takes the place of what died; for steps that are full at every moment. Of more than
///    4,096 it comes after the first choice of "lowest";
///  - "orders": by birth, duration, area and size, each block in the lowest or the smallest gap. Of more than 16,384
///    blocks they wait for the turns below, and of more than 131,072 there are none;
///  - "climb": the order among equals is changed at random, mostly at the blocks that hold up the top, and
///    what comes to a little more is gone on from too. Of more than 4,096 blocks two others take its place,
///    in turns: "promotion", layouts over the fullest moments first, which go back where these get too full and in
///    which what came too high moves ahead, and "ejection", where that is taken out and put back where it is least in
///    the way;
///  - "search": backtracking searches for a plan of a given height, that of the bound first; of 256 blocks at
///    most also by which of two is the lower one. They take turns with the climb, each time for longer.
///
/// Of more than 4,096 blocks three kinds keep the stages of fewer, with "size" first and "ejection" alone in place of
/// "climb": those whose conflicts are given as pairs, those with more than 2^22 conflicts between another block and
/// one that is fixed and not always live, and those that alignments make longer by more than an eighth together. There
/// "lowest" comes between the orders into the lowest gaps and those into the smallest.
///
/// Blocks that are never live together, all live at once, or all of one size and not aligned further or
/// fixed, are at the bound after the first. Memory is O(n log n), whatever the number of conflicts, and 100
/// MiB for the search; it is O(n) where "orders" are left out. "size" and "orders" take O(log n) steps for each
/// block and range that is read beside it. "lowest" mostly takes O(log n) for each block, and as much
/// again each time that it waits for a fixed one in its way, but not for one that is always live; a layout of
/// "promotion" takes up to some 50 times that. "ejection" takes O(k log k) for one that is in conflict with k. In a graph
/// "lowest" takes O(log n) steps for each time that a block is found to lie higher than when it was last looked at, at
/// worst as often as there are blocks in conflict with it. The climb takes O(n) and the search O(n) for each block that
/// is placed; where more than 2,048 blocks hang together there is no search. It goes one call deeper for each block,
/// and takes up to 1.5 MiB of the calling thread's stack in an optimized build.
///
/// @throws std::invalid_argument, whose text names the block by its number, if an alignment is no power
/// of two, an `upper` is below its `lower`, a fixed offset is no multiple of the alignments, or two fixed
/// blocks are in conflict and share a byte; if the blocks, each rounded up to its alignment, together
/// have more than 2^62 bytes or a fixed one ends above; std::bad_alloc.
[[nodiscard]] memory_plan make_plan(std::span<lifetime const> blocks, plan_options const& options = {});

/// The same where any two blocks may be in conflict, as in captures of several streams, whose order is
/// partial. Pairs may be named more than once; a block is in no conflict with itself.
///
/// There is no search: a plan is known to be `optimal` only where it is at the `lower_bound`. That is the
/// weight of a clique that was found, and so may be below the largest there is, the more so where
/// the time is over before it is found. Memory is linear in blocks and conflicts.
/// @throws as above, and std::invalid_argument if a conflict names a block that is not there.
[[nodiscard]] memory_plan make_plan(std::span<plan_block const> blocks,
                                    std::span<plan_conflict const> conflicts,
                                    plan_options const& options = {});

}  // namespace tidemark
