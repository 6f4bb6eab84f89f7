// SPDX-License-Identifier: Apache-2.0
// Strategy: recorded steps of PyTorch programs, played like PyTorch plays them: work on its stream writes
// each block, which is freed without a wait. The fake device finds work that touches other work's memory.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include <tidemark/core/units.hpp>

#include "device_calls.hpp"
#include "pluggable_allocator.hpp"
#include "recorded_trace.hpp"

namespace tidemark::test {
namespace {

using tools::recorded_trace;
using tools::trace_event;
using tools::trace_step;

struct torch_steps : test::torch_test, ::testing::WithParamInterface<std::tuple<char const*, char const*>> {
  recorded_trace trace = tools::read_trace(path(".csv"));
  std::vector<trace_step> steps = tools::steps_in_order(trace);
  std::vector<void*> blocks = std::vector<void*>(trace.blocks);

  torch_steps() : torch_test{1 * GiB} {
    EXPECT_EQ(torch.configure(std::get<1>(GetParam()), -1, nullptr), nullptr);
  }

  [[nodiscard]] static std::string path(char const* end) {
    return std::string{TIDEMARK_TRACES} + "/torch_" + std::get<0>(GetParam()) + end;
  }
  [[nodiscard]] static bool is(char const* kind) { return std::string{std::get<1>(GetParam())} == kind; }

  void play(trace_event const& event, bool has_work) {
    void*& block = blocks[event.block];
    if (!event.allocates) return torch.raw_delete(block);
    block = torch.malloc(event.bytes, main);
    if (has_work && event.bytes > 0) write(block, event.bytes, main);
  }
  void play(std::size_t first, std::size_t end, bool has_work = true) {
    for (std::size_t i = first; i < end; ++i) play(trace.events[i], has_work);
  }
  void play_end(bool has_work = true) {
    play(steps.back().last_event + 1, trace.events.size(), has_work);
    for (trace_event const& event : trace.left) play(event, has_work);
  }
};
std::string name_of(::testing::TestParamInfo<torch_steps::ParamType> const& each) {
  return std::string{std::get<0>(each.param)} + "_" + std::get<1>(each.param);
}
INSTANTIATE_TEST_SUITE_P(recorded, torch_steps,
                         ::testing::Combine(::testing::Values("gpt", "mlp"),
                                            ::testing::Values("heap", "planned")),
                         name_of);

// The transformer's steps are of changing lengths, for which a heap moves memory in each step.
using torch_repeated_steps = torch_steps;
INSTANTIATE_TEST_SUITE_P(recorded, torch_repeated_steps,
                         ::testing::Values(std::tuple{"mlp", "heap"}, std::tuple{"mlp", "planned"}), name_of);

// L.8
TEST_P(torch_repeated_steps, make_no_driver_call) {
  const auto run = [this] {
    play(0, steps.front().first_event, false);
    for (trace_step const& step : steps) {
      // The first step makes the state of the optimizer besides.
      EXPECT_EQ(torch.begin_step(&step == &steps.front() ? 1 : 0), nullptr);
      play(step.first_event, step.last_event + 1, false);
    }
    EXPECT_EQ(torch.end_step(), nullptr);
    play_end(false);
  };
  for (int i = 0; i < 20; ++i) run();
  EXPECT_EQ(calls_of(device, run), call_names{});
}

// L.8
TEST_P(torch_steps, never_reuse_memory_still_in_use_and_return_all_memory) {
  play(0, steps.front().first_event);
  for (trace_step const& step : steps) {
    EXPECT_EQ(torch.begin_step(0), nullptr);
    play(step.first_event, step.last_event + 1);
    device.run(main);
    EXPECT_EQ(torch.stat("held_bytes"), held_bytes());
  }
  EXPECT_EQ(torch.end_step(), nullptr);
  play_end();
  EXPECT_EQ(torch.stat("used_blocks"), 0u);
  torch.reset_fn();
  EXPECT_EQ(held_bytes(), 0u);
}

// L.8
TEST_P(torch_steps, follow_a_plan_if_planning_is_enabled) {
  play(0, steps.front().first_event, false);
  for (trace_step const& step : steps) {
    EXPECT_EQ(torch.begin_step(0), nullptr);
    play(step.first_event, step.last_event + 1, false);
  }
  EXPECT_EQ(torch.end_step(), nullptr);
  EXPECT_EQ(torch.stat("steps"), is("planned") ? steps.size() : 0u);
  EXPECT_EQ(torch.stat("planned_steps") > 0, is("planned"));
  EXPECT_EQ(torch.stat("planned_allocations") > 0, is("planned"));
  play_end();
}

TEST_P(torch_steps, use_a_plan_for_each_kind) {
  EXPECT_EQ(torch.configure(nullptr, -1, nullptr, 12), nullptr);  // more than the default
  for (int i = 0; i < 36; ++i) {
    EXPECT_EQ(torch.begin_step(i % 12), nullptr);
    torch.raw_delete(torch.malloc(static_cast<std::size_t>(4 + i % 12) * MiB, main));
  }
  EXPECT_EQ(torch.end_step(), nullptr);
  EXPECT_EQ(torch.stat("planned_steps"), is("planned") ? 24u : 0u);
}

// The steps of one stream repeat, those of the other do not.
TEST_P(torch_steps, count_steps_of_each_stream) {
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(torch.begin_step(0), nullptr);
    torch.raw_delete(torch.malloc(4 * MiB, main));
    torch.raw_delete(torch.malloc((1 + 3 * i) * MiB, side));
  }
  EXPECT_EQ(torch.end_step(), nullptr);
  void* const outside = torch.malloc(1 * MiB, side);
  const std::uint64_t on = is("planned") ? 1 : 0;
  EXPECT_EQ(torch.stat("steps"), 12 * on);
  EXPECT_EQ(torch.stat("planned_steps"), 5 * on);
  EXPECT_EQ(torch.stat("partly_planned_steps"), 0u);
  EXPECT_EQ(torch.stat("unplanned_steps"), 7 * on);
  EXPECT_EQ(torch.stat("planned_allocations"), 5 * on);
  EXPECT_EQ(torch.stat("fallback_allocations"), 7 * on);
  EXPECT_EQ(torch.stat("outside_allocations"), 1 * on);
  EXPECT_GT(torch.stat("misses") + 1, on) << "of the stream whose steps do not repeat";
  torch.raw_delete(outside);
}

TEST_P(torch_steps, can_begin_before_the_first_block) {
  EXPECT_EQ(torch.begin_step(0), nullptr);
  (void)torch.malloc(1 * MiB, main);
  EXPECT_EQ(torch.begin_step(0), nullptr);
  EXPECT_EQ(torch.stat("steps"), is("planned") ? 1u : 0u);
  EXPECT_EQ(torch.end_step(), nullptr);
  EXPECT_EQ(torch.end_step(), nullptr) << "once more changes nothing";
}

}  // namespace
}  // namespace tidemark::test
