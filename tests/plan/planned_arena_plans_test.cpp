// SPDX-License-Identifier: Apache-2.0
// Strategy: the plan that a step runs by, and the times of replanning: kinds of steps; steps that change;
// blocks that outlive their steps, with a given number live at once; plans of earlier runs.
// planned_learning_test.cpp tests how plans learn sizes and numbers of requests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/core/virtual_memory.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>

#include "caught.hpp"
#include "played_steps.hpp"
#include "recording_supply.hpp"

namespace tidemark::test {
namespace {

class planned_arena_plans : public played_arena {
 protected:
  /// Places of the request in the plan that was used last.
  std::size_t slots(std::size_t request = 0) {
    const step_plan plan = memory_.plans().front();
    return static_cast<std::size_t>(std::ranges::count(plan.blocks, request, &planned_block::request));
  }
  /// Runs steps that each allocate a block, which is freed `depth` steps later, before or after the new block
  /// is allocated. @return the requests of each step from the fallback
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
};

// P.20
TEST_F(planned_arena_plans, give_one_slot_to_a_block_freed_before_its_next_request) {
  EXPECT_EQ(run_outliving(6, 1, true), (counts{3, 0, 0, 0, 0, 0}));
  EXPECT_EQ(slots(1), 1u);
}

// P.20
TEST_F(planned_arena_plans, give_a_request_as_many_slots_as_are_live_at_once) {
  const counts counted = run_outliving(12, 2, false);
  EXPECT_LE(std::accumulate(counted.begin(), counted.end(), std::uint64_t{0}), 3u + 2u);
  EXPECT_EQ(std::accumulate(counted.end() - 6, counted.end(), std::uint64_t{0}), 0u);
  EXPECT_EQ(slots(1), 3u);
}

TEST_F(planned_arena_plans, give_a_request_at_most_max_slots) {
  const counts counted = run_outliving(24, 5, false);
  EXPECT_EQ(slots(1), memory_.options().max_slots);
  EXPECT_EQ(slots(0), 1u);
  EXPECT_EQ(std::accumulate(counted.end() - 6, counted.end(), std::uint64_t{0}), 2u)
      << "6 blocks are live at once, and 2 of them have no slot";
}

TEST(planned_arena_options, max_slots_of_1_gives_each_request_one_slot) {
  planned_arena memory{{.max_slots = 1}};
  played_steps<planned_arena> steps{memory};
  steps.step("x0=100");
  steps.step("y=5000 x1=100 -x0 -y");  // another step, whose x lives with that of the one before
  EXPECT_EQ(memory.stats().plans_made, 2u);
  for (int i = 2; i < 6; ++i)
    steps.step("y=5000 x" + std::to_string(i) + "=100 -y -x" + std::to_string(i - 1));
  for (step_plan const& plan : memory.plans()) EXPECT_EQ(plan.blocks.size(), plan.requests);
}

TEST_F(planned_arena_plans, drop_extra_slots_when_blocks_end_within_their_step) {
  run_outliving(4, 1, false);
  steps_.play("-x3");
  for (int i = 0; i < 4; ++i) step("a=500 x=1000 -x -a b=600 -b");
  EXPECT_EQ(step("a=500 x=1000 -x -a b=600 -b"), 0u);
  EXPECT_EQ(stats().height_bytes, 512u + 1024u);
  EXPECT_EQ(memory_.plans().front().blocks.size(), 3u);
}

TEST_F(planned_arena_plans, are_made_once_when_blocks_become_shorter_lived_and_smaller) {
  step("a=500 x=1000 -a");
  steps_.play("-x");
  for (int i = 0; i < 20; ++i) step("a=500 x=900 -x -a");
  const std::uint64_t made = stats().plans_made;
  EXPECT_LE(made, 3u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(step("a=500 x=900 -x -a"), 0u);
  EXPECT_EQ(stats().plans_made, made);
  EXPECT_EQ(stats().height_bytes, 512u + 1024u);
}

TEST_F(planned_arena_plans, add_no_slots_for_steps_that_dropped_their_plan) {
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

// P.21
TEST_F(planned_arena_plans, are_kept_separately_for_each_kind) {
  const std::string one = "a=100 b=200 -a -b", other = "a=100 b=6000 c=7000 -a -b -c";
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(step(one, 128), i == 0 ? 2u : 0u);
    EXPECT_EQ(step(other, 96), i == 0 ? 3u : 0u);
  }
  EXPECT_EQ(stats().plans, 2u);
  EXPECT_EQ(stats().plans_made, 2u);
  EXPECT_EQ(stats().unplanned_steps, 2u);
  EXPECT_EQ(stats().planned_steps, 10u);
}

TEST_F(planned_arena_plans, accept_kinds_of_any_integer_type) {
  const planned_arena::step of_default{memory_};
  EXPECT_THROW(const planned_arena::step inner(memory_, std::size_t{128}), std::logic_error);
  EXPECT_THROW(const planned_arena::step inner(memory_, -1LL), std::logic_error);
}

TEST(planned_arena_plans_of_kinds, are_made_once_their_kind_comes_again) {
  planned_arena memory{{.max_kinds = 3}};
  played_steps<planned_arena> steps{memory};
  for (int kind = 0; kind < 3; ++kind) steps.step("a=100 b=200 -a -b", kind);
  EXPECT_EQ(memory.stats().plans_made, 1u) << "only the plan of the first kind";
  EXPECT_EQ(memory.plans().size(), 3u) << "the call plans the kinds that ran once";
  EXPECT_EQ(steps.step("a=100 b=200 -a -b", 2), 0u);
  EXPECT_EQ(memory.stats().plans_made, 2u);
}

TEST(planned_arena_plans_of_kinds, are_not_made_if_more_kinds_come_in_turn_than_are_kept) {
  planned_arena memory{{.max_kinds = 3}};
  played_steps<planned_arena> steps{memory};
  for (int i = 0; i < 40; ++i) EXPECT_EQ(steps.step("a=100 b=200 -a -b", i % 4), 2u);
  EXPECT_EQ(memory.stats().plans_made, 1u);
}

TEST(planned_arena_plans_of_kinds, keep_a_small_region_in_steps_without_a_plan) {
  for (std::string const bytes : {"100000", "2000000"}) {
    planned_arena memory;
    played_steps<planned_arena> steps{memory};
    const std::string text = "a=" + bytes + " -a";
    for (int i = 0; i < 2; ++i) EXPECT_EQ(steps.step(text, 1), i == 0 ? 1u : 0u);
    EXPECT_EQ(steps.step(text, 2), 1u);
    EXPECT_EQ(memory.stats().committed_bytes != 0, bytes == "100000") << "returned from 1 MiB on";
  }
}

// P.21
TEST(planned_arena_options, drops_the_least_recently_used_kind) {
  planned_arena memory{{.max_kinds = 2}};
  played_steps<planned_arena> steps{memory};
  steps.step("a=100 -a", 1);
  steps.step("b=1000 -b", 2);
  EXPECT_EQ(steps.step("a=100 -a", 1), 0u);
  steps.step("c=10000 -c", 3);  // in place of kind 2
  EXPECT_EQ(memory.stats().plans, 1u) << "a kind that replaces another rests first";
  steps.step("c=10000 -c", 3);
  EXPECT_EQ(steps.step("a=100 -a", 1), 0u);
  EXPECT_EQ(steps.step("c=10000 -c", 3), 0u);
  EXPECT_EQ(memory.plans()[0].blocks[0].life.size, 10'000u) << "used last";
  EXPECT_EQ(memory.plans()[1].blocks[0].life.size, 100u);
  EXPECT_EQ(steps.step("b=1000 -b", 2), 1u) << "the step is recorded again";
}

TEST(planned_arena_options, keeps_blocks_of_a_kind_that_is_dropped) {
  planned_arena memory{{.max_kinds = 1}};
  played_steps<planned_arena> steps{memory};
  steps.step("a=100 b=100 -b", 1);
  steps.play("-a");
  steps.step("a=100 b=100 -b", 1);
  for (int kind = 2; kind < 5; ++kind) {
    for (int i = 0; i < 2; ++i) steps.step("c=300 -c", kind);
  }
  EXPECT_EQ(memory.stats().used_blocks, 1u);
  steps.play("-a");
  EXPECT_EQ(memory.stats().used_blocks, 0u);
}

// A step that lacks one request and has another: no plan has both.
const std::string planned_step =
                      "a=1000 -a b=1000 -b c=9000 -c d=1 -d e=1 -e f=1 -f g=1 -g h=1 -h i=1 -i j=1 -j",
                  other_step =
                      "a=1000 -a b=1000 -b d=1 -d e=1 -e f=1 -f g=1 -g h=1 -h i=1 -i j=1 -j z=90000 -z";

// P.21
TEST(planned_arena_options, drops_a_plan_after_max_misses) {
  planned_arena memory{{.max_misses = 3}};
  played_steps<planned_arena> steps{memory};
  steps.step(planned_step);
  EXPECT_EQ(steps.step(other_step), 1u);
  EXPECT_EQ(steps.step(other_step), 1u);
  EXPECT_EQ(memory.stats().plans_made, 1u);
  EXPECT_EQ(steps.step(other_step), 1u);
  EXPECT_EQ(memory.stats().misses, 3u);
  EXPECT_EQ(memory.stats().partly_planned_steps, 3u);
  EXPECT_EQ(memory.stats().plans_made, 2u);
  EXPECT_EQ(steps.step(other_step), 0u);
}

TEST(planned_arena_options, cancels_a_miss_for_each_step_without_misses) {
  planned_arena memory{{.max_misses = 2}};
  played_steps<planned_arena> steps{memory};
  steps.step(planned_step);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(steps.step(other_step), 1u);
    EXPECT_EQ(steps.step(planned_step), 0u);
  }
  EXPECT_EQ(memory.stats().plans_made, 1u);
}

TEST_F(planned_arena_plans, are_dropped_within_a_step_that_differs) {
  const std::string first = "a=1000000 -a b=3000000 -b c=100 -c";
  for (int i = 0; i < 2; ++i) step(first);
  EXPECT_GT(stats().committed_bytes, 3'000'000u);
  const std::string other = "d=5000000 -d e=6000000 -e f=7000000 -f g=8000000 -g h=9000000 -h";
  {
    const planned_arena::step here{memory_};
    steps_.play("d=5000000 -d e=6000000 -e f=7000000 -f g=8000000 -g");
    EXPECT_EQ(stats().committed_bytes, 0u) << "the fallback needs it";
    steps_.play("h=9000000 -h");
  }
  EXPECT_EQ(step(other), 0u);
}

// No plan is dropped for good: once there is memory, the step is planned as before.
TEST_F(planned_arena_plans, are_not_made_again_without_memory) {
  recording_os os;
  planned_arena memory{planned_arena_options{}, virtual_memory_options{}, os};
  played_steps<planned_arena> steps{memory};
  const std::string large = "b=5000000 -b";
  steps.step(large);
  os.commit_limit_bytes = 4 * MiB;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(steps.step(large), 1u);
  EXPECT_EQ(memory.stats().plans_made, 1u);
  EXPECT_EQ(memory.stats().unplanned_steps, 21u);
  os.commit_limit_bytes = supply::never;
  EXPECT_EQ(steps.step(large), 0u);
}

// P.23
TEST_F(planned_arena_plans, made_by_another_arena_serve_their_kind) {
  const std::string text = "a=1000 b=300 -a c=500 -b -c";
  step(text, 7);
  planned_arena today;
  today.use(memory_.plans().front(), memory_.plans().front().kind);
  played_steps<planned_arena> steps{today};
  EXPECT_EQ(steps.step(text, 7), 0u);
  EXPECT_EQ(today.stats().plans_made, 0u);
  EXPECT_EQ(steps.step(text, 8), 3u);
}

TEST_F(planned_arena_plans, are_rejected_unchanged_if_invalid) {
  step("a=1000 b=300 -a -b");
  const auto refusal = [&](auto change) {
    step_plan plan = memory_.plans().front();
    change(plan);
    const std::string sentence = message_of<std::invalid_argument>([&] { memory_.use(plan); });
    EXPECT_EQ(stats().plans, 1u);
    return sentence;
  };
  EXPECT_EQ(refusal([](step_plan& plan) { plan.blocks[1].life.offset = plan.blocks[0].life.offset; }),
            "step_plan: request 1: overlaps a block that is live at the same time");
  EXPECT_EQ(refusal([](step_plan& plan) { plan.height = 0; }),
            "step_plan: request 0: not offset + size <= height");
  EXPECT_EQ(refusal([](step_plan& plan) { plan.lower_bound = plan.height + 1; }),
            "step_plan: not lower_bound <= height");
  EXPECT_EQ(refusal([](step_plan& plan) { plan.alignment = 8; }),
            "planned_arena 'planned_arena': the plan's alignment is less than 16 bytes");
  EXPECT_EQ(step("a=1000 b=300 -a -b"), 0u);
}

TEST_F(planned_arena_plans, are_not_taken_while_a_step_is_open) {
  step("a=1000 -a");
  const planned_arena::step here{memory_};
  EXPECT_THROW(memory_.use(memory_.plans().front()), std::logic_error);
  EXPECT_EQ(stats().plans, 1u);
}

TEST_F(planned_arena_plans, without_requests_are_not_kept) {
  memory_.use(step_plan{});
  EXPECT_EQ(stats().plans, 0u);
}

TEST_F(planned_arena_plans, with_skipped_requests_are_searched_once_per_place) {
  // Each place overlaps halves of the two before it, so that the number of ways down is exponential.
  constexpr std::size_t requests = 200;
  step_plan plan{.blocks = {}, .requests = requests, .alignment = 256, .height = 768};
  for (std::size_t i = 0; i < requests; ++i) {
    const std::size_t offset = i % 2 == 0 ? 0 : 256;
    plan.blocks.push_back(
        {.request = i, .life = {.lower = i, .upper = i + 1, .size = 512, .offset = offset}});
  }
  planned_arena memory{{.max_misses = requests}};
  memory.use(plan);
  const planned_arena::step here{memory};
  std::vector<void*> blocks(requests);
  for (void*& block : blocks) {
    if (&block == &blocks.back()) memory.deallocate(std::exchange(blocks.front(), nullptr), 512);
    block = memory.allocate(512);
  }
  EXPECT_EQ(memory.stats().misses, requests - 2) << "while the first block, below all others, is live";
  for (void* const block : blocks) memory.deallocate(block, 512);
}

TEST_F(planned_arena_plans, avoid_a_block_that_is_kept_unexpectedly) {
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

// ---- blocks that outlive steps of several kinds -----------------------------------------------------------

using planned_arena_outliving = planned_arena_plans;

TEST_F(planned_arena_outliving, keeps_outliving_blocks_apart_from_other_kinds_of_steps) {
  std::uint64_t from_fallback = 0;
  for (std::size_t i = 0; i < 20; ++i) {
    const std::string frees = i == 0 ? "" : " -x" + std::to_string(i - 1);
    from_fallback = step("x" + std::to_string(i) + "=1000 a=500" + frees + " -a", 1);
    from_fallback += step("b=6000 c=700 -b -c", 2);
  }
  EXPECT_EQ(from_fallback, 0u);
  EXPECT_EQ(stats().height_bytes, 2 * 1024u + 6144u + 768u) << "below it lies x, twice";
}

TEST_F(planned_arena_outliving, shares_one_place_among_outliving_blocks_of_several_kinds) {
  std::uint64_t from_fallback = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    const std::string frees = i == 0 ? "" : " -g" + std::to_string(i - 1);
    const std::string kind = i % 2 == 0 ? "a=500" : "b=9000";
    from_fallback = step(kind + frees + " g" + std::to_string(i) + "=5000 -" + kind.substr(0, 1),
                         static_cast<int>(i % 2));
  }
  EXPECT_EQ(from_fallback, 0u);
  EXPECT_EQ(stats().height_bytes, 5120u + 9216u) << "of the last step, in which b came";
}

TEST_F(planned_arena_outliving, has_no_bytes_for_blocks_that_outlived_only_the_first_step) {
  step("a=300 p=50000 q=60000 -a");
  for (std::size_t i = 0; i < 5; ++i) step("a=600 b=900 -a -b");
  EXPECT_EQ(stats().height_bytes, 768u + 1024u);
  steps_.play("-p -q");
}

}  // namespace
}  // namespace tidemark::test
