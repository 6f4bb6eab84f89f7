// SPDX-License-Identifier: Apache-2.0
// Topic shared_arena: batches of blocks that a thread frees together, on one and on two threads. Compares a
// thread scope of a shared arena with resources that take each block back. An item is a block, allocated and
// freed; times are by the clock, over all threads. Also measures steps of two threads that meet at a barrier
// after each step.
#include <benchmark/benchmark.h>

#include <array>
#include <barrier>
#include <cstddef>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include <tidemark/tidemark.hpp>

#include "loop.hpp"
#include "peers.hpp"

namespace {

using namespace tidemark;

constexpr std::size_t batch = 1000;
// 16 to 512 bytes, equally many of each power of two.
constexpr std::array<std::size_t, 6> mixed{16, 512, 64, 32, 256, 128};

// The argument's size, or mixed sizes for 0.
std::size_t size_of(benchmark::State const& state, std::size_t i) {
  return state.range(0) != 0 ? static_cast<std::size_t>(state.range(0)) : mixed[i % mixed.size()];
}

// Through the handle, whose type the compiler knows.
void by_handle(benchmark::State& state, shared_arena* team) {
  local_arena& local = team->local();
  for (auto _ : state) {
    local_arena::scope scope{local};
    for (std::size_t i = 0; i < batch; ++i) bench::use(local.allocate(size_of(state, i)));
  }
  bench::count_items(state, batch);
}

// Through the team as a memory resource.
void by_pmr(benchmark::State& state, shared_arena* team) {
  std::pmr::memory_resource* const resource = bench::hidden(team);
  local_arena& local = team->local();
  for (auto _ : state) {
    local_arena::scope scope{local};
    for (std::size_t i = 0; i < batch; ++i) bench::use(resource->allocate(size_of(state, i)));
  }
  bench::count_items(state, batch);
}

void one_by_one(benchmark::State& state, std::pmr::memory_resource* any) {
  std::pmr::memory_resource* const resource = bench::hidden(any);
  std::array<void*, batch> blocks;
  for (auto _ : state) {
    for (std::size_t i = 0; i < batch; ++i) bench::use(blocks[i] = resource->allocate(size_of(state, i)));
    for (std::size_t i = 0; i < batch; ++i) resource->deallocate(blocks[i], size_of(state, i));
  }
  bench::count_items(state, batch);
}

void monotonic_each(benchmark::State& state) {
  static constexpr std::size_t buffer_bytes = 1 * MiB;
  const auto buffer = std::make_unique<std::byte[]>(buffer_bytes);
  for (auto _ : state) {
    std::pmr::monotonic_buffer_resource monotonic{buffer.get(), buffer_bytes};
    std::pmr::memory_resource* const resource = bench::hidden(&monotonic);
    for (std::size_t i = 0; i < batch; ++i) bench::use(resource->allocate(size_of(state, i)));
  }
  bench::count_items(state, batch);
}

// A step of 20,000 blocks per thread, with a barrier before and after its end.
constexpr std::size_t step_blocks = 20'000;
std::barrier meeting{2};

void team_step(benchmark::State& state, shared_arena* team) {
  local_arena& local = team->local();
  for (auto _ : state) {
    for (std::size_t i = 0; i < step_blocks; ++i) bench::use(local.allocate(size_of(state, i)));
    meeting.arrive_and_wait();
    if (state.thread_index() == 0) team->reset();
    meeting.arrive_and_wait();
  }
  bench::count_items(state, step_blocks);
}

void step_one_by_one(benchmark::State& state, std::pmr::memory_resource* any) {
  std::pmr::memory_resource* const resource = bench::hidden(any);
  std::vector<void*> blocks(step_blocks);
  for (auto _ : state) {
    for (std::size_t i = 0; i < step_blocks; ++i)
      bench::use(blocks[i] = resource->allocate(size_of(state, i)));
    meeting.arrive_and_wait();
    for (std::size_t i = 0; i < step_blocks; ++i) resource->deallocate(blocks[i], size_of(state, i));
    meeting.arrive_and_wait();
  }
  bench::count_items(state, step_blocks);
}

const bool registered = [] {
  const auto add = [](std::string const& name, auto work) {
    return benchmark::RegisterBenchmark(name.c_str(), work)->UseRealTime();
  };
  const std::vector<std::vector<std::int64_t>> sizes{{16, 64, 512, 0}};
  static shared_arena team{{.name = "bench"}};
  add("shared_arena/handle", [](benchmark::State& state) { by_handle(state, &team); })
      ->ArgsProduct(sizes)
      ->ThreadRange(1, 2);
  add("shared_arena/pmr", [](benchmark::State& state) { by_pmr(state, &team); })
      ->ArgsProduct(sizes)
      ->ThreadRange(1, 2);
  add("monotonic_each/batch", monotonic_each)->ArgsProduct(sizes)->ThreadRange(1, 2);
  static shared_arena step_team{{.name = "steps"}};
  add("shared_arena/step", [](benchmark::State& state) { team_step(state, &step_team); })->Arg(0)->Threads(2);
  const auto add_peer = [&](std::string const& name, std::pmr::memory_resource* resource) {
    add(name + "/batch", [=](benchmark::State& state) { one_by_one(state, resource); })
        ->ArgsProduct(sizes)
        ->ThreadRange(1, 2);
    add(name + "/step", [=](benchmark::State& state) { step_one_by_one(state, resource); })
        ->Arg(0)
        ->Threads(2);
  };
  static synchronized_pool pool;
  add_peer("synchronized_pool", &pool);
  for (bench::peer const& peer : bench::peers()) {
    if (!peer.shared) continue;
    static std::vector<std::shared_ptr<std::pmr::memory_resource>> kept;
    add_peer(peer.name, kept.emplace_back(peer.make()).get());
  }
  return true;
}();

}  // namespace
