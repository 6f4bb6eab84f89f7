// SPDX-License-Identifier: Apache-2.0
// A training loop: a trace and its steps, to be played step by step on a resource.
#pragma once

#include <cstddef>
#include <limits>
#include <memory_resource>
#include <string>
#include <utility>
#include <vector>

#include "recorded_trace.hpp"
#include "step_kinds.hpp"

namespace tidemark::bench {

/// A trace and its steps. Knows for each allocation of a step whether the block outlives the step.
struct training_loop {
  explicit training_loop(tools::stepped_trace played)
      : trace{std::move(played.trace)},
        steps{std::move(played.steps)},
        dies_within_step(trace.events.size()),
        blocks(trace.blocks) {
    std::vector<std::size_t> freed_by(trace.blocks, std::numeric_limits<std::size_t>::max());
    std::vector<std::size_t> allocated_by(trace.blocks);
    for (std::size_t i = 0; i < trace.events.size(); ++i) {
      (trace.events[i].allocates ? allocated_by : freed_by)[trace.events[i].block] = i;
    }
    for (tools::trace_step const& step : steps) {
      for (std::size_t i = step.first_event; i <= step.last_event; ++i) {
        const std::size_t block = trace.events[i].block;
        dies_within_step[i] = step.first_event <= allocated_by[block] && freed_by[block] <= step.last_event;
      }
    }
  }
  /// Reads a recorded loop. @throws std::runtime_error if it cannot be read
  static training_loop recorded(std::string const& name) {
    const std::string path = TIDEMARK_TRACES "/" + name + ".csv";
    tools::stepped_trace read{.trace = tools::read_trace(path), .steps = {}, .kinds = {}};
    read.steps = tools::steps_in_order(read.trace);
    return training_loop{std::move(read)};
  }

  /// Plays the events before `end`, including each deallocation.
  void play_all(std::pmr::memory_resource& resource, std::size_t end) {
    for (; next < end; ++next) play(resource, trace.events[next]);
  }
  void play(std::pmr::memory_resource& resource, tools::trace_event const& event) {
    if (!event.allocates) {
      return resource.deallocate(blocks[event.block], event.bytes, tools::replay_alignment);
    }
    void* const block = blocks[event.block] = resource.allocate(event.bytes, tools::replay_alignment);
    tools::write_pages(block, event.bytes);
  }

  tools::recorded_trace trace;
  std::vector<tools::trace_step> steps;
  std::vector<char> dies_within_step;  // by event: true if the block belongs to the step and dies in it
  std::vector<void*> blocks;
  std::size_t next = 0;  // the next event
};

}  // namespace tidemark::bench
