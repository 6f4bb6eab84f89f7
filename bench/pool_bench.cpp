// SPDX-License-Identifier: Apache-2.0
// Topic pool: pairs of allocate and deallocate through std::pmr::memory_resource*, in batches of 1000. An
// item is a pair.
#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <memory_resource>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/cuda.hpp>
#include <tidemark/tidemark.hpp>

#include "device_pairs.hpp"
#include "loop.hpp"
#include "modelled_device.hpp"
#include "peers.hpp"
#include "simulated_allocators.hpp"

namespace {

using namespace tidemark;
using bench::use;

constexpr std::size_t batch = 1000;

void pairs(benchmark::State& state, std::pmr::memory_resource& resource) {
  std::pmr::memory_resource* through_vtable = &resource;
  benchmark::DoNotOptimize(through_vtable);
  const auto bytes = static_cast<std::size_t>(state.range(0));
  static std::array<void*, batch> blocks;
  for (auto _ : state) {
    for (void*& block : blocks) use(block = through_vtable->allocate(bytes));
    for (void* block : blocks) through_vtable->deallocate(block, bytes);
  }
  bench::count_items(state, batch);
}

template <class Resource>
void pairs_of(benchmark::State& state) {
  Resource resource;
  pairs(state, resource);
}
void pairs_of_the_global_pool(benchmark::State& state) { pairs(state, global_pool()); }

/// The same without the vtable, for the cost of pooled_alloc and pooled_free over their pool.
void pairs_inline(benchmark::State& state, auto allocate, auto deallocate) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  static std::array<void*, batch> blocks;
  for (auto _ : state) {
    for (void*& block : blocks) use(block = allocate(bytes));
    for (void* block : blocks) deallocate(block, bytes);
  }
  bench::count_items(state, batch);
}
void pairs_of_pooled_alloc(benchmark::State& state) {
  pairs_inline(
      state, [](std::size_t n) { return pooled_alloc(n); },
      [](void* block, std::size_t n) { pooled_free(block, n); });
}
void pairs_of_a_held_synchronized_pool(benchmark::State& state) {
  static synchronized_pool held;
  pairs_inline(
      state, [](std::size_t n) { return held.allocate(n); },
      [](void* block, std::size_t n) { held.deallocate(block, n); });
}

void large_pairs(benchmark::State& state) {
  // Frees and allocates blocks beyond all classes in turn, among many live blocks.
  pool resource{{.size_classes = {64}}};
  constexpr std::size_t bytes = 20'000;
  std::vector<void*> live(static_cast<std::size_t>(state.range(0)));
  for (void*& block : live) block = resource.allocate(bytes);
  std::size_t next = 0;
  for (auto _ : state) {
    resource.deallocate(live[next], bytes);
    live[next] = resource.allocate(bytes);
    next = next + 1 < live.size() ? next + 1 : 0;
  }
  for (void* block : live) resource.deallocate(block, bytes);
}

BENCHMARK(pairs_of<pool>)->Name("pool/pair")->Arg(8)->Arg(64)->Arg(256)->Arg(1024);
BENCHMARK(pairs_of<synchronized_pool>)->Name("synchronized_pool/pair")->Arg(8)->Arg(64)->Arg(256)->Arg(1024);
BENCHMARK(pairs_of_the_global_pool)->Name("global_pool/pair")->Arg(64);
BENCHMARK(pairs_of_pooled_alloc)->Name("pooled_alloc/pair")->Arg(64);
BENCHMARK(pairs_of_a_held_synchronized_pool)->Name("held_synchronized_pool/pair")->Arg(64);
BENCHMARK(large_pairs)->Name("pool/large_pair")->Arg(50)->Arg(50'000);

// ---- device memory, on a device whose calls take no time of the host ---------------------------------------

/// Best fit by a std::map of addresses and a std::set of sizes.
struct best_fit_by_trees {
  void* allocate(std::size_t bytes) { return reinterpret_cast<void*>(ranges.allocate(bytes)); }
  void deallocate(void* block, std::size_t) { ranges.deallocate(reinterpret_cast<std::uintptr_t>(block)); }
  test::simulated_range ranges{false};
};

void device_pairs(benchmark::State& state, auto& memory, bench::device_pair_kind kind) {
  bench::device_pairs pairs{memory, kind};
  for (auto _ : state) pairs.replace_one();
}

const bool device_pairs_are_registered = [] {
  for (auto const& [name, kind] : {std::pair{"small", bench::device_pair_kind{.large = false}},
                                   {"large_repeating", {.repeats = true}},
                                   {"large_fifo", {}},
                                   {"large_random", {.random = true}}}) {
    benchmark::RegisterBenchmark((std::string{"device_pool/pair/"} + name).c_str(),
                                 [=](benchmark::State& state) {
                                   test::modelled_device device{128 * GiB};
                                   device_pool blocks{device_pool_options{}, device};
                                   device_pairs(state, blocks, kind);
                                 });
    benchmark::RegisterBenchmark((std::string{"best_fit_by_trees/pair/"} + name).c_str(),
                                 [=](benchmark::State& state) {
                                   best_fit_by_trees blocks;
                                   device_pairs(state, blocks, kind);
                                 });
  }
  return true;
}();

// ---- the sizes of ML Odyssey's ADR-003 --------------------------------------------------------------------

void adr_sizes(benchmark::State& state, std::array<std::size_t, 5> const& sizes, std::size_t count) {
  pool resource{pool_options::tensor_classes()};
  for (auto _ : state) {
    for (std::size_t i = 0; i < count; ++i) {
      for (const std::size_t bytes : sizes) {
        if (bytes == 0) continue;
        void* const block = resource.allocate(bytes);
        use(block);
        resource.deallocate(block, bytes);
      }
    }
  }
  const pool_stats stats = resource.stats();
  state.counters["hit_rate"] = static_cast<double>(stats.hits) / static_cast<double>(stats.allocations);
  state.SetItemsProcessed(static_cast<std::int64_t>(stats.allocations));
}
void adr_small(benchmark::State& state) { adr_sizes(state, {64, 128, 256, 512, 1024}, 1000); }
void adr_medium(benchmark::State& state) { adr_sizes(state, {2048, 4096, 8192, 16384, 0}, 500); }
BENCHMARK(adr_small)->Name("pool/adr_5x1000");
BENCHMARK(adr_medium)->Name("pool/adr_4x500");

const bool registered = [] {
  for (bench::peer const& peer : bench::peers()) {
    benchmark::RegisterBenchmark((peer.name + "/pair").c_str(),
                                 [&peer](benchmark::State& state) { pairs(state, *peer.make()); })
        ->Arg(8)
        ->Arg(64)
        ->Arg(256)
        ->Arg(1024);
  }
  return true;
}();

}  // namespace
