// SPDX-License-Identifier: Apache-2.0
// The operations of each class besides allocation and deallocation (marks, scopes, epochs, captures, steps,
// checkpoints, fences, generations), driven by a fuzzer's bytes and compared with the models of the tests.
// The first choice is the model. The next two select the calls of its supply that fail, if they may. The
// others select the operations.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/epoch/epoch_resource.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>
#include <tidemark/pool/pool.hpp>
#include <tidemark/telemetry/test_resource.hpp>
#include <tidemark/telemetry/trace_log.hpp>

#include "arena_model.hpp"
#include "arena_subjects.hpp"
#include "capture_switch_model.hpp"
#include "choices.hpp"
#include "coalescing_heap_model.hpp"
#include "device_arena_subjects.hpp"
#include "device_cache_model.hpp"
#include "epoch_model.hpp"
#include "epoch_slabs_model.hpp"
#include "fuzz_input.hpp"
#include "graph_arena_model.hpp"
#include "made_up_memory.hpp"
#include "plan_file_model.hpp"
#include "planned_model.hpp"
#include "pool_model.hpp"
#include "pool_subjects.hpp"
#include "process_arena_model.hpp"
#include "program_log.hpp"
#include "reuse_model.hpp"
#include "stacks_model.hpp"
#include "team_model.hpp"
#include "turns.hpp"
#include "unique_block_model.hpp"
#include "workspace_levels.hpp"
#include "workspace_model.hpp"

namespace tidemark::test {
namespace {

template <class Model>
void play(Model& model, choices& next) {
  for (std::size_t i = 0; !next.are_at_an_end(); ++i) {
    model.step();
    if (i % 16 == 0) model.check_contents();
    stop_if_failed();
  }
}

template <class Subject>
void play_arena(choices next) {
  typename Subject::supply_type supply{};
  Subject subject{supply};
  fail_some_calls(supply, next);
  arena_model<Subject> model{subject, next};
  play(model, next);
}

void play_borrowed_arena(choices next) {
  supply none;
  borrowed_arena_subject subject{none};
  arena_model<borrowed_arena_subject> model{subject, next};
  play(model, next);
}

template <class Subject>
void play_pool(choices next) {
  recording_resource upstream;
  Subject subject{upstream};
  pool_model<Subject> model{subject, next};
  play(model, next);
}

void play_reuse_cache(choices next) {
  recording_resource upstream;
  reuse_cache_options options{.upstream = &upstream};
  const std::uint64_t kind = next() % 2;
  log_line("// options ", kind, " of reuse_model_test.cpp");
  if (kind > 0) options.max_cached_bytes = 2 * KiB, options.max_blocks_per_size = 3;
  reuse_model model{options, upstream, next};
  play(model, next);
}

void play_epochs(choices next) {
  made_up_memory device;
  recording_resource upstream{&device};
  log_line("epoch_resource memory{{.host_memory = false}};");
  epoch_resource memory{{.host_memory = false}, &upstream};
  epoch_model model{memory, upstream, next};
  play(model, next);
}

template <class Model>
void play_alone(choices next) {
  Model model{next};
  play(model, next);
}

template <class Arena, class Supply>
void play_planned_arena(choices next) {
  planned_programs::reached sums;
  const bool is_scarce = next() % 2 == 0;
  planned_programs::planned_model<Arena, Supply> model{next, is_scarce, sums};
  play(model, next);
}

void play_plan_file(choices next) {
  plan_files::sums sums;
  plan_files::plan_file_model model{next, sums};
  play(model, next);
}

void play_stacks(choices next) {
  adaptor_stack::reached seen;
  stacks_model model{next, seen};
  play(model, next);
}

template <class Workspace>
void play_workspace(choices next) {
  std::unique_ptr<std::pmr::memory_resource> upstream;
  const std::uint64_t kind = next() % 3;
  log_line("// on ", kind == 0 ? "a pool" : kind == 1 ? "an arena" : "a test_resource");
  if (kind == 0) upstream = std::make_unique<pool>();
  else if (kind == 1) upstream = std::make_unique<arena>();
  else upstream = std::make_unique<test_resource>();
  workspace_model<Workspace> model{upstream.get(), next};
  play(model, next);
}

template <class Model>
void play_device(choices next) {
  small_device supply;
  Model model{supply, next};
  play(model, next);
}
struct device_cache_play : device_cache_model {
  device_cache_play(small_device& supply, choices const& next)
      : device_cache_model{{.max_blocks_per_size = 4, .max_cached_bytes = 40 * KiB}, supply, next} {}
};

/// Threads with handles of their own, one after the other.
void play_team(choices next) {
  team_model model{next() % 2 == 0};
  turns threads{team_model::threads};
  while (!next.are_at_an_end()) {
    const std::uint64_t what = next();
    const std::size_t t = what / 16 % team_model::threads;
    threads.on(t, [&] {
      if (what % 16 < 13) model.operate(t, next);
      else if (what % 16 < 15) model.rewind_sometimes(next);
      else model.leave();
    });
    stop_if_failed();
  }
  threads.on(0, [&] { model.end(); });
}

using player = void (*)(choices);
struct named_player {
  char const* name;
  player plays;
};
// New ones at the end: the first number of a corpus file is an index.
constexpr named_player players[] = {
    {"arena on virtual memory", play_arena<virtual_arena_subject>},
    {"arena on small chunks", play_arena<chunked_arena_subject>},
    {"arena on an upstream", play_arena<buffered_upstream_arena_subject>},
    {"arena on a borrowed range", play_borrowed_arena},
    {"arena on shared memory", play_arena<shared_memory_arena_subject>},
    {"arena on registered memory", play_arena<registered_arena_subject>},
    {"device_arena", play_arena<device_arena_subject>},
    {"device_arena on small chunks", play_arena<chunked_device_arena_subject>},
    {"pinned_arena", play_arena<pinned_arena_subject>},
    {"arena on memory of NCCL", play_arena<nccl_arena_subject>},
    {"shared_arena and its threads", play_team},
    {"process_arena", play_alone<process_arena_model>},
    {"pool", play_pool<pool_subject>},
    {"pool of odd sizes", play_pool<odd_pool_subject>},
    {"synchronized_pool", play_pool<synchronized_pool_subject>},
    {"heap of large blocks", play_alone<coalescing_heap_model>},
    {"reuse_cache", play_reuse_cache},
    {"device_cache", play_device<device_cache_play>},
    {"epochs, buffers and groups", play_epochs},
    {"epochs of raw blocks", play_alone<epoch_slabs_model>},
    {"graph_arena", play_alone<graph_arena_model>},
    {"capture_switch", play_alone<switch_model>},
    {"planned_arena", play_planned_arena<planned_arena, recording_os>},
    {"planned_arena on an upstream",
     play_planned_arena<basic_planned_arena<upstream_memory>, recording_resource>},
    {"files of plans", play_plan_file},
    {"stacks of adaptors", play_stacks},
    {"workspace", play_workspace<unchecked_workspace>},
    {"checked workspace", play_workspace<checked_workspace>},
    {"unique_block", play_alone<unique_block_model>},
    {"arena that traps every scope", play_arena<trapping_arena_subject>},
    {"arena that traps some scopes", play_arena<sampling_arena_subject>},
};

}  // namespace
}  // namespace tidemark::test

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace tidemark::test;
  std::span<std::uint8_t const> rest{data, size};
  choices next{rest};
  named_player const& chosen = players[next() % std::size(players)];
  program_log::current().begin(std::string{"// "} + chosen.name);
  stop_at_violations();
  chosen.plays(next);
  stop_if_failed();  // what its end found
  return 0;
}
