// SPDX-License-Identifier: Apache-2.0
/// @file `lifetimes_of`: the blocks of one step of a recorded trace, as a problem for `make_plan`. For
/// tidemark-plan, benchmarks and tests; no part of the library.
#pragma once

#include <cstddef>

#include "plan_file.hpp"
#include "recorded_trace.hpp"

namespace tidemark::tools {

/// The blocks that were allocated and freed within a step, live from event to event, and how many were not.
struct step_lifetimes {
  plan_file within;
  std::size_t outliving = 0;    ///< allocated in it, and freed after it or never
  std::size_t from_before = 0;  ///< allocated before it, and freed in it
};

/// @param step one of the trace's.
[[nodiscard]] step_lifetimes lifetimes_of(recorded_trace const& trace, trace_step step);

}  // namespace tidemark::tools
