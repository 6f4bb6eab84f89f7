// SPDX-License-Identifier: Apache-2.0
// Topic locality: a system of many parts, each with a list of ints, as in the study of containers_bench.cpp.
// The first number in a name is the constant total number of nodes. The second is the number of nodes per
// list. The lists are filled one after the other. Then elements migrate, one for each node: from the front of
// a random list to the back of each list in turn. The benchmark measures walking over all lists and
// incrementing each element. An item is a visited node.
//
// `malloc`, its peers and `pool` serve all lists together, and migration scatters a list's nodes over the
// memory. `pool_each`, `arena_each`, `upstream_arena_each`, `std_pool_each` and `std_monotonic_each` are one
// resource per list, which keeps its nodes together. tidemark's pools have a single class of 32 bytes for the
// nodes of 24 bytes. Arenas and monotonic resources have room for twice the live nodes, because they never
// reuse memory.
//
// 8192 nodes fit into a level 2 cache of 512 KiB. 2097152 nodes, the study's number, take at least 48 MiB.
// For these, malloc and the two mimallocs are the only shared resources: building takes seconds, and scattered nodes
// are equally slow on all of them. Lists of 16 nodes are omitted too, because 131072 pools would take 1 GiB
// for themselves.
#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory_resource>
#include <random>
#include <string>
#include <vector>

#include <tidemark/tidemark.hpp>

#include "loop.hpp"
#include "peers.hpp"

namespace {

using namespace tidemark;
using bench::hidden;

struct shape {
  std::size_t nodes, nodes_a_list;
  [[nodiscard]] std::size_t lists() const { return nodes / nodes_a_list; }
  /// Nodes allocated in the life of a list: its initial nodes, and equally many that migrate to it.
  [[nodiscard]] std::size_t requested_nodes_a_list() const { return 2 * nodes_a_list; }
};
constexpr std::size_t few_nodes = 8192, many_nodes = 2'097'152;
constexpr std::array<shape, 5> shapes{
    {{few_nodes, 16}, {few_nodes, 128}, {few_nodes, 1024}, {many_nodes, 128}, {many_nodes, 4096}}};

using part = std::pmr::list<int>;

void migrate(std::vector<part>& parts, std::size_t moves) {
  std::minstd_rand random;
  for (std::size_t i = 0; i < moves; ++i) {
    part* from = &parts[random() % parts.size()];
    while (from->empty()) from = &parts[random() % parts.size()];
    const int element = from->front();
    from->pop_front();
    parts[i % parts.size()].push_back(element);
  }
}

/// @param resource_of returns the resource of a list by number
void measure(benchmark::State& state, shape of, auto resource_of) {
  std::vector<part> parts;
  parts.reserve(of.lists());
  for (std::size_t i = 0; i < of.lists(); ++i)
    parts.emplace_back(hidden(resource_of(i))).resize(of.nodes_a_list);
  migrate(parts, of.nodes);
  for (auto _ : state) {
    for (part& each : parts) {
      for (int& element : each) ++element;
    }
    benchmark::ClobberMemory();
  }
  bench::count_items(state, of.nodes);
}

/// All lists share one resource.
void on_one(benchmark::State& state, shape of, std::pmr::memory_resource& resource) {
  measure(state, of, [&](std::size_t) { return &resource; });
}

/// Each list has its own resource, made from `arguments`.
template <class Resource>
void on_each(benchmark::State& state, shape of, auto const&... arguments) {
  std::deque<Resource> resources;
  for (std::size_t i = 0; i < of.lists(); ++i) resources.emplace_back(arguments...);
  measure(state, of, [&](std::size_t i) { return &resources[i]; });
}

pool_options of_nodes() { return {.size_classes = {32}}; }

const bool registered = [] {
  for (shape const& of : shapes) {
    const auto add = [&](std::string const& subject, auto measured) {
      const std::string name =
          subject + "/locality/" + std::to_string(of.nodes) + '/' + std::to_string(of.nodes_a_list);
      // One walk over the larger systems, because they take seconds to build.
      benchmark::RegisterBenchmark(name.c_str(), measured)
          ->Iterations(static_cast<std::int64_t>(many_nodes / of.nodes));
    };
    constexpr std::size_t block_bytes = 32;  // of a node in arenas
    const arena_options room{.reserve = of.requested_nodes_a_list() * block_bytes};
    add("arena_each", [of, room](benchmark::State& state) { on_each<arena>(state, of, room); });
    add("upstream_arena_each",
        [of, room](benchmark::State& state) { on_each<upstream_arena>(state, of, room); });
    add("std_monotonic_each", [of](benchmark::State& state) {
      constexpr std::size_t node_bytes = 24;
      on_each<std::pmr::monotonic_buffer_resource>(state, of, of.requested_nodes_a_list() * node_bytes);
    });
    add("pool_each", [of](benchmark::State& state) { on_each<pool>(state, of, of_nodes()); });
    add("std_pool_each",
        [of](benchmark::State& state) { on_each<std::pmr::unsynchronized_pool_resource>(state, of); });
    const bool is_large = of.nodes == many_nodes;
    if (!is_large) {
      add("pool", [of](benchmark::State& state) {
        pool nodes{of_nodes()};
        on_one(state, of, nodes);
      });
    }
    for (bench::peer const& peer : bench::peers()) {
      const bool is_mimalloc = peer.name.starts_with("mimalloc");
      const bool is_measured = is_large ? peer.name == "malloc" || is_mimalloc
                                        : peer.name.ends_with("malloc") || is_mimalloc;
      if (!is_measured) continue;
      add(peer.name, [of, &peer](benchmark::State& state) { on_one(state, of, *peer.make()); });
    }
  }
  return true;
}();

}  // namespace
