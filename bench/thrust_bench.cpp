// SPDX-License-Identifier: Apache-2.0
// Topic thrust: the cost of the adapters over the resource itself. Also compares Thrust's containers and
// algorithms on these adapters with Thrust's own memory, on its CPP system. Warm: after the first iteration
// the system is not called.
#include <benchmark/benchmark.h>
#include <thrust/device_vector.h>
#include <thrust/mr/allocator.h>
#include <thrust/mr/device_memory_resource.h>
#include <thrust/mr/pool.h>
#include <thrust/sort.h>

#include <cstddef>
#include <cstdint>
#include <memory_resource>

#include <tidemark/thrust.hpp>

#include <tidemark/tidemark.hpp>
#include "loop.hpp"

namespace {

using tidemark::bench::count_items;
using tidemark::bench::hidden;

using tidemark::arena;
using tidemark::thrust_allocator;

constexpr std::size_t batch = 1024;
constexpr std::size_t room = 16 * tidemark::MiB;

/// Thrust's own pool over the default upstream of its vectors.
using thrust_upstream = thrust::device_ptr_memory_resource<thrust::device_memory_resource>;
using thrust_pool = thrust::mr::unsynchronized_pool_resource<thrust_upstream>;

// ---- an allocation: 1,024 of 64 ints, and all deallocated ----

void arena_allocate(benchmark::State& state) {
  arena step{{.reserve = room}};
  for (auto _ : state) {
    const arena::scope scope{step};
    for (std::size_t i = 0; i < batch; ++i) benchmark::DoNotOptimize(step.allocate(256, 256));
  }
  count_items(state, batch);
}

template <class Allocator>
void allocate_with(benchmark::State& state, arena& step, Allocator allocator) {
  for (auto _ : state) {
    const arena::scope scope{step};
    for (std::size_t i = 0; i < batch; ++i) benchmark::DoNotOptimize(allocator.allocate(64));
  }
  count_items(state, batch);
}
void adapter_allocate(benchmark::State& state) {
  arena step{{.reserve = room}};
  allocate_with(state, step, thrust_allocator<int, arena>{&step});
}
void erased_adapter_allocate(benchmark::State& state) {
  arena step{{.reserve = room}};
  allocate_with(state, step, thrust_allocator<int>{hidden(&step), nullptr});
}

// ---- a vector of n ints: made, filled, destroyed ----

void vector_on_arena(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  arena step{{.reserve = room}};
  for (auto _ : state) {
    const arena::scope scope{step};
    tidemark::device_vector<int, arena> numbers(n, 1, &step);
    benchmark::DoNotOptimize(numbers.data());
  }
}
void vector_of_thrust(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    thrust::device_vector<int> numbers(n, 1);
    benchmark::DoNotOptimize(numbers.data());
  }
}
void vector_on_thrust_pool(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  thrust_pool pool;
  const thrust::mr::allocator<int, thrust_pool> ints{&pool};
  for (auto _ : state) {
    thrust::device_vector<int, thrust::mr::allocator<int, thrust_pool>> numbers(n, 1, ints);
    benchmark::DoNotOptimize(numbers.data());
  }
}

// ---- an algorithm with a temporary as large as its input ----

template <class Policy>
void sort_with(benchmark::State& state, Policy const& sorted_by) {
  const auto n = static_cast<std::size_t>(state.range(0));
  thrust::device_vector<std::uint32_t> keys(n);
  for (auto _ : state) {
    std::uint32_t key = 12345;
    for (std::size_t i = 0; i < n; ++i)
      thrust::raw_pointer_cast(keys.data())[i] = key = key * 1664525u + 1013904223u;
    sorted_by([&](auto const& policy) { thrust::stable_sort(policy, keys.begin(), keys.end()); });
    benchmark::DoNotOptimize(keys.data());
  }
}
void sort_on_arena(benchmark::State& state) {
  arena step{{.reserve = room}};
  sort_with(state, [&](auto const& sort) {
    const arena::scope scope{step};
    sort(tidemark::par(step));
  });
}
void sort_of_thrust(benchmark::State& state) {
  sort_with(state, [](auto const& sort) { sort(thrust::device); });
}

BENCHMARK(arena_allocate)->Name("arena/allocate_256");
BENCHMARK(adapter_allocate)->Name("thrust_allocator/allocate_256");
BENCHMARK(erased_adapter_allocate)->Name("thrust_allocator/erased/allocate_256");
BENCHMARK(vector_on_arena)->Name("thrust_allocator/vector")->Arg(64)->Arg(4096);
BENCHMARK(vector_of_thrust)->Name("thrust/vector")->Arg(64)->Arg(4096);
BENCHMARK(vector_on_thrust_pool)->Name("thrust_pool/vector")->Arg(64)->Arg(4096);
BENCHMARK(sort_on_arena)->Name("policy/stable_sort")->Arg(64)->Arg(65536);
BENCHMARK(sort_of_thrust)->Name("thrust/stable_sort")->Arg(64)->Arg(65536);

}  // namespace
