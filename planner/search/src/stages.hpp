// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Stages".
// The stages of `improve`, from cheap to expensive: one pass along time, a few orders, then promotion,
// ejection and the search in turns.
#pragma once

#include <cstdint>
#include <functional>

#include "solver_context.hpp"

namespace tidemark::planner::detail {

/// Goes over the moments once, for a layout as high as the bound. It mostly finds one where a step is full at every
/// moment. Does nothing for few buffers, for which the search does that, and for problems `time_search` is not for.
void place_along_time(solver_context& context);

/// Places the buffers in a few orders, each in the lowest gap. Does nothing for a graph, or for very many buffers.
void place_in_orders(solver_context& context);

/// A stage that can go on without end: it returns when it has placed the given number of buffers, or when the search is
/// done. Empty: the problem is too large for it.
using endless_stage = std::function<void(std::uint64_t max_nodes)>;

/// Places next what can lie lowest, by an order in which what came too high moves ahead. A layout takes about
/// O(n log n) steps, so that it is for many buffers. @pre not a graph
[[nodiscard]] endless_stage promote_high_ones(solver_context& context);

/// Takes what is too high out of the best layout, and puts it back where the least has to be taken out for it.
/// A buffer takes O(k log k) steps where k are in conflict with it.
[[nodiscard]] endless_stage eject_high_ones(solver_context& context);

/// Looks for layouts of given heights, along the skyline, by rising offset, along time and by pairs, or proves that
/// there are none.
[[nodiscard]] endless_stage height_search(solver_context& context);

}  // namespace tidemark::planner::detail
