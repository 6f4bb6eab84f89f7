// SPDX-License-Identifier: Apache-2.0
// Strategy: finding a plan at capacity must not depend on the seed or the order of rows. Each step is planned
// with eight seeds, each with another order of rows, within a number of nodes and never of seconds. The steps
// are published ones, and steps made from a plan at capacity without its offsets.
#include <tidemark/planner.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "hard_steps.hpp"
#include "plan_checker.hpp"
#include "plan_file.hpp"

namespace tidemark {
namespace {

using test::hard_step;
using test::hard_step_capacity;
using test::step_shape;
using blocks = std::vector<lifetime>;

blocks recorded(std::string const& name) {
  return tools::read_lifetimes(std::string{TIDEMARK_PLANS "/"} + name + ".csv").blocks;
}

blocks shuffled(blocks rows, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  for (std::size_t i = rows.size(); i > 1; --i) std::swap(rows[i - 1], rows[random() % i]);
  return rows;
}

planner::options search_of(std::uint64_t seed, std::uint64_t nodes, std::size_t capacity) {
  return {.alignment = 1,
          .time_limit = std::chrono::hours{1},
          .node_limit = nodes,
          .seed = seed,
          .exact = true,
          .capacity = capacity};
}

/// Plans the step with each seed, and expects a valid plan at capacity.
void expect_fits(blocks const& step, std::uint64_t nodes) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const blocks rows = shuffled(step, seed);
    const planner::result made = planner::find_plan(rows, search_of(seed, nodes, hard_step_capacity));
    EXPECT_EQ(test::plan_fault(made, rows, 1), "") << seed;
    EXPECT_LE(made.height, hard_step_capacity) << seed;
  }
}

// P.36
TEST(plan_seeds, minimalloc_a_fits_with_each) { expect_fits(recorded("minimalloc_A"), 20'000); }

TEST(plan_seeds, minimalloc_c_fits_with_each) { expect_fits(recorded("minimalloc_C"), 20'000); }

TEST(plan_seeds, nested_phases_fit_with_each) { expect_fits(hard_step({.buffers = 350}), 20'000); }

// P.36
TEST(plan_seeds, nested_phases_with_gaps_fit_with_each) {
  expect_fits(hard_step({.buffers = 250, .has_gaps = true}), 20'000);
  // The exact searches did not find a plan of this step in seconds.
  expect_fits(hard_step({.buffers = 350, .has_gaps = true, .seed = 4}), 40'000);
}

TEST(plan_seeds, overlapping_phases_fit_with_each) {
  for (std::size_t buffers : {250u, 350u, 500u})
    expect_fits(hard_step({.shape = step_shape::overlapping, .buffers = buffers, .seed = 1}), 40'000);
}

TEST(plan_seeds, overlapping_phases_with_gaps_fit_with_each) {
  for (std::size_t buffers : {250u, 350u}) {
    expect_fits(
        hard_step({.shape = step_shape::overlapping, .buffers = buffers, .has_gaps = true, .seed = 1}),
        20'000);
  }
}

// P.36
TEST(plan_seeds, lowers_a_plan_in_steps_without_a_capacity) {
  // No search reaches this step's bound within the node limit; without the ladder the ratio stays at 1.065.
  const blocks step =
      hard_step({.shape = step_shape::overlapping, .buffers = 350, .has_gaps = true, .seed = 7});
  const planner::result made = planner::find_plan(step, search_of(0, 400'000, 0));
  EXPECT_EQ(test::plan_fault(made, step, 1), "");
  EXPECT_LT(made.ratio(), 1.05);
}

TEST(hard_steps, have_a_plan_at_exactly_the_capacity) {
  for (step_shape shape : {step_shape::nested, step_shape::overlapping}) {
    for (bool has_gaps : {false, true}) {
      for (std::size_t buffers : {150u, 350u, 500u}) {
        for (std::uint64_t seed : {0u, 1u, 100u, 101u}) {
          const blocks cut = test::placed_hard_step(
              {.shape = shape, .buffers = buffers, .has_gaps = has_gaps, .seed = seed});
          // All blocks are fixed, so the plan is the one they were cut from.
          const planner::result made = planner::find_plan(cut, search_of(0, 1, 0));
          EXPECT_EQ(test::plan_fault(made, cut, 1), "") << seed;
          EXPECT_EQ(made.height, hard_step_capacity) << seed;
        }
      }
    }
  }
}

TEST(hard_steps, have_live_bytes_equal_to_the_capacity) {
  for (step_shape shape : {step_shape::nested, step_shape::overlapping}) {
    for (bool has_gaps : {false, true}) {
      const blocks step = hard_step({.shape = shape, .buffers = 200, .has_gaps = has_gaps, .seed = 3});
      EXPECT_EQ(planner::find_plan(step, search_of(0, 1, 0)).lower_bound, hard_step_capacity);
      EXPECT_GE(step.size(), 150u);
    }
  }
}

}  // namespace
}  // namespace tidemark
