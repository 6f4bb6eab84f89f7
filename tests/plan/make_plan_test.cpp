// SPDX-License-Identifier: Apache-2.0
// Strategy: the checker, which does not know how a plan was made, checks every plan. Random blocks, some
// fixed or with larger alignment; cases of known height; each refusal once; and plans that are wrong in one
// way each, for `require_valid`.
#include <gtest/gtest.h>

#include <tidemark/plan/make_plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "caught.hpp"
#include "plan_checker.hpp"
#include "plan_file.hpp"
#include "recorded_trace.hpp"
#include "step_lifetimes.hpp"

namespace tidemark::test {
namespace {

using blocks = std::vector<lifetime>;

template <class Call>
std::string refusal(Call call) {
  return message_or<std::invalid_argument>("no refusal", call);
}

std::string refusal_of(blocks const& asked, std::size_t alignment = 1) {
  return refusal([&] { (void)make_plan(asked, alignment); });
}

struct kind {
  std::size_t count, moments;
  bool aligned = false, fixed = false, throughout = false;
};

/// Fixed blocks lie at their offsets in a plan of the same blocks, or higher, so that they do not overlap.
blocks random_blocks(std::mt19937_64& random, kind of) {
  blocks made;
  for (std::size_t i = 0; i < of.count; ++i) {
    const std::uint64_t lower = random() % of.moments;
    made.push_back({.lower = lower, .upper = lower + random() % 20, .size = random() % 1000});
    if (of.aligned && random() % 3 == 0) made.back().alignment = std::size_t{1} << random() % 11;
    if (of.throughout && random() % 8 == 0) made.back().lower = 0, made.back().upper = of.moments + 20;
  }
  const memory_plan plan = make_plan(made, 1);
  const std::size_t higher = random() % 2 * 2048;
  for (std::size_t i = 0; i < made.size(); ++i) {
    const bool is_throughout = made[i].upper == of.moments + 20;
    if ((of.fixed && random() % 4 == 0) || (of.throughout && is_throughout))
      made[i].offset = plan.offsets[i] + higher;
  }
  return made;
}

TEST(make_plan, returns_sound_plans_of_random_blocks) {
  std::mt19937_64 random{1};
  for (std::size_t round = 0; round < 400; ++round) {
    const blocks asked = random_blocks(random, {.count = round % 200,
                                                .moments = 40 + round,
                                                .aligned = round % 2 == 0,
                                                .fixed = round % 3 == 0,
                                                .throughout = round % 5 == 0});
    const memory_plan made = make_plan(asked, 1);
    ASSERT_EQ(plan_fault(made, asked, 1), "") << round;
    ASSERT_EQ(refusal([&] { require_valid(made, asked, 1); }), "no refusal") << round;
    ASSERT_EQ(make_plan(asked, 1), made) << round;
  }
}

TEST(make_plan, returns_sound_plans_of_many_blocks) {
  std::mt19937_64 random{2};
  for (const bool fixed : {false, true}) {
    for (const bool throughout : {false, true}) {
      const blocks asked = random_blocks(
          random,
          {.count = 6000, .moments = 3000, .aligned = true, .fixed = fixed, .throughout = throughout});
      EXPECT_EQ(plan_fault(make_plan(asked, 1), asked, 1), "");
    }
  }
}

TEST(make_plan, fits_recorded_steps_into_their_bound) {
  const std::string traces = TIDEMARK_TRACES "/";
  for (std::string const name : {"torch_gpt", "torch_mlp"}) {
    const tools::recorded_trace trace = tools::read_trace(traces + name + ".csv");
    for (tools::trace_step const& step : tools::steps_in_order(trace)) {
      const memory_plan made = make_plan(tools::lifetimes_of(trace, step).within.blocks);
      EXPECT_EQ(made.height, made.lower_bound) << name << ' ' << step.first_event;
    }
  }
  const memory_plan made = make_plan(tools::read_lifetimes(TIDEMARK_PLANS "/resnet50.csv").blocks, 1);
  EXPECT_EQ(made.height, made.lower_bound);
}

TEST(make_plan, fits_nested_lifetimes_into_their_bound) {
  std::mt19937_64 random{5};
  for (std::size_t round = 0; round < 100; ++round) {
    blocks asked;
    std::vector<std::size_t> open;  // blocks that still live, as a stack
    std::size_t moment = 0;
    for (; asked.size() < 100; ++moment) {
      if (!open.empty() && random() % 2 == 0) {
        asked[open.back()].upper = moment;
        open.pop_back();
      } else {
        open.push_back(asked.size());
        asked.push_back({.lower = moment, .size = 1 + random() % 1000});
      }
    }
    for (; !open.empty(); open.pop_back()) asked[open.back()].upper = moment++;
    const memory_plan made = make_plan(asked, 1);
    EXPECT_EQ(made.height, made.lower_bound) << round;
  }
}

TEST(make_plan, reuses_bytes_of_blocks_that_are_never_live_together) {
  blocks asked;
  for (std::size_t i = 0; i < 100; ++i) asked.push_back({.lower = i, .upper = i + 1, .size = 100 + i});
  const memory_plan made = make_plan(asked, 1);
  EXPECT_EQ(made.offsets, std::vector<std::size_t>(100, 0));
  EXPECT_EQ(made.height, 199u);
}

TEST(make_plan, reaches_the_bound_for_blocks_of_one_size) {
  std::mt19937_64 random{3};
  for (const std::size_t count : {1000u, 5000u}) {
    blocks asked = random_blocks(random, {.count = count, .moments = 500});
    for (lifetime& block : asked) block.size = 48;
    const memory_plan made = make_plan(asked, 1);
    EXPECT_EQ(made.height, made.lower_bound);
  }
}

TEST(make_plan, places_blocks_around_a_permanently_fixed_block) {
  const blocks asked{{.lower = 0, .upper = 9, .size = 64, .offset = 128},
                     {.lower = 1, .upper = 2, .size = 128},
                     {.lower = 1, .upper = 3, .size = 256},
                     {.lower = 2, .upper = 4, .size = 128}};
  const memory_plan made = make_plan(asked, 64);
  EXPECT_EQ(made.offsets, (std::vector<std::size_t>{128, 0, 192, 0}));
}

TEST(make_plan, holds_blocks_without_bytes_or_life_at_0) {
  const memory_plan made =
      make_plan(blocks{{.lower = 3, .upper = 3, .size = 100}, {.lower = 0, .upper = 9}}, 1);
  EXPECT_EQ(made.offsets, (std::vector<std::size_t>{0, 0}));
  EXPECT_EQ(made.height, 100u);
  EXPECT_EQ(make_plan(blocks{}).height, 0u);
}

TEST(make_plan, names_an_alignment_that_is_not_a_power_of_two) {
  EXPECT_EQ(refusal_of(blocks{{0, 1, 8}, {0, 1, 8, 24}}),
            "make_plan: block 1 has alignment 24, which is not a power of two");
  EXPECT_EQ(refusal_of(blocks{{0, 1, 8, 0}}),
            "make_plan: block 0 has alignment 0, which is not a power of two");
  EXPECT_EQ(refusal_of(blocks{}, 48), "make_plan: the alignment of the plan, 48, is not a power of two");
}

// P.10
TEST(make_plan, names_a_lifetime_that_ends_before_it_begins) {
  EXPECT_EQ(refusal_of(blocks{{0, 1, 8}, {0, 1, 8}, {7, 6, 8}}),
            "make_plan: block 2 ends at 6, before it begins at 7");
}

TEST(make_plan, names_a_fixed_offset_that_is_not_aligned) {
  EXPECT_EQ(refusal_of(blocks{{0, 1, 8, 16, 24}}),
            "make_plan: block 0 is fixed at offset 24, which is not a multiple of its alignment 16");
  EXPECT_EQ(refusal_of(blocks{{0, 1, 8, 16, 48}}, 64),
            "make_plan: block 0 is fixed at offset 48, which is not a multiple of its alignment 64");
}

// P.10
TEST(make_plan, names_two_fixed_blocks_that_share_bytes) {
  const std::string said =
      "make_plan: block 1 and block 3 are in conflict, and their fixed offsets make them share bytes";
  EXPECT_EQ(refusal_of(blocks{{0, 9, 8, 1, 0}, {0, 9, 8, 1, 16}, {9, 12, 8, 1, 16}, {5, 10, 8, 1, 23}}),
            said);
  EXPECT_EQ(refusal_of(blocks{{0, 9, 8, 1, 0}, {5, 9, 8, 1, 23}, {9, 12, 8, 1, 16}, {0, 10, 8, 1, 16}}),
            said);
}

TEST(make_plan, accepts_fixed_blocks_that_touch) {
  EXPECT_EQ(refusal_of(blocks{{0, 9, 8, 1, 0}, {0, 9, 8, 1, 8}, {9, 12, 8, 1, 4}}), "no refusal");
}

TEST(make_plan, names_the_block_that_makes_the_sum_too_large) {
  constexpr std::size_t quarter = std::size_t{1} << 60;
  const std::string end =
      " bytes makes more than 2^62 bytes of the blocks together, each rounded up to its alignment";
  const lifetime large{0, 1, quarter};
  EXPECT_EQ(refusal_of(blocks{large, large, large, large}), "no refusal");
  EXPECT_EQ(refusal_of(blocks{large, large, large, large, {5, 6, 1}}), "make_plan: block 4 of 1" + end);
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(refusal_of(blocks{{0, 1, most}}, 256), "make_plan: block 0 of " + std::to_string(most) + end);
  EXPECT_EQ(refusal_of(blocks{{0, 1, 1, std::size_t{1} << 63}}), "make_plan: block 0 of 1" + end);
}

TEST(make_plan, names_a_fixed_block_that_ends_too_high) {
  constexpr std::size_t half = std::size_t{1} << 61;
  EXPECT_EQ(refusal_of(blocks{{0, 1, half, 1, half}}), "no refusal");
  EXPECT_EQ(
      refusal_of(blocks{{0, 1, half + 1, 1, half}}),
      "make_plan: block 0 is fixed at offset 2305843009213693952 and has 2305843009213693953 bytes, which "
      "end above 2^62");
}

class require_valid_of : public testing::Test {
 protected:
  std::string refusal_of(memory_plan const& tested) {
    return refusal([&] { require_valid(tested, asked, 16); });
  }
  blocks asked{{.lower = 0, .upper = 2, .size = 20}, {.lower = 1, .upper = 3, .size = 16, .alignment = 64}};
  memory_plan plan{.offsets = {0, 64}, .height = 80, .lower_bound = 0};
};

TEST_F(require_valid_of, a_plan_accepts_a_sound_plan) { EXPECT_EQ(refusal_of(plan), "no refusal"); }

TEST_F(require_valid_of, a_plan_rejects_another_number_of_offsets) {
  plan.offsets.pop_back();
  EXPECT_EQ(refusal_of(plan), "require_valid: the plan has 1 offsets for 2 blocks");
}

TEST_F(require_valid_of, a_plan_rejects_an_offset_that_is_not_aligned) {
  plan.offsets[1] = 80;
  EXPECT_EQ(refusal_of(plan), "require_valid: block 1 is not at a multiple of its alignment");
}

TEST_F(require_valid_of, a_plan_rejects_a_fixed_block_elsewhere) {
  asked[0].offset = 16;
  EXPECT_EQ(refusal_of(plan), "require_valid: block 0 is not where it is fixed");
}

TEST_F(require_valid_of, a_plan_rejects_a_block_above_the_height) {
  plan.height = 79;
  EXPECT_EQ(refusal_of(plan), "require_valid: block 1 is not below the height");
  plan.offsets[1] = std::numeric_limits<std::size_t>::max() - 63;
  EXPECT_EQ(refusal_of(plan), "require_valid: block 1 is not below the height");
}

TEST_F(require_valid_of, a_plan_rejects_blocks_that_share_bytes) {
  plan.offsets = {48, 64};
  EXPECT_EQ(refusal_of(plan), "require_valid: block 0 and block 1 are in conflict and share bytes");
}

}  // namespace
}  // namespace tidemark::test
