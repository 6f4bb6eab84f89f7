// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Stages".
// Declares the stages of `improve`, from cheap to expensive: one pass along time, a few orders, then
// promotion, ejection and the search in turns.
#pragma once

#include <cstdint>
#include <functional>

#include "solver_context.hpp"

namespace tidemark::planner::detail {

/// Makes one pass over the moments, for a layout at the bound. Usually succeeds if a step is full at every
/// moment. Does nothing for few buffers, which the search covers, and for problems that `time_search` does
/// not support.
void place_along_time(solver_context& context);

/// Places the buffers in a few orders, each buffer in the lowest gap. Does nothing for a graph or more than
/// 16,384 buffers.
void place_in_orders(solver_context& context);

/// A stage without an end: returns after about this many nodes, or when the search is done. Empty if the
/// problem is too large for the stage.
using endless_stage = std::function<void(std::uint64_t max_nodes)>;

/// Repeats skyline layouts in an order that moves buffers above the target ahead. A layout takes about O(n
/// log n) steps, so the stage suits many buffers. @pre not a graph
[[nodiscard]] endless_stage promote_high_ones(solver_context& context);

/// Takes buffers that end too high out of the best layout, and puts each back at the offset with the least
/// weight to remove. Takes O(k log k) steps for a buffer with k conflicts.
[[nodiscard]] endless_stage eject_high_ones(solver_context& context);

/// Searches for layouts of given heights along the skyline, by rising offset, along time and by pairs, or
/// proves that no layout exists.
[[nodiscard]] endless_stage height_search(solver_context& context);

}  // namespace tidemark::planner::detail
