// SPDX-License-Identifier: Apache-2.0
// Strategy: a planned arena in the heap of a fake device, whose memory must not be touched: a touch crashes.
// Calls of the driver are counted, and the bytes that the heap has in use are compared.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda.hpp>

#include "captures.hpp"
#include "device_calls.hpp"
#include "fake_device.hpp"

namespace tidemark::test {
namespace {

constexpr std::size_t bytes_of_block = 2 * MiB;

struct device_planned_arena_test : ::testing::Test {
  fake_device device{{.capacity_bytes = 128 * MiB, .granularity_bytes = 2 * MiB}};
  gpu::stream own_stream{device};
  gpu::stream_handle stream = own_stream.get();
  device_pool heap{{.stream = stream}, device};
  device_planned_arena memory{{.fallback = &heap, .name = "step"}};

  /// Allocates ten blocks; three are live at once. @return their addresses
  std::vector<void*> run(std::size_t bytes = bytes_of_block, int kind = 0) {
    const device_planned_arena::step step{memory, kind};
    std::vector<void*> blocks;
    for (int i = 0; i < 10; ++i) {
      blocks.push_back(memory.allocate(bytes));
      if (i >= 2) memory.deallocate(blocks[blocks.size() - 3], bytes);
    }
    for (int i = 8; i < 10; ++i) memory.deallocate(blocks[static_cast<std::size_t>(i)], bytes);
    return blocks;
  }
  /// Allocates three blocks; the second outlives the step. @return the second block
  void* run_with_survivor() {
    const device_planned_arena::step step{memory};
    void* const first = memory.allocate(bytes_of_block);
    void* const survivor = memory.allocate(3 * bytes_of_block);
    memory.deallocate(first, bytes_of_block);
    memory.deallocate(memory.allocate(bytes_of_block), bytes_of_block);
    return survivor;
  }
};

// P.27
TEST_F(device_planned_arena_test, repeated_step_makes_no_driver_call_also_in_a_capture) {
  (void)run();  // is recorded
  const std::vector<void*> planned = run();
  EXPECT_TRUE(device.accessible(planned[0], bytes_of_block));
  EXPECT_EQ(calls_of(device,
                     [&] {
                       for (int i = 0; i < 10; ++i) EXPECT_EQ(run(), planned);
                     }),
            call_names{});
  const test::empty_capture graph{device, stream};
  EXPECT_EQ(calls_of(device, [&] { EXPECT_EQ(run(), planned); }), call_names{});
  EXPECT_EQ(memory.stats().planned_steps, 12u);
}

TEST_F(device_planned_arena_test, returns_the_memory_of_the_plan_to_the_heap_at_the_end_of_the_step) {
  (void)run();
  {
    const device_planned_arena::step step{memory};
    memory.deallocate(memory.allocate(bytes_of_block), bytes_of_block);
    EXPECT_GE(heap.stats().used_bytes, 3 * bytes_of_block);
    EXPECT_EQ(memory.stats().committed_bytes, heap.stats().requested_bytes);
  }
  EXPECT_EQ(heap.stats().used_bytes, 0u);
  EXPECT_EQ(memory.stats().committed_bytes, 0u);
}

TEST_F(device_planned_arena_test, alternating_kinds_share_the_memory_of_the_larger_plan) {
  for (int i = 0; i < 3; ++i) {
    (void)run(bytes_of_block, 1);
    (void)run(2 * bytes_of_block, 2);
  }
  EXPECT_EQ(calls_of(device,
                     [&] {
                       for (int i = 0; i < 10; ++i)
                         (void)run((i % 2 == 0 ? bytes_of_block : 2 * bytes_of_block), 1 + i % 2);
                     }),
            call_names{});
  EXPECT_LE(heap.stats().held_bytes, 6 * bytes_of_block + 2 * MiB);
}

TEST_F(device_planned_arena_test, allocates_blocks_that_outlive_their_step_from_the_heap_without_a_miss) {
  memory.deallocate(run_with_survivor(), 3 * bytes_of_block);  // recorded
  void* const survivor = run_with_survivor();
  EXPECT_EQ(memory.stats().committed_bytes, 0u) << "the survivor keeps no memory of the plan";
  EXPECT_EQ(heap.stats().used_bytes, 3 * bytes_of_block);
  EXPECT_EQ(memory.stats().planned_steps, 1u);
  EXPECT_EQ(memory.stats().misses, 0u);
  EXPECT_EQ(memory.stats().height_bytes, bytes_of_block);
  memory.deallocate(survivor, 3 * bytes_of_block);
  EXPECT_EQ(heap.stats().used_bytes, 0u);
}

TEST_F(device_planned_arena_test, a_step_whose_blocks_all_outlive_it_takes_no_memory_for_its_plan) {
  for (int i = 0; i < 3; ++i) {
    (void)run(bytes_of_block, 1);
    const device_planned_arena::step step{memory, 2};
    (void)memory.allocate(bytes_of_block);
    EXPECT_EQ(memory.stats().committed_bytes, 0u);
  }
  EXPECT_EQ(memory.stats().plans, 2u);
}

TEST_F(device_planned_arena_test, plans_blocks_freed_between_steps_if_planning_saves_memory) {
  void* gradient = nullptr;
  for (int i = 0; i < 4; ++i) {
    memory.deallocate(gradient, 3 * bytes_of_block);
    const device_planned_arena::step step{memory};
    memory.deallocate(memory.allocate(4 * bytes_of_block), 4 * bytes_of_block);
    gradient = memory.allocate(3 * bytes_of_block);
  }
  EXPECT_EQ(memory.stats().height_bytes, 4 * bytes_of_block);
  EXPECT_EQ(memory.stats().misses, 0u);
  EXPECT_EQ(memory.stats().committed_bytes, heap.stats().requested_bytes) << "the gradient lies in the plan";
  memory.deallocate(gradient, 3 * bytes_of_block);
  memory.trim();
  EXPECT_EQ(heap.stats().used_bytes, 0u);
  memory.check_invariants();
}

TEST_F(device_planned_arena_test, allocates_blocks_that_cross_steps_from_the_heap_afterwards) {
  const auto run_and_return_block = [&] {
    const device_planned_arena::step step{memory};
    memory.deallocate(memory.allocate(4 * bytes_of_block), 4 * bytes_of_block);
    return memory.allocate(3 * bytes_of_block);
  };
  for (int i = 0; i < 3; ++i) memory.deallocate(run_and_return_block(), 3 * bytes_of_block);
  void* const first = run_and_return_block();
  EXPECT_NE(memory.stats().committed_bytes, 0u) << "the block holds the memory of the plan";
  void* const second = run_and_return_block();
  memory.deallocate(first, 3 * bytes_of_block);
  memory.deallocate(second, 3 * bytes_of_block);
  void* const third = run_and_return_block();
  EXPECT_EQ(memory.stats().committed_bytes, 0u);
  EXPECT_EQ(heap.stats().used_bytes, 3 * bytes_of_block);
  memory.deallocate(third, 3 * bytes_of_block);
  memory.check_invariants();
}

/// Refuses blocks of more than a limit.
struct small_blocks final : detail::distinct_resource {
  explicit small_blocks(std::pmr::memory_resource& from) : upstream{&from} {}

  std::pmr::memory_resource* upstream;

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    if (bytes > 2 * bytes_of_block) throw std::bad_alloc{};
    return upstream->allocate(bytes, align);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    upstream->deallocate(block, bytes, align);
  }
};

TEST_F(device_planned_arena_test, heap_serves_a_step_if_its_plan_cannot_be_allocated) {
  small_blocks refusing{heap};
  device_planned_arena refused{{.fallback = &refusing}};
  for (int i = 0; i < 2; ++i) {
    const device_planned_arena::step step{refused};
    std::vector<void*> blocks;
    for (int k = 0; k < 3; ++k) blocks.push_back(refused.allocate(bytes_of_block));
    for (void* const block : blocks) refused.deallocate(block, bytes_of_block);
  }
  EXPECT_EQ(refused.stats().planned_allocations, 0u);
  EXPECT_EQ(refused.stats().fallback_allocations, 6u);
  refused.check_invariants();
}

TEST_F(device_planned_arena_test, construction_returns_idle_memory_of_the_heap) {
  heap.deallocate(heap.allocate(8 * bytes_of_block), 8 * bytes_of_block);
  EXPECT_EQ(heap.stats().held_bytes, 8 * bytes_of_block);
  const device_planned_arena second{{.fallback = &heap, .name = "second"}};
  EXPECT_EQ(heap.stats().held_bytes, 0u);
}

TEST_F(device_planned_arena_test, requires_a_fallback) {
  EXPECT_THROW(device_planned_arena{planned_arena_options{}}, std::invalid_argument);
}

}  // namespace
}  // namespace tidemark::test
