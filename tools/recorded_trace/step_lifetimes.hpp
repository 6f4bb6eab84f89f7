// SPDX-License-Identifier: Apache-2.0
/// @file `lifetimes_of`: the blocks of a step of a recorded trace, as a problem for `make_plan`. For
/// tidemark-plan, benchmarks and tests; not part of the library.
#pragma once

#include <cstddef>

#include "plan_file.hpp"
#include "recorded_trace.hpp"

namespace tidemark::tools {

/// The blocks allocated and freed within a step, with event numbers as moments, and the number of other
/// blocks.
struct step_lifetimes {
  plan_file within;
  std::size_t outliving = 0;    ///< allocated in the step, and freed later or never
  std::size_t from_before = 0;  ///< allocated before the step, and freed in it
};

/// @param step a step of the trace.
[[nodiscard]] step_lifetimes lifetimes_of(recorded_trace const& trace, trace_step step);

}  // namespace tidemark::tools
