// SPDX-License-Identifier: Apache-2.0
// Topic traces: replays recorded allocations of real programs through std::pmr::memory_resource*, on one
// thread. Traces of several threads also run on their own number of threads ("threads:own", by the clock).
// Traces with steps also run on a planned arena over a pool. The arena is reused, so the first run records
// and plans, and the other runs count. An item is an operation. TIDEMARK_BENCH_TRACES and
// TIDEMARK_BENCH_STEPS name further traces.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "loop.hpp"
#include "recorded_trace.hpp"
#include "trace_subjects.hpp"

namespace {

using namespace tidemark;

struct loaded_trace {
  explicit loaded_trace(bench::trace_file const& file)
      : events{tools::read_trace(file.path)}, steps{tools::steps_in_order(events)} {}

  tools::recorded_trace events;
  std::vector<tools::trace_step> steps;
  std::vector<std::size_t> classes{bench::fitted_classes(events)};
};

/// Reads a trace when one of its benchmarks first runs, because most processes run none of them. A malformed
/// trace ends the process, because it is the user's file and cannot be measured.
loaded_trace const& loaded(bench::trace_file const& file) {
  static std::map<std::string, loaded_trace> by_name;
  const auto found = by_name.find(file.name);
  if (found != by_name.end()) return found->second;
  try {
    return by_name.try_emplace(file.name, file).first->second;
  } catch (std::exception const& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "tidemark_bench: %s\n", error.what());
    std::_Exit(2);
  }
}

/// Reports an error in the row if a trace needs too much memory or too many threads.
template <class Replay>
void replay_in_loop(benchmark::State& state, tools::recorded_trace const& trace, Replay replay) {
  try {
    for (auto _ : state) replay();
  } catch (std::exception const& error) {
    state.SkipWithError(error.what());
  }
  bench::count_items(state, trace.events.size() + trace.left.size());
}

void on_one_thread(benchmark::State& state, bench::trace_file const& file,
                   bench::trace_subject const& subject) {
  loaded_trace const& trace = loaded(file);
  const auto resource = subject.make(trace.classes);
  std::pmr::memory_resource* const through_vtable = bench::hidden(resource.get());
  std::vector<void*> blocks(trace.events.blocks);
  const auto replay = [&] { tools::replay(trace.events, *through_vtable, blocks); };
  try {  // not measured: page faults of a new pool; a malloc of the process has its memory from earlier rows
    replay();
  } catch (std::exception const& error) {
    state.SkipWithError(error.what());
  }
  replay_in_loop(state, trace.events, replay);
}

void on_own_threads(benchmark::State& state, bench::trace_file const& file,
                    bench::trace_subject const& subject) {
  loaded_trace const& trace = loaded(file);
  const auto resource = subject.make(trace.classes);
  try {
    tools::threaded_replay threads{trace.events};
    replay_in_loop(state, trace.events, [&] { threads.run(*resource); });
  } catch (std::length_error const& error) {
    state.SkipWithError(error.what());
  }
}

void by_steps(benchmark::State& state, bench::trace_file const& file) {
  loaded_trace const& trace = loaded(file);
  pool fallback;
  planned_arena memory{&fallback};
  std::pmr::memory_resource* const through_vtable = bench::hidden(&memory);
  std::vector<void*> blocks(trace.events.blocks);
  const auto play = [&](tools::trace_event const& event) {
    if (!event.allocates)
      return through_vtable->deallocate(blocks[event.block], event.bytes, tools::replay_alignment);
    void* const block = blocks[event.block] = through_vtable->allocate(event.bytes, tools::replay_alignment);
    tools::write_pages(block, event.bytes);
  };
  replay_in_loop(state, trace.events, [&] {
    std::size_t next = 0;
    for (tools::trace_step const& step : trace.steps) {
      for (; next < step.first_event; ++next) play(trace.events.events[next]);
      const planned_arena::step here{memory};
      for (; next <= step.last_event; ++next) play(trace.events.events[next]);
    }
    for (; next < trace.events.events.size(); ++next) play(trace.events.events[next]);
    for (tools::trace_event const& event : trace.events.left) play(event);
  });
  const planned_arena_stats stats = memory.stats();
  state.counters["planned_steps"] =
      static_cast<double>(stats.planned_steps) / static_cast<double>(std::max<std::uint64_t>(stats.steps, 1));
  state.counters["height_bytes"] = static_cast<double>(stats.height_bytes);
}

const bool registered = [] {
  for (bench::trace_file const& file : bench::trace_files()) {
    if (file.has_steps) {
      benchmark::RegisterBenchmark(("planned_arena/trace/" + file.name).c_str(),
                                   [&](benchmark::State& state) { by_steps(state, file); });
    }
    for (bench::trace_subject const& subject : bench::trace_subjects()) {
      const std::string name = subject.name + "/trace/" + file.name;
      benchmark::RegisterBenchmark(name.c_str(),
                                   [&](benchmark::State& state) { on_one_thread(state, file, subject); });
      if (!subject.shared || !file.many_threads) continue;
      benchmark::RegisterBenchmark((name + "/threads:own").c_str(), [&](benchmark::State& state) {
        on_own_threads(state, file, subject);
      })->UseRealTime();
    }
  }
  return true;
}();

}  // namespace
