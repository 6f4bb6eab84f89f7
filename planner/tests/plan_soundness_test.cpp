// SPDX-License-Identifier: Apache-2.0
// Strategy: random problems that combine alignments, fixed blocks, blocks without bytes or lifetime, and
// capacities and limits of any size, so that each stage of the search is cut off by some. A checker that
// knows nothing of the planner checks each plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <random>
#include <stdexcept>
#include <vector>

#include <tidemark/planner.hpp>

#include "conflict_checker.hpp"

namespace tidemark::test {
namespace {

class random_problem {
 public:
  explicit random_problem(std::size_t seed) : random_{seed} {
    options.alignment = std::size_t{1} << below(9);
    options.node_limit = below(20'000);
    options.time_limit = std::chrono::hours{1};
    options.exact = below(2) == 1;
    options.seed = seed;
    options.capacity = below(3) == 0 ? below(5000) : 0;
    const std::size_t n = below(40), moments = 1 + below(30), sizes = 1 + below(200);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t lower = below(moments);
      lifetime block{.lower = lower, .upper = lower + below(8), .size = below(sizes)};
      if (below(3) == 0) block.alignment = std::size_t{1} << below(11);
      if (below(12) == 0) block.offset = below(20) * std::max(options.alignment, block.alignment);
      lifetimes.push_back(block);
      blocks.push_back({.size = block.size, .alignment = block.alignment, .offset = block.offset});
    }
    for (std::size_t i = 0; i < n * 2; ++i) conflicts.push_back({below(n), below(n)});
  }

  planner::options options;
  std::vector<lifetime> lifetimes;
  std::vector<plan_block> blocks;
  std::vector<plan_conflict> conflicts;

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }

  std::mt19937_64 random_;
};

constexpr std::size_t problems = 400;

// P.1
TEST(plan_soundness, random_lifetimes_have_sound_plans) {
  std::size_t planned = 0;
  for (std::size_t seed = 0; seed < problems; ++seed) {
    const random_problem asked{seed};
    try {
      const planner::result made = planner::find_plan(asked.lifetimes, asked.options);
      ASSERT_EQ(plan_fault(made, asked.lifetimes, asked.options.alignment), "") << "seed " << seed;
      ++planned;
    } catch (std::invalid_argument const&) {  // fixed blocks that share bytes
    }
  }
  EXPECT_GT(planned, problems / 2);
}

// P.2
TEST(plan_soundness, random_conflicts_have_sound_plans) {
  std::size_t planned = 0;
  for (std::size_t seed = 0; seed < problems; ++seed) {
    const random_problem asked{seed};
    try {
      const planner::result made = planner::find_plan(asked.blocks, asked.conflicts, asked.options);
      ASSERT_EQ(plan_fault(made, asked.blocks, asked.conflicts, asked.options.alignment), "")
          << "seed " << seed;
      ++planned;
    } catch (std::invalid_argument const&) {  // fixed blocks that share bytes
    }
  }
  EXPECT_GT(planned, problems / 2);
}

}  // namespace
}  // namespace tidemark::test
