// SPDX-License-Identifier: Apache-2.0
// Strategy: each resource of tidemark behind Thrust's device vectors and temporaries, with each device system
// of Thrust. Vectors and a sort must give the right answer, and the purpose of the resource must hold too.
// (tests/thrust/vectors_thrust_test.cpp has the vectors' whole interface, on arenas.)
#include "thrust_machine.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <thread>
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
#include <tidemark/pool/synchronized_pool.hpp>
#include <tidemark/telemetry/statistics_resource.hpp>
#include <tidemark/workspace/workspace.hpp>

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

// ---- arenas ----

TEST_F(vectors_on, an_arena_make_no_system_call_once_warm) {
  machine_arena step = make_arena();
  expect_to_serve(step);
  step.reset();
  const std::uint64_t system_calls = step.stats().system_calls;
  for (int i = 0; i < 5; ++i) {
    expect_to_serve(step);
    step.reset();
  }
  EXPECT_EQ(step.stats().system_calls, system_calls);
}

TEST_F(vectors_on, a_borrowed_arena_use_the_borrowed_memory) {
  constexpr std::size_t bytes = 1 * MiB;
  void* const lent = memory().allocate(bytes, 256);
  {
    borrowed_machine_arena step{borrowed_machine_memory{lent, bytes}};
    expect_to_serve(step);
    const device_vector<int> numbers(100, &step);
    EXPECT_LT(static_cast<std::size_t>(
                  reinterpret_cast<std::byte const*>(thrust::raw_pointer_cast(numbers.data())) -
                  static_cast<std::byte const*>(lent)),
              bytes);
  }
  memory().deallocate(lent, bytes, 256);
}

// ---- pools ----

TEST_F(vectors_on, a_pool_reuse_memory_of_earlier_vectors) {
  machine_pool blocks = make_pool();
  expect_to_serve(blocks);
  const std::uint64_t misses = blocks.stats().misses;
  for (int i = 0; i < 5; ++i) expect_to_serve(blocks);
  EXPECT_EQ(blocks.stats().used_blocks, 0u);
  EXPECT_EQ(blocks.stats().misses, misses);
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

// ---- epochs ----

TEST_F(vectors_on, an_epoch_resource_serve_inside_and_outside_of_epochs) {
  machine_pool blocks = make_pool();
  epoch_resource memory{&blocks};
  expect_to_serve(memory);
  {
    epoch turn{memory};
    expect_to_serve(memory);
    EXPECT_GT(memory.stats().allocations, 0u);
    EXPECT_EQ(memory.stats().used_blocks, 0u);
  }
  EXPECT_EQ(memory.stats().late, 0u);
  EXPECT_EQ(blocks.stats().used_blocks, 0u);
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

TEST_F(vectors_on, a_graph_arena_never_reuse_an_address) {
  graph_arena graph{1 * MiB, &memory()};
  expect_to_serve(graph);
  EXPECT_EQ(graph.stats().used_blocks, 0u);
  const device_vector<int> first(100, &graph);
  void const* const before = thrust::raw_pointer_cast(first.data());
  {
    const device_vector<int> second(100, &graph);
  }
  const device_vector<int> third(100, &graph);
  EXPECT_EQ(static_cast<std::byte const*>(static_cast<void const*>(thrust::raw_pointer_cast(third.data()))),
            static_cast<std::byte const*>(before) + 1024);
}

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

TEST_F(vectors_on, a_capture_switch_use_graph_memory_only_inside_a_capture) {
  machine_pool blocks = make_pool();
  capture_switch program{&blocks};
  expect_to_serve(program);
  device_vector<int> before(10, 1, &program);
  {
    host_backend host;
    void const* inside = nullptr;
    const auto body = [&](std::pmr::memory_resource& temporaries, device_vector<int>& in,
                          device_vector<int>& out) {
      const device_vector<int> copy(in, &temporaries);
      inside = thrust::raw_pointer_cast(copy.data());
      expect_to_serve(temporaries);
      before = device_vector<int>{&program};  // of the pool, and deallocated in the capture
      out.assign(copy.begin(), copy.end());
    };
    auto made = capture(host, program, std::make_unique<graph_arena>(1 * MiB, &memory()),
                        device_vector<int>({1, 2, 3}, &program), device_vector<int>(3, &program), body);
    EXPECT_TRUE(made.arena().owns(inside));
    EXPECT_EQ(numbers_in(made.outputs()), numbers_from_to(1, 3));
    EXPECT_EQ(program.stats().deferred_blocks,
              1u);  // the blocks that the body deallocated: the graph may use them
  }
  EXPECT_EQ(program.stats().deferred_blocks, 0u);
  EXPECT_EQ(program.stats().used_blocks, 0u);
  EXPECT_EQ(blocks.stats().used_blocks, 0u);
}

// ---- workspaces ----

// A workspace allocates by type and scope, and is not a resource: single buffers are not freed. A function
// therefore acquires one block for its Thrust vectors and temporaries, and puts a borrowed arena on it. The
// arena ends with the workspace's scope and costs a few stores.
TEST_F(vectors_on, a_workspace_acquisition_reuse_the_memory_in_the_next_turn) {
  workspace_options options;
  options.alignment = 256;
  options.host_memory = this_system != thrust_system::cuda;
  statistics_resource counted{&memory()};
  options.upstream = &counted;
  workspace temporaries{options};
  constexpr std::size_t bytes = 256 * KiB;
  void* first_turn = nullptr;
  std::uint64_t allocations = 0;
  for (int turn = 0; turn < 4; ++turn) {
    workspace::scope<> scope{temporaries};  // nvcc cannot leave the brackets out
    void* const lent = scope.acquire<std::byte>(bytes).data();
    borrowed_machine_arena step{borrowed_machine_memory{lent, bytes}};
    expect_to_serve(step);
    EXPECT_GT(step.stats().peak_bytes, 4000u);
    if (turn == 0) first_turn = lent, allocations = counted.stats().allocations;
    EXPECT_EQ(lent, first_turn);
    EXPECT_EQ(counted.stats().allocations, allocations);
  }
  EXPECT_EQ(allocations, 1u);
}

}  // namespace
}  // namespace tidemark::test
