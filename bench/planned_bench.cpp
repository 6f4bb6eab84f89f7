// SPDX-License-Identifier: Apache-2.0
// Topic planned: a step of 64 blocks, allocated and freed in several orders, repeatedly. An item is a pair of
// allocate and deallocate and includes the beginning and end of the step. Blocks are not touched, so the time
// is that of the resource. The arena, rewound at the end of a step, is the lower limit: it tracks no block
// and does not reuse its bytes.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory_resource>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <tidemark/tidemark.hpp>

#include "loop.hpp"
#include "peers.hpp"

namespace {

using namespace tidemark;
using bench::keep;

constexpr std::size_t step_blocks = 64;

// ---- resources of a step ----------------------------------------------------------------------------------

/// A resource that has no notion of steps.
template <class Resource>
struct without_steps {
  struct step {
    explicit step(without_steps&) {}
  };
  void* allocate(std::size_t bytes) { return resource.allocate(bytes); }
  void deallocate(void* block, std::size_t bytes) { resource.deallocate(block, bytes); }

  Resource resource{};
};

/// The same through std::pmr::memory_resource.
template <class Resource>
struct by_pmr {
  struct step {
    explicit step(by_pmr&) {}
  };
  by_pmr() { benchmark::DoNotOptimize(through_vtable); }
  void* allocate(std::size_t bytes) { return through_vtable->allocate(bytes); }
  void deallocate(void* block, std::size_t bytes) { through_vtable->deallocate(block, bytes); }

  Resource resource{};
  std::pmr::memory_resource* through_vtable = &resource;
};

inline constexpr char mimalloc_2[] = "mimalloc", mimalloc_3[] = "mimalloc3";

template <char const* Name>
struct mimalloc_by_pmr {
  struct step {
    explicit step(mimalloc_by_pmr&) {}
  };
  void* allocate(std::size_t bytes) { return through_vtable->allocate(bytes); }
  void deallocate(void* block, std::size_t bytes) { through_vtable->deallocate(block, bytes); }

  std::pmr::memory_resource* through_vtable = bench::hidden(bench::find_peer(Name)->make().get());
};

struct by_malloc {
  struct step {
    explicit step(by_malloc&) {}
  };
  static void* allocate(std::size_t bytes) { return std::malloc(bytes); }
  static void deallocate(void* block, std::size_t) { std::free(block); }
};

/// A planned arena, called directly or through std::pmr.
template <class Way>
struct planned : Way {
  struct step {
    explicit step(planned& subject) : open{subject.resource} {}
    planned_arena::step open;
  };
};

struct rewound_arena {
  struct step {
    explicit step(rewound_arena& subject) : scope{subject.memory} {}
    arena::scope scope;
  };
  void* allocate(std::size_t bytes) { return memory.allocate(bytes); }
  static void deallocate(void*, std::size_t) {}

  arena memory;
};

// ---- the work of a step -----------------------------------------------------------------------------------

/// Returns the block sizes of a step, hidden from the compiler. All measured resources have free lists for
/// these sizes.
std::array<std::size_t, step_blocks> sizes_of_a_step() {
  constexpr std::array<std::size_t, 8> some = {64, 256, 16, 1024, 40, 512, 128, 320};
  std::array<std::size_t, step_blocks> sizes;
  for (std::size_t i = 0; i < step_blocks; ++i) sizes[i] = some[i % some.size()];
  benchmark::DoNotOptimize(sizes);
  return sizes;
}

/// Each block is freed before the next one is allocated.
template <class Subject>
void pairs(benchmark::State& state) {
  Subject subject;
  const auto sizes = sizes_of_a_step();
  for (auto _ : state) {
    const typename Subject::step step{subject};
    for (const std::size_t bytes : sizes) {
      void* const block = subject.allocate(bytes);
      keep(block);
      subject.deallocate(block, bytes);
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(step_blocks));
}

using order = std::array<std::uint8_t, step_blocks>;

/// All blocks of a step are allocated and then freed, in these orders in turn.
template <class Subject>
void all_then_freed(benchmark::State& state, std::span<order const> orders) {
  Subject subject;
  const auto sizes = sizes_of_a_step();
  std::array<void*, step_blocks> blocks;
  std::size_t turn = 0;
  for (auto _ : state) {
    const typename Subject::step step{subject};
    for (std::size_t i = 0; i < step_blocks; ++i) keep(blocks[i] = subject.allocate(sizes[i]));
    for (const std::size_t i : orders[turn]) subject.deallocate(blocks[i], sizes[i]);
    turn = turn + 1 < orders.size() ? turn + 1 : 0;
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(step_blocks));
}

order first_in_first_out() {
  order indices;
  std::iota(indices.begin(), indices.end(), std::uint8_t{0});
  return indices;
}
template <class Subject>
void fifo(benchmark::State& state) {
  const order forwards = first_in_first_out();
  all_then_freed<Subject>(state, {&forwards, 1});
}
template <class Subject>
void lifo(benchmark::State& state) {
  order backwards = first_in_first_out();
  std::ranges::reverse(backwards);
  all_then_freed<Subject>(state, {&backwards, 1});
}
template <class Subject>
void any_order(benchmark::State& state) {
  std::vector<order> orders(64, first_in_first_out());  // more than a branch predictor memorizes
  std::minstd_rand random{1};
  for (order& one : orders) std::ranges::shuffle(one, random);
  all_then_freed<Subject>(state, orders);
}

/// Like training steps of torch_mlp: 4 of 25 blocks outlive their step, until the next step has requested the
/// block that replaces them.
template <class Subject>
void outliving(benchmark::State& state) {
  constexpr std::size_t n = 25, n_outliving = 4;
  Subject subject;
  const auto sizes = sizes_of_a_step();
  std::array<void*, n> blocks;
  std::array<void*, n_outliving> of_last_step{};
  const auto one_step = [&](bool is_first) {
    const typename Subject::step step{subject};
    for (std::size_t i = 0; i < n_outliving; ++i) {
      keep(blocks[i] = subject.allocate(sizes[i]));
      if (!is_first) subject.deallocate(of_last_step[i], sizes[i]);
      of_last_step[i] = blocks[i];
    }
    for (std::size_t i = n_outliving; i < n; ++i) keep(blocks[i] = subject.allocate(sizes[i]));
    for (std::size_t i = n; i-- > n_outliving;) subject.deallocate(blocks[i], sizes[i]);
  };
  one_step(true);
  for (auto _ : state) one_step(false);
  for (std::size_t i = 0; i < n_outliving; ++i) subject.deallocate(of_last_step[i], sizes[i]);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(n));
}

template <class Subject>
void register_orders(std::string const& who) {
  benchmark::RegisterBenchmark((who + "/step/pair").c_str(), pairs<Subject>);
  benchmark::RegisterBenchmark((who + "/step/lifo").c_str(), lifo<Subject>);
  benchmark::RegisterBenchmark((who + "/step/fifo").c_str(), fifo<Subject>);
  benchmark::RegisterBenchmark((who + "/step/any_order").c_str(), any_order<Subject>);
}
template <class Subject>
void register_steps(std::string const& who) {
  register_orders<Subject>(who);
  benchmark::RegisterBenchmark((who + "/step/outliving").c_str(), outliving<Subject>);
}

const bool registered = [] {
  register_steps<planned<without_steps<planned_arena>>>("planned");
  register_steps<planned<by_pmr<planned_arena>>>("planned_by_pmr");
  register_steps<without_steps<pool>>("pool");
  register_steps<by_pmr<pool>>("pool_by_pmr");
  register_steps<by_pmr<std::pmr::unsynchronized_pool_resource>>("std_pool");
  register_steps<by_malloc>("malloc");
  if (bench::find_peer(mimalloc_2) != nullptr) register_steps<mimalloc_by_pmr<mimalloc_2>>(mimalloc_2);
  if (bench::find_peer(mimalloc_3) != nullptr) register_steps<mimalloc_by_pmr<mimalloc_3>>(mimalloc_3);
  register_orders<rewound_arena>("arena");
  return true;
}();

}  // namespace
