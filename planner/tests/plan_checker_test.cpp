// SPDX-License-Identifier: Apache-2.0
// Strategy: a sound plan of a few blocks passes. With one change it fails, for each possible fault, and the
// text names the blocks. Random plans, sound and unsound, get the same answer as a comparison of all pairs.
#include "plan_checker.hpp"

#include <gtest/gtest.h>

#include <tidemark/planner.hpp>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "conflict_checker.hpp"

namespace tidemark::test {
namespace {

planner::result lowest_plan(std::vector<std::size_t> offsets) {
  planner::result made;
  made.offsets = std::move(offsets);
  made.height = made.lower_bound = made.proven_bound = 192;
  made.optimal = true;
  return made;
}

/// Blocks 0 and 1 are live together; 2 takes the bytes of 0 after it; 3 has no lifetime and 4 no bytes.
struct example {
  std::vector<lifetime> blocks{{.lower = 0, .upper = 5, .size = 100},
                               {.lower = 3, .upper = 9, .size = 60, .alignment = 128},
                               {.lower = 5, .upper = 9, .size = 128, .offset = 0},
                               {.lower = 4, .upper = 4, .size = 8},
                               {.lower = 0, .upper = 9, .size = 0}};
  planner::result made = lowest_plan({0, 128, 0, 64, 64});

  [[nodiscard]] std::string fault() const { return plan_fault(made, blocks, 64); }
};

/// The same blocks with conflicts given as pairs.
struct example_of_conflicts {
  std::vector<plan_block> blocks{{.size = 100}, {.size = 60, .alignment = 128}, {.size = 128, .offset = 0}};
  std::vector<plan_conflict> conflicts{{0, 1}, {2, 1}};
  planner::result made = lowest_plan({0, 128, 0});

  [[nodiscard]] std::string fault() const { return plan_fault(made, blocks, conflicts, 64); }
};

// P.1
TEST(plan_checker, accepts_a_sound_plan) {
  EXPECT_EQ(example{}.fault(), "");
  EXPECT_EQ(plan_fault(memory_plan{}, std::vector<lifetime>{}, 64), "");
}

TEST(plan_checker, reports_two_live_blocks_that_share_a_byte) {
  example e;
  e.blocks[0].size = 129;
  EXPECT_EQ(e.fault(),
            "block 0 (129 bytes at 0, live in [0, 5)) and block 1 (60 bytes at 128, live in [3, 9)) "
            "share bytes");
  example above;
  above.made.offsets = {128, 0, 64, 0, 0};  // block 1 ends where block 2 begins; block 0 is above it
  above.blocks[2].offset = 64;
  above.blocks[1].size = 65;
  above.made.height = above.made.lower_bound = above.made.proven_bound = 256;
  EXPECT_EQ(above.fault(),
            "block 1 (65 bytes at 0, live in [3, 9)) and block 2 (128 bytes at 64, live in [5, 9)) "
            "share bytes");
}

TEST(plan_checker, reports_two_live_blocks_at_one_offset) {
  example e;
  e.made.offsets[1] = 0;
  e.made.height = e.made.lower_bound = e.made.proven_bound = 128;
  EXPECT_EQ(e.fault(),
            "block 0 (100 bytes at 0, live in [0, 5)) and block 1 (60 bytes at 0, live in [3, 9)) share "
            "bytes");
}

TEST(plan_checker, reports_a_block_inside_a_larger_block) {
  example e;
  e.blocks[0].size = 1000;
  e.made.height = e.made.lower_bound = e.made.proven_bound = 1024;
  EXPECT_NE(e.fault().find("share bytes"), std::string::npos) << e.fault();
}

TEST(plan_checker, accepts_reuse_of_bytes_when_an_earlier_block_ends) {
  example e;
  e.blocks[2].lower = 4;
  EXPECT_NE(e.fault(), "");
  e.blocks[0].upper = 4;
  EXPECT_EQ(e.fault(), "");
}

TEST(plan_checker, reports_a_wrong_number_of_offsets) {
  example e;
  e.made.offsets.pop_back();
  EXPECT_EQ(e.fault(), "4 offsets for 5 blocks");
}

TEST(plan_checker, reports_an_offset_that_is_not_aligned) {
  example e;
  e.made.offsets[3] = 32;
  EXPECT_EQ(e.fault(), "block 3 (8 bytes at 32, live in [4, 4)) is not aligned to 64");
  example of_its_own;
  of_its_own.made.offsets[1] = 192;
  EXPECT_EQ(of_its_own.fault(), "block 1 (60 bytes at 192, live in [3, 9)) is not aligned to 128");
}

TEST(plan_checker, reports_a_fixed_block_that_was_moved) {
  example e;
  e.made.offsets[2] = 256;
  EXPECT_EQ(e.fault(), "block 2 (128 bytes at 256, live in [5, 9)) is to be at 0");
}

TEST(plan_checker, reports_a_wrong_height) {
  for (std::size_t height : {128U, 188U, 256U}) {
    example e;
    e.made.height = height;
    EXPECT_EQ(e.fault(), "the height is " + std::to_string(height) + ", and the highest end 188");
  }
}

TEST(plan_checker, reports_a_block_that_ends_above_the_address_space) {
  example e;
  e.made.offsets[1] = ~std::size_t{127};
  e.blocks[1].size = 256;
  EXPECT_NE(e.fault().find("ends above all bytes there are"), std::string::npos) << e.fault();
}

// P.3
TEST(plan_checker, reports_a_wrong_lower_bound) {
  example e;
  e.made.lower_bound = 256;
  EXPECT_EQ(e.fault(), "the height is 192, below the lower bound, 256");
  e.made.lower_bound = 188;
  EXPECT_EQ(e.fault(), "the lower bound, 188, is not rounded up to 64");
  e.made.lower_bound = 128;
  EXPECT_EQ(e.fault(), "the lower bound is 128, and 188 bytes are live at once");
  e.made.lower_bound = 64;
  EXPECT_EQ(e.fault(), "the lower bound is 64, and a fixed block ends at 128");
}

// P.42
TEST(plan_checker, reports_an_inconsistent_proven_bound) {
  example e;
  e.made.optimal = false;
  EXPECT_EQ(e.fault(), "the height is the proven bound, and the plan is not called optimal");
  e.made.proven_bound = 256;
  EXPECT_EQ(e.fault(), "the proven bound is 256, not between the lower bound and the height");
  e.made.proven_bound = 128;
  EXPECT_EQ(e.fault(), "the proven bound is 128, not between the lower bound and the height");
  e.made.lower_bound = e.made.proven_bound = 128;
  e.blocks[0].upper = 3;
  e.blocks[1].upper = 5;
  EXPECT_EQ(e.fault(), "");
  e.made.optimal = true;
  EXPECT_EQ(e.fault(), "the height is above the proven bound, and the plan is called optimal");
}

TEST(plan_checker, checks_plans_with_conflicts) {
  EXPECT_EQ(example_of_conflicts{}.fault(), "");
  example_of_conflicts e;
  e.conflicts.push_back({0, 2});
  EXPECT_EQ(e.fault(), "block 0 (100 bytes at 0) and block 2 (128 bytes at 0) share bytes");
  e.conflicts.back() = {0, 3};
  EXPECT_EQ(e.fault(), "a conflict names a block that is not there");
  e.conflicts.clear();
  EXPECT_EQ(e.fault(), "");
  e.made.lower_bound = 128;
  EXPECT_EQ(e.fault(), "");
  e.blocks[2].offset = {};
  e.made.lower_bound = 64;
  EXPECT_EQ(e.fault(), "the lower bound is 64, below block 0 (100 bytes at 0)");
  e.made.offsets[1] = 64;
  EXPECT_EQ(e.fault(), "block 1 (60 bytes at 64) is not aligned to 128");
}

// P.1
TEST(plan_checker, agrees_with_a_check_of_all_pairs_on_random_plans) {
  std::mt19937_64 random{9};
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  std::size_t sound = 0;
  constexpr std::size_t plans = 20'000;
  for (std::size_t round = 0; round < plans; ++round) {
    std::vector<lifetime> blocks;
    std::vector<plan_conflict> conflicts;
    std::vector<plan_block> same_blocks;
    planner::result made;
    for (std::size_t i = 2 + below(5); i > 0; --i) {
      const std::size_t lower = below(8), n = blocks.size();
      blocks.push_back({.lower = lower, .upper = lower + below(6), .size = below(6)});
      same_blocks.push_back({.size = blocks[n].size});
      made.offsets.push_back(below(24));
      made.height = std::max(made.height, made.offsets[n] + blocks[n].size);
      for (std::size_t j = 0; j < n; ++j) {
        if (std::max(blocks[j].lower, lower) < std::min(blocks[j].upper, blocks[n].upper))
          conflicts.push_back({n, j});
      }
    }
    made.lower_bound = made.proven_bound = made.height;
    made.optimal = true;
    const bool is_sound = plan_fault(made, same_blocks, conflicts, 1).empty();
    ASSERT_EQ(plan_fault(made, blocks, 1).empty(), is_sound) << plan_fault(made, blocks, 1);
    sound += is_sound ? 1 : 0;
  }
  EXPECT_GT(sound, plans / 10);
  EXPECT_LT(sound, plans * 9 / 10);
}

}  // namespace
}  // namespace tidemark::test
