// SPDX-License-Identifier: Apache-2.0
// Topic traces: what real programs allocated and freed, recorded, played again on one thread through
// std::pmr::memory_resource*. An item is an operation.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include <tidemark/tidemark.hpp>

#include "loop.hpp"
#include "peers.hpp"
#include "recorded_trace.hpp"

namespace {

using namespace tidemark;

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
    for (bench::peer const& peer : bench::peers()) register_trace(peer.name, t, peer.make);
    bucket_histogram sizes;
    for (tools::trace_event const& event : t.trace.events) {
      if (event.allocates) sizes.record(event.bytes);
    }
    register_trace("fitted_pool", t, [classes = sizes.suggest_buckets(64, 1 * GiB)] {
      return std::make_unique<pool>(pool_options{.max_cached_bytes = 1 * GiB, .bucket_bytes = classes});
    });
  }
  return true;
}();

}  // namespace
