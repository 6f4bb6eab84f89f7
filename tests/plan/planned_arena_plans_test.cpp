// SPDX-License-Identifier: Apache-2.0
// Strategy: which plan a step runs by, and when it is planned anew: steps that change, alternate, begin alike
// or never repeat; blocks that outlive their steps, of which as many live at once as a test says; plans of
// yesterday.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/core/virtual_memory.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>

#include "played_steps.hpp"
#include "recording_supply.hpp"

namespace tidemark::test {
namespace {

class planned_arena_plans : public testing::Test {
 protected:
  std::uint64_t step(std::string const& text) { return steps_.step(text); }
  planned_arena_stats stats() { return memory_.stats(); }
  /// Places of the request in the plan that was used last.
  std::size_t slots(std::size_t request = 0) {
    const step_plan plan = memory_.plans().front();
    return static_cast<std::size_t>(std::ranges::count(plan.blocks, request, &planned_block::request));
  }
  /// Steps of two letters in turn: block `outer` of each lives on until it goes back in the next but `depth -
  /// 1`.
  std::vector<std::uint64_t> run_outliving(std::size_t steps, std::size_t depth, bool frees_first) {
    std::vector<std::uint64_t> from_fallback;
    for (std::size_t i = 0; i < steps; ++i) {
      const std::string oldest = "x" + std::to_string(i - depth);
      const std::string frees = steps_.holds(oldest) ? " -" + oldest + " " : " ";
      const std::string takes = " x" + std::to_string(i) + "=1000 ";
      from_fallback.push_back(step("a=500" + (frees_first ? frees + takes : takes + frees) + "-a b=600 -b"));
    }
    return from_fallback;
  }
  using counts = std::vector<std::uint64_t>;

  planned_arena memory_;
  played_steps<planned_arena> steps_{memory_};
};

TEST_F(planned_arena_plans, give_a_block_that_dies_in_the_next_step_before_it_comes_again_one_place) {
  EXPECT_EQ(run_outliving(6, 1, true), (counts{3, 0, 0, 0, 0, 0}));
  EXPECT_EQ(slots(1), 1u);
}

TEST_F(planned_arena_plans, give_a_block_that_dies_in_the_next_step_after_it_came_again_two_places) {
  EXPECT_EQ(run_outliving(6, 1, false), (counts{3, 0, 0, 0, 0, 0}));
  EXPECT_EQ(slots(1), 2u);
  EXPECT_EQ(stats().height_bytes, 2 * 1024u + 768u) << "a and b are not live at once";
}

TEST_F(planned_arena_plans, give_a_block_as_many_places_as_are_live_at_once) {
  EXPECT_EQ(run_outliving(9, 2, false), (counts{3, 0, 0, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(slots(1), 3u);
}

TEST_F(planned_arena_plans, give_a_block_no_more_places_than_slots_max) {
  const counts counted = run_outliving(24, 5, false);
  EXPECT_EQ(slots(1), memory_.options().max_slots);
  EXPECT_EQ(slots(0), 1u);
  EXPECT_EQ(std::accumulate(counted.end() - 6, counted.end(), std::uint64_t{0}), 2u)
      << "of 6 that are live at once";
}

TEST(planned_arena_options, one_slot_is_no_more_than_one) {
  planned_arena_options options;
  options.max_slots = 1;
  planned_arena memory{options};
  played_steps<planned_arena> steps{memory};
  steps.step("x0=100");
  steps.step("y=5000 x1=100 -x0 -y");  // another step, whose x lives with that of the one before
  EXPECT_EQ(memory.stats().plans_made, 2u);
  for (int i = 2; i < 6; ++i)
    steps.step("y=5000 x" + std::to_string(i) + "=100 -y -x" + std::to_string(i - 1));
  for (step_plan const& plan : memory.plans()) EXPECT_EQ(plan.blocks.size(), plan.requests);
}

TEST_F(planned_arena_plans, know_no_places_of_their_own_for_blocks_that_stay_within_steps_again) {
  run_outliving(4, 1, false);
  steps_.play("-x3");
  for (int i = 0; i < 4; ++i) step("a=500 x=1000 -x -a b=600 -b");
  EXPECT_EQ(step("a=500 x=1000 -x -a b=600 -b"), 0u);
  EXPECT_EQ(stats().height_bytes, 512u + 1024u);
  EXPECT_EQ(memory_.plans().front().blocks.size(), 3u);
}

TEST_F(planned_arena_plans, are_made_once_when_blocks_stay_within_steps_that_are_smaller_too) {
  step("a=500 x=1000 -a");
  steps_.play("-x");
  for (int i = 0; i < 20; ++i) step("a=500 x=900 -x -a");
  const std::uint64_t made = stats().plans_made;
  EXPECT_LE(made, 3u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(step("a=500 x=900 -x -a"), 0u);
  EXPECT_EQ(stats().plans_made, made);
  EXPECT_EQ(stats().height_bytes, 512u + 1024u);
}

TEST_F(planned_arena_plans, have_no_more_slots_for_having_wanted_them_in_steps_that_gave_up) {
  const std::string misses =
      " a=9000 b=9000 c=9000 d=9000 e=9000 f=9000 g=9000 h=9000 i=9000 j=9000 k=9000 l=9000 m=9000 "
      "n=9000 o=9000 p=9000 -a -b -c -d -e -f -g -h -i -j -k -l -m -n -o -p";
  step("x0=100");
  for (int i = 1; i < 10; ++i)
    step("x" + std::to_string(i) + "=100" + misses);  // x is wanted, and never goes
  for (int i = 0; i < 10; ++i) steps_.play("-x" + std::to_string(i));
  for (int i = 0; i < 10; ++i) {
    step("x=100");
    steps_.play("-x");
    for (step_plan const& plan : memory_.plans()) {
      for (std::size_t request = 0; request < plan.requests; ++request) {
        EXPECT_LE(std::ranges::count(plan.blocks, request, &planned_block::request), 4);
      }
    }
  }
}

TEST(planned_arena_options, so_many_misses_and_the_step_is_planned_anew) {
  planned_arena_options options;
  options.max_misses = 3;
  planned_arena memory{options};
  played_steps<planned_arena> steps{memory};
  const std::string old = "a=100 b=100 -a -b", changed = "a=100 b=3000 -a -b";
  steps.step(old);
  EXPECT_EQ(steps.step(changed), 1u);
  EXPECT_EQ(steps.step(changed), 1u);
  EXPECT_EQ(memory.stats().plans_made, 1u);
  EXPECT_EQ(steps.step(changed), 1u);
  EXPECT_EQ(memory.stats().misses, 3u);
  EXPECT_EQ(memory.stats().plans_made, 2u);
  EXPECT_EQ(steps.step(changed), 0u);
  EXPECT_EQ(steps.step(old), 0u) << "which fits there, too";
}

TEST(planned_arena_options, a_plan_that_is_given_up_serves_nothing_more_in_its_step) {
  planned_arena_options options;
  options.max_misses = 1;
  planned_arena memory{options};
  played_steps<planned_arena> steps{memory};
  steps.step("a=100 b=200 c=300 -a -b -c");
  EXPECT_EQ(steps.step("a=100 x=900 b=200 c=300 -a -x -b -c"), 3u)
      << "x is missed; b and c fit, but come late";
}

TEST(planned_arena_options, memory_goes_back_when_a_plan_is_given_up) {
  planned_arena_options options;
  options.max_misses = 1;
  planned_arena memory{options};
  played_steps<planned_arena> steps{memory};
  steps.step("a=100 b=3000000 -a -b");
  steps.step("a=100 b=3000000 -a -b");
  EXPECT_GT(memory.stats().committed_bytes, 3'000'000u);
  const planned_arena::step here{memory};
  steps.play("a=100 -a c=4000000");
  EXPECT_EQ(memory.stats().misses, 1u);
  EXPECT_EQ(memory.stats().committed_bytes, 0u);
}

TEST(planned_arena_options, memory_goes_back_after_the_step_where_blocks_were_in_it) {
  planned_arena_options options;
  options.max_misses = 1;
  planned_arena memory{options};
  played_steps<planned_arena> steps{memory};
  steps.step("a=100 b=3000000 -a -b");
  steps.step("a=100 b=3000000 -a -b");
  {
    const planned_arena::step here{memory};
    steps.play("a=100 c=4000000 -a");
    EXPECT_GT(memory.stats().committed_bytes, 0u) << "a was there when the plan was given up";
  }
  EXPECT_EQ(memory.stats().committed_bytes, 0u);
}

TEST(planned_arena_options, a_step_that_went_over_to_another_plan_is_planned_as_a_whole) {
  planned_arena_options options;
  options.max_misses = 2;
  planned_arena memory{options};
  played_steps<planned_arena> steps{memory};
  for (char const* text : {"a=100 b=200 -a -b c=300 -c", "a=100 b=200 -a -b d=3000 -d"}) {
    planned_arena recorder;
    played_steps<planned_arena>{recorder}.step(text);
    memory.use(recorder.plans().front());
  }
  EXPECT_EQ(steps.step("a=100 b=200 -a -b d=3000 -d x=5000 y=6000 -x z=7000 -y -z"), 3u);
  const step_plan made = memory.plans().front();
  ASSERT_EQ(made.requests, 6u);
  EXPECT_EQ(made.blocks[0].life.size, 100u);
  EXPECT_EQ(made.blocks[2].life.size, 3000u);
  EXPECT_EQ(made.blocks[5].life.size, 7000u);
  EXPECT_EQ(steps.step("a=100 b=200 -a -b d=3000 -d x=5000 y=6000 -x z=7000 -y -z"), 0u);
}

TEST_F(planned_arena_plans, of_steps_that_alternate_each_find_theirs) {
  const std::string one = "a=100 b=200 -a -b", other = "c=5000 d=6000 e=7000 -c -d -e";
  for (int i = 0; i < 2; ++i) {
    step(one);
    step(other);
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(step(one), 0u);
    EXPECT_EQ(step(other), 0u);
  }
  EXPECT_EQ(stats().plans, 2u);
  EXPECT_EQ(stats().plans_made, 2u);
}

TEST(planned_arena_options, steps_that_begin_alike_each_find_their_plan) {
  planned_arena_options options;
  options.max_misses = 1;
  planned_arena memory{options};
  played_steps<planned_arena> steps{memory};
  const std::string one = "a=100 b=200 c=300 -a -b -c d=400 -d",
                    other = "a=100 b=200 c=3000 -a -b -c d=50 -d";
  for (int i = 0; i < 3; ++i) {
    steps.step(one);
    steps.step(other);
  }
  const std::uint64_t made = memory.stats().plans_made;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(steps.step(one), 0u);
    EXPECT_EQ(steps.step(other), 0u);
  }
  EXPECT_EQ(memory.stats().plans_made, made);
}

TEST(planned_arena_options, no_more_plans_than_plans_max_and_the_one_unused_for_longest_goes) {
  planned_arena_options options;
  options.max_plans = 2;
  planned_arena memory{options};
  played_steps<planned_arena> steps{memory};
  steps.step("a=100 -a");
  steps.step("b=1000 -b");
  EXPECT_EQ(steps.step("a=100 -a"), 0u);
  steps.step("c=10000 -c");  // in place of b's
  EXPECT_EQ(memory.stats().plans, 2u);
  EXPECT_EQ(steps.step("a=100 -a"), 0u);
  EXPECT_EQ(steps.step("c=10000 -c"), 0u);
  EXPECT_EQ(memory.plans()[0].blocks[0].life.size, 10'000u) << "used last";
  EXPECT_EQ(memory.plans()[1].blocks[0].life.size, 100u);
}

std::uint64_t plans_of_steps_that_never_repeat(std::size_t requests, int steps) {
  planned_arena memory;
  std::mt19937_64 random{requests};
  for (int i = 0; i < steps; ++i) {
    const planned_arena::step here{memory};
    for (std::size_t n = 0; n < requests; ++n) {
      const std::size_t bytes = random() % 10'000;
      memory.deallocate(memory.allocate(bytes), bytes);
    }
  }
  return memory.stats().plans_made;
}

TEST_F(planned_arena_plans, of_steps_that_never_repeat_are_made_seldom) {
  EXPECT_LT(plans_of_steps_that_never_repeat(100, 1000), 60u);
  EXPECT_LT(plans_of_steps_that_never_repeat(15, 1000), 100u);
  EXPECT_LT(plans_of_steps_that_never_repeat(10, 1000), 150u);
}

TEST_F(planned_arena_plans, that_cannot_be_laid_are_not_made_again_in_each_step) {
  recording_os os;
  planned_arena memory{planned_arena_options{}, virtual_memory_options{}, os};
  played_steps<planned_arena> steps{memory};
  const std::string small = "a=100 -a", large = "b=5000000 -b";
  steps.step(small);
  steps.step(large);
  os.commit_limit_bytes = 4 * MiB;
  for (int i = 0; i < 100; ++i) {
    os.committed_bytes = 0;  // what was decommitted can be committed again
    EXPECT_EQ(steps.step(small), 0u);
    EXPECT_EQ(steps.step(large), 1u);
  }
  EXPECT_LT(memory.stats().plans_made, 10u);
}

TEST_F(planned_arena_plans, of_yesterday_serve_from_the_first_step_on) {
  const std::string text = "a=1000 b=300 -a c=500 -b -c";
  step(text);
  planned_arena today;
  today.use(memory_.plans().front());
  played_steps<planned_arena> steps{today};
  EXPECT_EQ(steps.step(text), 0u);
  EXPECT_EQ(today.stats().plans_made, 0u);
}

TEST_F(planned_arena_plans, of_other_steps_are_not_used) {
  step("a=1000 b=300 -a -b");
  planned_arena today;
  today.use(memory_.plans().front());
  played_steps<planned_arena> steps{today};
  EXPECT_EQ(steps.step("a=5000 -a"), 1u);
  EXPECT_EQ(steps.step("a=5000 -a"), 0u) << "by its own";
  EXPECT_EQ(today.stats().plans, 2u);
}

TEST_F(planned_arena_plans, that_are_not_valid_are_refused_with_nothing_changed) {
  step("a=1000 b=300 -a -b");
  const auto refusal = [&](auto change) -> std::string {
    step_plan plan = memory_.plans().front();
    change(plan);
    try {
      memory_.use(plan);
    } catch (std::invalid_argument const& error) {
      EXPECT_EQ(stats().plans, 1u);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal([](step_plan& plan) { plan.blocks[1].life.offset = plan.blocks[0].life.offset; }),
            "step_plan: request 1: not apart from each block that is live with it");
  EXPECT_EQ(refusal([](step_plan& plan) { plan.height = 0; }),
            "step_plan: request 0: not offset + size <= height");
  EXPECT_EQ(refusal([](step_plan& plan) { plan.lower_bound = plan.height + 1; }),
            "step_plan: not lower_bound <= height");
  EXPECT_EQ(refusal([](step_plan& plan) { plan.alignment = 8; }),
            "planned_arena 'planned_arena': a plan whose blocks are aligned to less than 16 bytes");
  EXPECT_EQ(step("a=1000 b=300 -a -b"), 0u);
}

TEST_F(planned_arena_plans, are_not_taken_while_a_step_is_open) {
  step("a=1000 -a");
  const planned_arena::step here{memory_};
  EXPECT_THROW(memory_.use(memory_.plans().front()), std::logic_error);
  EXPECT_EQ(stats().plans, 1u);
}

TEST_F(planned_arena_plans, of_no_requests_are_not_kept) {
  memory_.use(step_plan{});
  EXPECT_EQ(stats().plans, 0u);
}

TEST_F(planned_arena_plans, whose_places_were_left_out_are_looked_through_once_each) {
  // Each place lies over halves of the two before it: there are more ways down than anybody could walk.
  constexpr std::size_t requests = 200;
  step_plan plan{.blocks = {}, .requests = requests, .alignment = 256, .height = 768};
  for (std::size_t i = 0; i < requests; ++i) {
    const std::size_t offset = i % 2 == 0 ? 0 : 256;
    plan.blocks.push_back(
        {.request = i, .life = {.lower = i, .upper = i + 1, .size = 512, .offset = offset}});
  }
  planned_arena_options options;
  options.max_misses = requests;
  planned_arena memory{options};
  memory.use(plan);
  const planned_arena::step here{memory};
  std::vector<void*> blocks(requests);
  for (void*& block : blocks) {
    if (&block == &blocks.back()) memory.deallocate(std::exchange(blocks.front(), nullptr), 512);
    block = memory.allocate(512);
  }
  EXPECT_EQ(memory.stats().misses, requests - 2)
      << "as long as the first one is there, which is below them all";
  for (void* const block : blocks) memory.deallocate(block, 512);
}

TEST_F(planned_arena_plans, lie_beside_a_block_that_is_kept_unexpectedly) {
  planned_arena memory;
  void* kept = nullptr;
  const auto run = [&](bool keeps) {
    const planned_arena::step step{memory};
    void* const x = memory.allocate(100'000);
    void* const h = memory.allocate(50'000);
    void* const w = memory.allocate(20'000);
    memory.deallocate(h, 50'000);
    void* const g = memory.allocate(50'000);
    void* const y = memory.allocate(30'000);
    if (keeps) kept = w;
    else memory.deallocate(w, 20'000);
    memory.deallocate(x, 100'000);
    void* const z = memory.allocate(90'000);
    for (auto const [block, bytes] : {std::pair{g, 50'000}, {y, 30'000}, {z, 90'000}})
      memory.deallocate(block, static_cast<std::size_t>(bytes));
  };
  for (int i = 0; i < 10; ++i) run(i == 9);
  for (int i = 0; i < 40; ++i) run(false);
  const std::uint64_t planned_before = memory.stats().planned_steps, made = memory.stats().plans_made;
  for (int i = 0; i < 100; ++i) run(false);
  EXPECT_EQ(memory.stats().planned_steps, planned_before + 100);
  EXPECT_EQ(memory.stats().plans_made, made);
  memory.check_invariants();
  memory.deallocate(kept, 20'000);
  run(false);
  EXPECT_EQ(memory.stats().planned_steps, planned_before + 101);
}

TEST_F(planned_arena_plans, forgive_a_miss_for_each_step_without_one) {
  planned_arena memory;
  const auto run = [&](std::size_t bytes) {
    const planned_arena::step step{memory};
    void* const first = memory.allocate(1000);
    memory.deallocate(memory.allocate(bytes), bytes);
    for (int i = 0; i < 8; ++i) memory.deallocate(memory.allocate(100), 100);
    memory.deallocate(first, 1000);
  };
  for (int i = 0; i < 200; ++i) run(i % 4 == 3 ? 9000 : 500);
  EXPECT_EQ(memory.stats().plans_made, 1u);
  EXPECT_EQ(memory.stats().misses, 50u);
}

TEST_F(planned_arena_plans, are_made_of_a_kind_of_step_that_is_not_like_its_plan_and_comes_again_and_again) {
  planned_arena memory;
  const auto run = [&](std::size_t bytes) {
    const planned_arena::step step{memory};
    void* const first = memory.allocate(1000);
    memory.deallocate(memory.allocate(bytes), bytes);
    memory.deallocate(first, 1000);
  };
  for (int i = 0; i < 200; ++i) run(i % 4 == 3 ? 9000 : 500);
  EXPECT_EQ(memory.stats().plans_made, 2u);
  EXPECT_EQ(memory.stats().misses, memory.options().max_misses);
}

TEST(planned_arena_options, what_the_progress_throws_ends_the_planning_and_nothing_else) {
  planned_arena_options options;
  options.planning.on_progress = [](plan_progress const&) { throw 5; };
  planned_arena memory{options};
  for (int i = 0; i < 3; ++i) {
    const planned_arena::step step{memory};
    memory.deallocate(memory.allocate(1000), 1000);
  }
  EXPECT_EQ(memory.stats().plans_made, 0u);
  EXPECT_EQ(memory.stats().fallback_allocations, 3u);
}

}  // namespace
}  // namespace tidemark::test
