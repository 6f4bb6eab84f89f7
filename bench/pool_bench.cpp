// SPDX-License-Identifier: Apache-2.0
// Topic pool: pairs of allocate and deallocate through std::pmr::memory_resource*, in batches of 1000, and
// the recorded traces of real programs. An item is a pair, and an operation of a trace.
#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include <tidemark/tidemark.hpp>

#include "mimalloc_peer.hpp"
#include "recorded_trace.hpp"

namespace {

using namespace tidemark;
using tidemark::bench::mimalloc_resource;

constexpr std::size_t batch = 1000;

void use(void* block) {
  *static_cast<char volatile*>(block) = 1;
  asm volatile("" : : "r"(block) : "memory");  // DoNotOptimize would write the pointer to memory besides
}

void pairs(benchmark::State& state, std::pmr::memory_resource& resource) {
  std::pmr::memory_resource* through_vtable = &resource;
  benchmark::DoNotOptimize(through_vtable);
  const auto bytes = static_cast<std::size_t>(state.range(0));
  static std::array<void*, batch> blocks;
  for (auto _ : state) {
    for (void*& block : blocks) use(block = through_vtable->allocate(bytes));
    for (void* block : blocks) through_vtable->deallocate(block, bytes);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(batch));
}

template <class Resource>
void pairs_of(benchmark::State& state) {
  Resource resource;
  pairs(state, resource);
}
void pairs_of_mimalloc(benchmark::State& state) { pairs(state, mimalloc_resource::instance()); }
void pairs_of_malloc(benchmark::State& state) { pairs(state, *std::pmr::new_delete_resource()); }
void pairs_of_the_global_pool(benchmark::State& state) { pairs(state, global_pool()); }

/// The same without the vtable: what pooled_alloc and pooled_free add to the pool they stand for.
void pairs_inline(benchmark::State& state, auto allocate, auto deallocate) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  static std::array<void*, batch> blocks;
  for (auto _ : state) {
    for (void*& block : blocks) use(block = allocate(bytes));
    for (void* block : blocks) deallocate(block, bytes);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(batch));
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
  // Blocks beyond all classes, freed and allocated in turn among many that live.
  pool resource;
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
BENCHMARK(pairs_of<std::pmr::unsynchronized_pool_resource>)
    ->Name("std_pool/pair")
    ->Arg(8)
    ->Arg(64)
    ->Arg(256)
    ->Arg(1024);
BENCHMARK(pairs_of_malloc)->Name("malloc/pmr_pair")->Arg(8)->Arg(64)->Arg(256)->Arg(1024);
BENCHMARK(pairs_of_the_global_pool)->Name("global_pool/pair")->Arg(64);
BENCHMARK(pairs_of_pooled_alloc)->Name("pooled_alloc/pair")->Arg(64);
BENCHMARK(pairs_of_a_held_synchronized_pool)->Name("held_synchronized_pool/pair")->Arg(64);
BENCHMARK(large_pairs)->Name("pool/large_pair")->Arg(50)->Arg(50'000);

// ---- the sizes of ML Odyssey's ADR-003 --------------------------------------------------------------------

void adr_sizes(benchmark::State& state, std::array<std::size_t, 5> const& sizes, std::size_t count) {
  pool resource;
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
  state.counters["hit_rate"] = static_cast<double>(stats.pool_hits) / static_cast<double>(stats.allocations);
  state.SetItemsProcessed(static_cast<std::int64_t>(stats.allocations));
}
void adr_small(benchmark::State& state) { adr_sizes(state, {64, 128, 256, 512, 1024}, 1000); }
void adr_medium(benchmark::State& state) { adr_sizes(state, {2048, 4096, 8192, 16384, 0}, 500); }
BENCHMARK(adr_small)->Name("pool/adr_5x1000");
BENCHMARK(adr_medium)->Name("pool/adr_4x500");

// ---- traces -----------------------------------------------------------------------------------------------

struct loaded_trace {
  std::string name;
  tools::recorded_trace trace;
};

std::vector<loaded_trace> const& traces() {
  static const std::vector<loaded_trace> all = [] {
    std::vector<loaded_trace> loaded;
    for (char const* name : {"clang_syntax", "lld_link", "torch_gpt", "torch_mlp"}) {
      loaded.push_back({name, tools::read_trace(std::string{TIDEMARK_TRACES "/"} + name + ".csv")});
    }
    return loaded;
  }();
  return all;
}

void replay(benchmark::State& state, tools::recorded_trace const& trace,
            std::pmr::memory_resource& resource) {
  std::pmr::memory_resource* through_vtable = &resource;
  benchmark::DoNotOptimize(through_vtable);
  std::vector<void*> blocks(trace.blocks);
  for (auto _ : state) tools::replay(trace, *through_vtable, blocks);
  state.SetItemsProcessed(state.iterations() *
                          static_cast<std::int64_t>(trace.events.size() + trace.left.size()));
}

template <class Make>
void register_trace(std::string const& who, loaded_trace const& t, Make make) {
  benchmark::RegisterBenchmark((who + "/trace/" + t.name).c_str(), [&t, make](benchmark::State& state) {
    const auto resource = make();
    replay(state, t.trace, *resource);
  });
}

const bool registered = [] {
  for (loaded_trace const& t : traces()) {
    register_trace("pool", t, [] { return std::make_unique<pool>(); });
    register_trace("synchronized_pool", t, [] { return std::make_unique<synchronized_pool>(); });
    register_trace("std_pool", t, [] { return std::make_unique<std::pmr::unsynchronized_pool_resource>(); });
    register_trace("malloc", t, [] { return std::pmr::new_delete_resource(); });
    bucket_histogram sizes;
    for (tools::trace_event const& event : t.trace.events) {
      if (event.allocates) sizes.record(event.bytes);
    }
    register_trace("fitted_pool", t, [classes = sizes.suggest_buckets(64, 1 * GiB)] {
      return std::make_unique<pool>(pool_options{.max_cached_bytes = 1 * GiB, .bucket_bytes = classes});
    });
    if (mimalloc_resource::is_there()) {
      register_trace("mimalloc", t, [] { return &mimalloc_resource::instance(); });
    }
  }
  if (!mimalloc_resource::is_there()) return true;
  for (const std::int64_t bytes : {8, 64, 256, 1024}) {
    benchmark::RegisterBenchmark("mimalloc/pair", pairs_of_mimalloc)->Arg(bytes);
  }
  return true;
}();

}  // namespace
