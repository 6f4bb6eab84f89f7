// SPDX-License-Identifier: Apache-2.0
// Strategy: plans that are never of use, by numbers of steps.
#include <tidemark/plan/replay/detail/planning_budget.hpp>

#include <gtest/gtest.h>

#include <cstdint>

namespace tidemark::detail {
namespace {

/// Plans are made as long as steps are recorded at once. @return one that records none at `step`
planning_budget spent(std::uint64_t step) {
  planning_budget made;
  for (int plans = 0; made.records(step) && plans < 100; ++plans) made.on_spent(step);
  EXPECT_FALSE(made.records(step));
  return made;
}

/// How many steps after `step` it records one again.
std::uint64_t steps_to_forgive(planning_budget& tested, std::uint64_t step) {
  std::uint64_t steps = 0;
  while (!tested.records(step + steps) && steps < 100'000) ++steps;
  return steps;
}

TEST(planning_budget, records_each_step_while_few_plans_are_unpaid) {
  planning_budget tested;
  for (int plans = 0; plans < 4; ++plans) {
    EXPECT_TRUE(tested.records(0)) << plans;
    tested.on_spent(0);
  }
  EXPECT_FALSE(tested.records(0));
  tested.on_paid();
  EXPECT_TRUE(tested.records(0));
}

TEST(planning_budget, forgives_a_plan_ever_more_seldom_until_one_pays) {
  planning_budget tested = spent(1000);
  std::uint64_t now = 1000;
  for (std::uint64_t wanted : {256u, 512u, 1024u}) {
    EXPECT_EQ(steps_to_forgive(tested, now), wanted);
    now += wanted;
    tested.on_spent(now);
  }
  tested.on_paid();
  tested.on_spent(now);
  EXPECT_EQ(steps_to_forgive(tested, now), 256u);
}

TEST(planning_budget, records_a_step_whose_like_was_seen_often_enough) {
  planning_budget tested = spent(0);
  constexpr std::uint64_t misses = 1, max_misses = 2, signature = 7;
  const auto is_worth_a_plan = [&](std::uint64_t step, std::uint64_t of, bool is_recorded) {
    return tested.is_worth_a_plan(step, of, misses, max_misses, is_recorded);
  };
  for (std::uint64_t step = 0; step < 4; ++step) {
    EXPECT_FALSE(tested.records(step));
    EXPECT_FALSE(is_worth_a_plan(step, signature, false));
  }
  EXPECT_TRUE(tested.records(4));  // its like is expected in the next 16 steps
  EXPECT_TRUE(tested.records(18));
  EXPECT_FALSE(tested.records(19));
  EXPECT_FALSE(is_worth_a_plan(4, signature + 1, true));
  EXPECT_TRUE(is_worth_a_plan(5, signature, true));
  EXPECT_FALSE(tested.records(6));
  EXPECT_FALSE(is_worth_a_plan(6, signature, true));  // it is counted anew
}

}  // namespace
}  // namespace tidemark::detail
