// SPDX-License-Identifier: Apache-2.0
/// @file
/// `plan_options`: how a plan is searched for.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>

namespace tidemark {

/// How far the search for a plan has come. Texts are literals.
struct plan_progress {
  char const* stage = "";               ///< what it is doing
  std::size_t height = 0;               ///< bytes, of the best plan so far
  std::size_t lower_bound = 0;          ///< bytes, below which no plan is
  std::uint64_t nodes = 0;              ///< blocks placed so far, in all stages
  std::chrono::nanoseconds elapsed{0};  ///< since the search began
};

/// How a plan is searched for.
///
/// The search is one sequence of steps that depends on the blocks, `alignment`, `seed`, `exact` and
/// `capacity` alone; `time_limit` and `node_limit` only say where it is cut off. So more of either never
/// gives a worse plan, and where only `node_limit` cuts, the plan is always the same.
struct plan_options {
  /// Each block's offset is a multiple of this power of two, and of its own alignment. A block takes a
  /// multiple of it.
  std::size_t alignment = 256;
  /// The search ends after that time, or some milliseconds later: only the first order is always finished,
  /// however long it takes.
  std::chrono::nanoseconds time_limit = std::chrono::milliseconds{100};
  /// The search ends when so many blocks were placed, tries that came to nothing included; the first order is
  /// always finished.
  std::uint64_t node_limit = std::numeric_limits<std::uint64_t>::max();
  /// Of the random choices of the hill climb.
  std::uint64_t seed = 0;
  /// Whether the search goes on until it has a plan that cannot be lower, or is cut off. If not, each of its
  /// tries is given up after some ten thousand blocks, and then only the climb goes on.
  bool exact = false;
  /// A plan of at most so many bytes is good enough, and ends the search; 0: only one that cannot be lower.
  std::size_t capacity = 0;
  /// Called now and then by the thread that plans: at each lower plan, and at most every few milliseconds.
  /// What it throws ends the search and passes through.
  std::function<void(plan_progress const&)> on_progress = nullptr;
};

}  // namespace tidemark
