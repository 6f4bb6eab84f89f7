// SPDX-License-Identifier: Apache-2.0
// Strategy: each resource of tidemark behind Thrust's device vectors and temporaries, with each device system
// of Thrust. Vectors and a sort must give the right answer. Elements that are kept outlive their step.
// (tests/thrust/vectors_thrust_test.cpp has the vectors' whole interface, on arenas.)
#include "thrust_machine.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <utility>
#include <vector>

#include <thrust/fill.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <cuda/std/functional>

#include <tidemark/epoch.hpp>
#include <tidemark/graph.hpp>
#include <tidemark/telemetry/statistics_resource.hpp>

#include "replaying_backend.hpp"
#include "thrust_elements.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

class vectors_on : public thrust_machine {};

/// `n - 1`, `n - 2`, … 0, sorted on `resource` in a vector there.
template <class R>
std::vector<int> sorted_on(R& resource, int n) {
  device_vector<int, R> numbers(static_cast<std::size_t>(n), &resource);
  thrust::sequence(par(resource), numbers.begin(), numbers.end(), n - 1, -1);
  // By a comparison, because Thrust sorts numbers by themselves with less memory.
  thrust::sort(par(resource), numbers.begin(), numbers.end(), ::cuda::std::less<int>{});
  device_vector<int, R> grown(1, 0, &resource);
  grown.insert(grown.end(), numbers.begin() + 1, numbers.end());
  numbers = std::move(grown);
  return numbers_in(numbers);
}

template <class R>
void expect_to_serve(R& resource) {
  EXPECT_EQ(sorted_on(resource, 1000), numbers_from_to(0, 999));
  EXPECT_EQ(sorted_on<std::pmr::memory_resource>(resource, 500), numbers_from_to(0, 499));
}

TEST_F(vectors_on, each_resource_serve_elements_and_temporaries) {
  machine_pool blocks = make_pool();
  expect_to_serve(blocks);
  epoch_resource epochs{&blocks};
  expect_to_serve(epochs);
  {
    const epoch turn{epochs};
    expect_to_serve(epochs);
    EXPECT_EQ(epochs.stats().used_blocks, 0u);
  }
  EXPECT_EQ(epochs.stats().late, 0u);
  capture_switch program{&blocks};
  expect_to_serve(program);
  EXPECT_EQ(blocks.stats().used_blocks, 0u);
  graph_arena graph{1 * MiB, &memory()};
  expect_to_serve(graph);
  EXPECT_EQ(graph.stats().used_blocks, 0u);
  const unique_block lent{&memory(), 1 * MiB, 256};
  borrowed_machine_arena step{borrowed_machine_memory{lent.data(), lent.bytes()}};
  expect_to_serve(step);
  EXPECT_GT(step.stats().peak_bytes, 4000u);
}

// A.7
TEST_F(vectors_on, a_pool_keep_elements_copied_out_of_a_step) {
  machine_arena step = make_arena();
  machine_pool blocks = make_pool();
  device_vector<whole> kept{&blocks};
  {
    machine_arena::scope scope{step};
    device_vector<whole> made({1, 2, 3}, &step);
    kept = made;
  }
  const device_vector<whole> next(1000, 9, &step);  // over the memory of the step
  EXPECT_EQ(numbers_in(kept), numbers_from_to(1, 3));
  EXPECT_EQ(blocks.stats().used_blocks, 1u);
}

// A.7
TEST_F(vectors_on, an_epoch_resource_outlive_the_epoch_if_they_are_kept) {
  machine_pool blocks = make_pool();
  epoch_resource memory{&blocks};
  device_vector<int> kept{&memory};
  {
    epoch turn{memory};
    device_vector<int> hidden(100, 4, &memory);
    kept = hidden;
    EXPECT_EQ(turn.keep(thrust::raw_pointer_cast(kept.data())), 1u);
  }
  const device_vector<int> next(1000, 9, &memory);
  EXPECT_EQ(numbers_in(kept), std::vector<int>(100, 4));
  kept = device_vector<int>{&memory};
  EXPECT_EQ(blocks.stats().used_blocks, 1u);
  EXPECT_EQ(memory.stats().late, 0u);
}

// ---- captures ----

struct times_two {
  TIDEMARK_HOST_DEVICE int operator()(int x) const noexcept { return 2 * x; }
};

// A.7
TEST_F(vectors_on, a_graph_arena_keep_their_memory_for_each_replay) {
  replaying_backend backend;
  statistics_resource counted{&memory()};
  {
    // The vector ends with the body; its memory stays the graph's.
    const auto body = [&](std::pmr::memory_resource& temporaries, device_vector<int>& in,
                          device_vector<int>& out) {
      device_vector<int> doubled(in.size(), &temporaries);
      backend.enqueue([from = in.data(), n = in.size(), to = doubled.data()] {
        thrust::transform(from, from + static_cast<std::ptrdiff_t>(n), to, times_two{});
      });
      backend.enqueue([from = doubled.data(), n = in.size(), to = out.data()] {
        thrust::inclusive_scan(from, from + static_cast<std::ptrdiff_t>(n), to);
      });
    };
    auto made =
        capture_with(backend, nullptr, std::make_unique<graph_arena>(64 * KiB, &counted),
                     device_vector<int>({1, 2, 3}, &counted), device_vector<int>(3, &counted), body, nullptr);
    const std::uint64_t allocations = counted.stats().allocations;
    made.launch();
    EXPECT_EQ(numbers_in(made.outputs()), (std::vector<int>{2, 6, 12}));
    thrust::fill(made.inputs().begin(), made.inputs().end(), 5);
    made.launch();
    EXPECT_EQ(numbers_in(made.outputs()), (std::vector<int>{10, 20, 30}));
    EXPECT_EQ(counted.stats().allocations, allocations);
  }
  EXPECT_EQ(counted.stats().used_blocks, 0u);
}

}  // namespace
}  // namespace tidemark::test
