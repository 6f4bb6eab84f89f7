// SPDX-License-Identifier: Apache-2.0
// Strategy: what a planned arena does besides on a device: a fake one whose memory must not be touched, so a
// touch is a crash. What is asked of the driver is counted.
#include <tidemark/cuda/resources/device_planned_arena.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <stdexcept>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda/driver/stream.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>

#include "captures.hpp"
#include "device_calls.hpp"
#include "fake_device.hpp"

namespace tidemark {
namespace {

using gpu::status;
using test::call_names;
using test::calls_of;
using test::fake_device;

constexpr std::size_t half_mebibyte = 512 * KiB;

struct device_planned_arena_test : ::testing::Test {
  fake_device device{{.capacity_bytes = 256 * half_mebibyte, .granularity_bytes = half_mebibyte}};
  gpu::stream own_stream{device};
  gpu::stream_handle stream = own_stream.get();
  device_pool fallback{{.stream = stream}, device};
  device_planned_arena memory{{.fallback = &fallback, .name = "step"}, stream, device};

  /// Blocks of which three are live at once. @return where they lay
  std::vector<void*> run(std::size_t bytes = half_mebibyte, int kind = 0) {
    const device_planned_arena::step step{memory, kind};
    std::vector<void*> blocks;
    for (int i = 0; i < 10; ++i) {
      blocks.push_back(memory.allocate(bytes));
      if (i >= 2) memory.deallocate(blocks[blocks.size() - 3], bytes);
    }
    for (int i = 8; i < 10; ++i) memory.deallocate(blocks[static_cast<std::size_t>(i)], bytes);
    return blocks;
  }
};

// P.27
TEST_F(device_planned_arena_test, a_step_that_repeats_makes_no_call_to_the_driver) {
  (void)run();  // is recorded
  const std::vector<void*> planned = run();
  EXPECT_EQ(memory.stats().committed_bytes, 3 * half_mebibyte);
  EXPECT_TRUE(device.accessible(planned[0], half_mebibyte));
  EXPECT_EQ(calls_of(device,
                     [&] {
                       for (int i = 0; i < 10; ++i) EXPECT_EQ(run(), planned);
                     }),
            call_names{});
  EXPECT_EQ(memory.stats().planned_steps, 11u);
  EXPECT_EQ(memory.stream(), stream);
}

// P.40
TEST_F(device_planned_arena_test, kinds_that_take_turns_make_no_call_to_the_driver) {
  for (int i = 0; i < 2; ++i) {
    (void)run(half_mebibyte, 1);
    (void)run(2 * half_mebibyte, 2);
  }
  EXPECT_EQ(calls_of(device,
                     [&] {
                       for (int i = 0; i < 10; ++i)
                         (void)run((i % 2 == 0 ? half_mebibyte : 2 * half_mebibyte), 1 + i % 2);
                     }),
            call_names{});
  EXPECT_EQ(memory.stats().committed_bytes, 6 * half_mebibyte) << "the highest plan";
  EXPECT_EQ(fallback.stats().held_bytes, 0u) << "what recorded steps used went back";
}

// P.27
TEST_F(device_planned_arena_test, a_plan_that_is_given_up_gives_its_memory_back_behind_the_stream) {
  (void)run();
  (void)run();
  const std::size_t unmapped = device.count("cuMemUnmap");
  const std::size_t waits = device.count("cuStreamSynchronize");
  (void)run(2 * half_mebibyte);  // for which there is no plan
  EXPECT_EQ(memory.stats().committed_bytes, 0u);
  EXPECT_GT(device.count("cuMemUnmap"), unmapped);
  EXPECT_GT(device.count("cuStreamSynchronize"), waits);
  (void)run(2 * half_mebibyte);
  EXPECT_EQ(memory.stats().committed_bytes, 6 * half_mebibyte);
}

// P.27
TEST_F(device_planned_arena_test, a_capture_uses_what_memory_there_is) {
  (void)run();
  const std::vector<void*> planned = run();
  const test::empty_capture graph{device, stream};
  EXPECT_EQ(calls_of(device, [&] { EXPECT_EQ(run(), planned); }), call_names{});
}

TEST_F(device_planned_arena_test,
       a_plan_without_memory_is_not_used_and_what_is_asked_for_comes_from_the_fallback) {
  (void)run();
  device.fail_in("cuMemMap", device.count("cuMemMap"), status::out_of_memory);
  (void)run();
  EXPECT_EQ(memory.stats().planned_allocations, 0u);
  EXPECT_EQ(memory.stats().fallback_allocations, 20u);
  memory.check_invariants();
}

TEST_F(device_planned_arena_test, requires_a_fallback) {
  EXPECT_THROW((device_planned_arena{planned_arena_options{}, stream, device}), std::invalid_argument);
}

}  // namespace
}  // namespace tidemark
