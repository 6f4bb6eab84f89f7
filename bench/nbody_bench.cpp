// SPDX-License-Identifier: Apache-2.0
// Topic nbody: a step of examples/nbody on two OpenMP threads. `tree` builds and drops the octree of unmoving
// bodies. An item is a body, and times are by the clock. `step` is a whole step with forces, of which the
// tree is a small part. A shared arena and monotonic buffers drop the tree as a whole. Pools and mallocs
// deallocate each block, on both threads.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include <tidemark/tidemark.hpp>

#include "../examples/nbody/bodies.hpp"
#include "../examples/nbody/octree.hpp"
#include "../examples/nbody/simulation.hpp"
#include "../examples/nbody/tree_memory.hpp"
#include "loop.hpp"
#include "peers.hpp"

namespace {

using namespace tidemark;

constexpr int threads = 2;

void tree(benchmark::State& state, nbody::tree_memory& memory) {
  omp_set_num_threads(threads);
  const nbody::body_set bodies =
      nbody::along_curve(nbody::plummer_sphere(static_cast<std::size_t>(state.range(0)), 1));
  nbody::body_order order{bodies.size()};
  order.find(bodies.positions);
  nbody::octree built;
  for (auto _ : state) {
    memory.begin_step();
    built.build(bodies, order, memory);
    built.drop(memory);
    memory.end_step();
  }
  bench::count_items(state, bodies.size());
}

void step(benchmark::State& state, nbody::tree_memory& memory) {
  omp_set_num_threads(threads);
  const auto bodies = static_cast<std::size_t>(state.range(0));
  nbody::simulation cluster{bodies, memory};
  cluster.begin();
  for (auto _ : state) cluster.step();
  bench::count_items(state, bodies);
}

/// A new arena for each benchmark, because the other memories also start empty.
struct owned_team {
  shared_arena arena{{.name = "tree"}};
  nbody::team_memory memory{arena};
};

const bool registered = [] {
  const auto add = [](std::string const& name,
                      std::function<std::shared_ptr<nbody::tree_memory>()> const& make) {
    const auto with = [&](char const* what, auto work) {
      return benchmark::RegisterBenchmark(("nbody/" + name + what).c_str(),
                                          [=](benchmark::State& state) { work(state, *make()); })
          ->UseRealTime();
    };
    with("/tree", tree)->Arg(20'000)->Arg(200'000);
    with("/step", step)->Arg(20'000);
  };
  const auto add_common = [&](std::string const& name, auto make_resource) {
    add(name, [=] { return std::make_shared<nbody::common_memory>(make_resource()); });
  };
  add("shared_arena", [] {
    const auto team = std::make_shared<owned_team>();
    return std::shared_ptr<nbody::tree_memory>{team, &team->memory};
  });
  add_common("synchronized_pool", [] { return std::make_shared<synchronized_pool>(); });
  add("std_monotonic_each", [] { return std::make_shared<nbody::monotonic_memory>(threads); });
  for (bench::peer const& peer : bench::peers()) {
    if (peer.shared) add_common(peer.name, peer.make);
  }
  return true;
}();

}  // namespace
