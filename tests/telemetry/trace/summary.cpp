// SPDX-License-Identifier: Apache-2.0
// Prints the contents of each file as recorded_trace reads them, one line per file. readers.py compares them
// with the result of tidemark-report.
#include <cstdio>
#include <exception>
#include <span>

#include "recorded_trace.hpp"

int main(int count, char** arguments) {
  for (char const* const path : std::span{arguments, static_cast<std::size_t>(count)}.subspan(1)) {
    try {
      const tidemark::tools::recorded_trace trace = tidemark::tools::read_trace(path);
      std::size_t left_bytes = 0;
      for (auto const& block : trace.left) left_bytes += block.bytes;
      std::printf("%zu events, %zu blocks, %zu threads, peak %zu, %zu bytes in %zu blocks left",
                  trace.events.size(), trace.blocks, trace.threads, trace.peak_live_bytes, left_bytes,
                  trace.left.size());
      std::size_t step_events = 0;
      for (auto const& [number, step] : trace.steps) step_events += step.last_event - step.first_event + 1;
      if (!trace.steps.empty()) std::printf(", %zu steps of %zu events", trace.steps.size(), step_events);
      std::printf("\n");
    } catch (std::exception const& error) {
      std::printf("%s\n", error.what());
    }
  }
}
