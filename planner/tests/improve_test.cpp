// SPDX-License-Identifier: Apache-2.0
// Strategy: `improve` from known plans. The start plan is kept if no search is allowed, replaced if a lower
// plan is found, and rejected if it is not a plan of these blocks. Steps with blocks that outlive them are
// improved and replayed.
#include <gtest/gtest.h>

#include <tidemark/planner.hpp>

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include <tidemark/plan/replay/planned_arena.hpp>

#include "conflict_checker.hpp"
#include "hard_steps.hpp"

namespace tidemark::test {
namespace {

using blocks = std::vector<lifetime>;

std::vector<lifetime> small_step() { return hard_step({.buffers = 40, .seed = 3}); }

/// Places each block above the one before.
memory_plan stacked(blocks const& some) {
  memory_plan made;
  for (lifetime const& each : some) {
    made.offsets.push_back(made.height);
    made.height += each.size;
  }
  return made;
}

std::string refusal_of(blocks const& some, memory_plan const& start) {
  try {
    (void)planner::improve(some, start, {.alignment = 1});
  } catch (std::invalid_argument const& error) {
    return error.what();
  }
  return "";
}

TEST(improve, returns_the_start_with_a_time_limit_of_0) {
  const blocks some = small_step();
  const planner::result made = planner::improve(some, stacked(some), {.alignment = 1, .time_limit = {}});
  EXPECT_EQ(made.offsets, stacked(some).offsets);
  EXPECT_EQ(made.height, stacked(some).height);
  EXPECT_FALSE(made.optimal);
  ASSERT_EQ(made.stages.size(), 1u);
  EXPECT_STREQ(made.stages[0].name, "start");
}

TEST(improve, finds_a_lower_plan_than_its_start) {
  const blocks some = small_step();
  const planner::result made = planner::improve(some, stacked(some), {.alignment = 1, .node_limit = 100'000});
  EXPECT_LT(made.height, stacked(some).height);
  EXPECT_EQ(plan_fault(made, some, 1), "");
}

TEST(improve, never_returns_a_higher_plan_with_more_nodes) {
  const blocks some = small_step();
  memory_plan start = make_plan(some, 1);
  std::size_t height = start.height;
  for (const std::uint64_t nodes : {1u, 100u, 1'000u, 10'000u, 100'000u}) {
    const planner::result made = planner::improve(
        some, start,
        {.alignment = 1, .time_limit = std::chrono::hours{1}, .node_limit = nodes, .exact = true});
    EXPECT_EQ(plan_fault(made, some, 1), "");
    EXPECT_LE(made.height, height);
    height = made.height;
  }
}

TEST(improve, starts_from_a_plan_at_offsets_that_no_sum_of_sizes_has) {
  const blocks some{{.lower = 0, .upper = 2, .size = 1024}, {.lower = 1, .upper = 3, .size = 1024}};
  memory_plan start;
  start.offsets = {256, 1280 + 256};
  start.height = 2560;
  const planner::result kept = planner::improve(some, start, {.time_limit = {}});
  EXPECT_EQ(kept.offsets, start.offsets);
  EXPECT_EQ(planner::improve(some, start).height, 2048u);
}

TEST(improve, rejects_a_start_that_is_not_a_plan_of_its_blocks) {
  const blocks some{{.lower = 0, .upper = 2, .size = 8}, {.lower = 1, .upper = 3, .size = 8}};
  memory_plan start;
  EXPECT_EQ(refusal_of(some, start), "require_valid: the plan has 0 offsets for 2 blocks");
  start.offsets = {0, 4};
  start.height = 16;
  EXPECT_EQ(refusal_of(some, start), "require_valid: block 0 and block 1 are in conflict and share bytes");
  start.offsets = {0, 12};
  EXPECT_EQ(refusal_of(some, start), "require_valid: block 1 is not below the height");
}

TEST(improve, starts_from_a_plan_of_conflicts) {
  const std::vector<plan_block> some{{.size = 8}, {.size = 8}, {.size = 8}};
  const std::vector<plan_conflict> pairs{{0, 1}, {1, 2}};
  memory_plan start;
  start.offsets = {0, 8, 16};
  start.height = 24;
  const planner::result made = planner::improve(some, pairs, start, {.alignment = 1});
  EXPECT_EQ(made.height, 16u);
  EXPECT_EQ(plan_fault(made, some, pairs, 1), "");
  start.offsets = {0, 8, 8};
  EXPECT_THROW((void)planner::improve(some, pairs, start, {.alignment = 1}), std::invalid_argument);
}

step_plan spread_step() {
  step_plan plan;
  plan.requests = 4;
  plan.alignment = 16;
  const auto add = [&](std::size_t request, std::uint64_t lower, std::uint64_t upper, std::size_t offset) {
    plan.blocks.push_back(
        {request, {.lower = lower, .upper = upper, .size = 64, .alignment = 16, .offset = offset}});
  };
  add(0, 0, 5, 0);  // outlives the step
  add(1, 1, 2, 64);
  add(2, 2, 3, 128);
  add(3, 3, 4, 192);
  plan.height = 256;
  plan.lower_bound = 128;
  return plan;
}

TEST(improve_of_a_step, keeps_offsets_of_blocks_that_outlive_the_step) {
  const step_plan made = planner::improve(spread_step());
  EXPECT_EQ(made.height, 128u);
  EXPECT_EQ(made.blocks[0], spread_step().blocks[0]);
  EXPECT_EQ(made.requests, 4u);
  made.require_valid();
}

TEST(improve_of_a_step, returns_the_same_plan_with_a_time_limit_of_0) {
  EXPECT_EQ(planner::improve(spread_step(), {.time_limit = {}}), spread_step());
}

TEST(improve_of_a_step, rejects_an_invalid_plan) {
  step_plan plan = spread_step();
  plan.blocks[1].life.offset = 0;
  EXPECT_THROW((void)planner::improve(plan), std::invalid_argument);
}

TEST(improve_of_a_step, makes_plans_that_an_arena_follows) {
  planned_arena memory{planned_arena_options{.alignment = 16}};
  memory.use(planner::improve(spread_step()));
  {
    planned_arena::step step{memory};
    void* const kept = memory.allocate(64, 16);
    for (int i = 0; i < 3; ++i) memory.deallocate(memory.allocate(64, 16), 64, 16);
    memory.deallocate(kept, 64, 16);
  }
  EXPECT_EQ(memory.stats().misses, 0u);
  EXPECT_EQ(memory.stats().planned_allocations, 4u);
  EXPECT_EQ(memory.stats().height_bytes, 128u);
}

/// The code of planner/docs/use.md.
TEST(improve, is_used_as_documented) {
  using namespace std::chrono_literals;
  const blocks blocks = small_step();
  planned_arena memory;
  const std::string path = testing::TempDir() + "/step.csv";
  save_plan(spread_step(), path);
  // clang-format off
  memory_plan const quick = make_plan(blocks);
  planner::result const made = planner::improve(blocks, quick, {.time_limit = 1s, .exact = true});
  bool const is_lowest = made.optimal;                              // made.height == made.proven_bound
  memory.use(planner::improve(load_step_plan(path)));               // a step_plan of a planned_arena
  // clang-format on
  EXPECT_LE(made.height, quick.height);
  EXPECT_EQ(is_lowest, made.height == made.proven_bound);
  EXPECT_EQ(memory.stats().plans, 1u);
}

}  // namespace
}  // namespace tidemark::test
