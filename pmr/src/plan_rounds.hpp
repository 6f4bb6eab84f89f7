// SPDX-License-Identifier: Apache-2.0
// The stages of make_plan that go on as long as they may: the hill climb and the search.
#pragma once

#include "plan_run.hpp"

namespace tidemark::detail::planning {

/// Climbs and searches by turns, each time for longer, until the run is over.
/// @param exact whether the search may go on for as long as it takes
void climb_and_search(search_run& run, bool exact);

}  // namespace tidemark::detail::planning
