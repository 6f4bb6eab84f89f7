// SPDX-License-Identifier: Apache-2.0
/// @file `test_problem_of`: a problem without a start plan, for tests of single stages.
#pragma once

#include <span>
#include <vector>

#include "problem.hpp"

namespace tidemark::planner::detail {

/// Returns a start plan that does not influence the unit.
template <class Block>
memory_plan no_start(std::span<Block const> blocks) {
  memory_plan start;
  start.offsets.assign(blocks.size(), 0);
  return start;
}

inline problem test_problem_of(std::span<lifetime const> blocks, options const& options) {
  return problem_of(blocks, no_start(blocks), options);
}

inline problem test_problem_of(std::span<plan_block const> blocks, std::span<plan_conflict const> conflicts,
                               options const& options) {
  return problem_of(blocks, conflicts, no_start(blocks), options);
}

}  // namespace tidemark::planner::detail
