// SPDX-License-Identifier: Apache-2.0
// The stages of make_plan that place one piece after the other, in an order that is known at the start.
#pragma once

#include <cstdint>

#include "plan_run.hpp"

namespace tidemark::detail::planning {

/// Places the pieces in falling size, each in the lowest gap. It is always finished: the run's limits hold
/// from then on. O(n log n) steps, each of which reads the ranges that are taken beside the piece.
void place_by_size(search_run& run);

enum class gap_choice : std::uint8_t { lowest, smallest };

/// The other orders, each piece in the lowest or in the smallest gap that is large enough.
void place_in_orders(search_run& run, gap_choice choice);

/// The order "the piece that can lie lowest is next", with several ways to choose among equals.
void place_lowest_first(search_run& run);

}  // namespace tidemark::detail::planning
