// SPDX-License-Identifier: Apache-2.0
// Topic plan: programs with steps of several kinds (tools/recorded_trace/step_kinds.hpp), on a planned arena
// over a pool with the kind of each step named, and on a pool alone. "steps" is the first 300 steps on fresh
// resources, including recording and planning. "later" is the 300 steps after these. Allocated memory is
// written, so that the times show the gain of a real program. An item is an operation.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/plan/replay/planned_arena.hpp>
#include <tidemark/pool/pool.hpp>

#include "loop.hpp"
#include "step_kinds.hpp"

namespace {

using namespace tidemark;

constexpr std::size_t steps_of_a_run = 300;

struct pooled {
  void begin_step(std::uint64_t) {}
  void end_step() {}
  [[nodiscard]] std::pmr::memory_resource* resource() { return &memory; }

  pool memory;
};

struct planned {
  void begin_step(std::uint64_t kind) { step.emplace(memory, kind); }
  void end_step() { step.reset(); }
  [[nodiscard]] std::pmr::memory_resource* resource() { return &memory; }

  pool fallback;
  planned_arena memory{&fallback};
  std::optional<planned_arena::step> step;
};

/// @param unmeasured number of runs before the measured run
template <class Subject>
void run_program(benchmark::State& state, std::string const& program, std::size_t unmeasured) {
  const tools::stepped_trace played = tools::generate_steps(program, (unmeasured + 1) * steps_of_a_run);
  std::size_t measured = played.trace.events.size();
  if (unmeasured != 0) measured -= played.steps[unmeasured * steps_of_a_run].first_event;
  std::vector<void*> blocks(played.trace.blocks);
  for (auto _ : state) {
    Subject subject;
    std::pmr::memory_resource* const through_vtable = bench::hidden(subject.resource());
    const auto play = [&](tools::trace_event const& event) {
      if (event.allocates) {
        blocks[event.block] = through_vtable->allocate(event.bytes, tools::replay_alignment);
        std::memset(blocks[event.block], 1, event.bytes);
        bench::keep(blocks[event.block]);
      } else {
        through_vtable->deallocate(blocks[event.block], event.bytes, tools::replay_alignment);
      }
    };
    if (unmeasured != 0) state.PauseTiming();
    for (std::size_t k = 0; k < played.steps.size(); ++k) {
      if (k != 0 && k == unmeasured * steps_of_a_run) state.ResumeTiming();
      subject.begin_step(played.kinds[k]);
      for (std::size_t i = played.steps[k].first_event; i <= played.steps[k].last_event; ++i)
        play(played.trace.events[i]);
      subject.end_step();
    }
    for (tools::trace_event const& event : played.trace.left) play(event);
  }
  bench::count_items(state, measured + played.trace.left.size());
}

const bool registered = [] {
  for (std::string const program : tools::generated_programs()) {
    for (auto const& [run, unmeasured] : {std::pair{"steps", 0U}, std::pair{"later", 1U}}) {
      const std::string name = std::string{"/"} + run + '/' + program;
      benchmark::RegisterBenchmark(("planned_arena" + name).c_str(), [=](benchmark::State& state) {
        run_program<planned>(state, program, unmeasured);
      });
      benchmark::RegisterBenchmark(("pool" + name).c_str(), [=](benchmark::State& state) {
        run_program<pooled>(state, program, unmeasured);
      });
    }
  }
  return true;
}();

}  // namespace
