// SPDX-License-Identifier: Apache-2.0
#include "step_lifetimes.hpp"

#include <map>
#include <string>

namespace tidemark::tools {

step_lifetimes lifetimes_of(recorded_trace const& trace, trace_step step) {
  std::map<std::size_t, lifetime> born;  // allocated in the step, by block number: in the order of allocation
  step_lifetimes found;
  for (std::size_t event = step.first_event; event <= step.last_event; ++event) {
    trace_event const& happened = trace.events[event];
    if (happened.allocates) {
      born[happened.block] = {.lower = event, .upper = event, .size = happened.bytes};
    } else if (const auto block = born.find(happened.block); block != born.end()) {
      block->second.upper = event;
    } else {
      ++found.from_before;
    }
  }
  for (auto const& [number, block] : born) {
    // The event that frees a block is later than its allocation.
    if (block.upper == block.lower) {
      ++found.outliving;
    } else {
      found.within.add(std::to_string(trace.ids[number]), block);
    }
  }
  return found;
}

}  // namespace tidemark::tools
