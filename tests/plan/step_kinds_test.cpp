// SPDX-License-Identifier: Apache-2.0
// Strategy: programs whose steps are of several kinds (step_kinds.hpp), played on a planned arena with the
// ends of each block written and read again. How much of them is planned, and how much work goes into plans,
// is counted, not timed: topic plan of the benchmarks has the times beside the pool.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory_resource>
#include <string>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>
#include <tidemark/pool/pool.hpp>

#include "marked_blocks.hpp"
#include "played_steps.hpp"
#include "step_kinds.hpp"

namespace tidemark::test {
namespace {

constexpr std::size_t steps_played = 300;

/// Plays the steps of a program.
class played_program {
 public:
  explicit played_program(std::string const& name, std::size_t steps = steps_played)
      : program_{tools::generate_steps(name, steps)}, blocks_{memory_, program_.trace.blocks} {}

  /// What is counted before the first step and after each.
  std::vector<planned_arena_stats> run() {
    std::vector<planned_arena_stats> counted{memory_.stats()};
    for (tools::trace_step const& step : program_.steps) {
      {
        const planned_arena::step here{memory_};
        for (std::size_t i = step.first_event; i <= step.last_event; ++i)
          blocks_.play(program_.trace.events[i]);
      }
      memory_.check_invariants();  // blocks in use do not overlap
      counted.push_back(memory_.stats());
    }
    for (tools::trace_event const& event : program_.trace.left) blocks_.play(event);
    return counted;
  }

 private:
  tools::stepped_trace program_;
  planned_arena memory_;
  marked_blocks blocks_;
};

planned_arena_stats stats_after(std::string const& program) { return played_program{program}.run().back(); }

TEST(step_kinds, training_evaluation_and_generation_in_turn_are_planned_after_a_few_steps) {
  const planned_arena_stats stats = stats_after("cycle");
  EXPECT_GE(stats.planned_steps, steps_played * 9 / 10);
  EXPECT_LE(stats.plans_made, 6u);
  EXPECT_LE(stats.recorded_allocations, 600u);
}

TEST(step_kinds, three_kinds_at_random_that_begin_alike_are_planned_after_a_few_steps) {
  const planned_arena_stats stats = stats_after("random");
  EXPECT_GE(stats.planned_steps, steps_played * 9 / 10);
  EXPECT_LE(stats.plans_made, 6u);
  EXPECT_LE(stats.recorded_allocations, 600u);
}

TEST(step_kinds, eight_lengths_have_a_plan_each_at_most) {
  const planned_arena_stats stats = stats_after("lengths");
  EXPECT_GE(stats.planned_steps, steps_played / 2);
  EXPECT_LE(stats.plans_made, 8u);
  EXPECT_LE(stats.recorded_allocations, stats.allocations / 10);
}

TEST(step_kinds, steps_that_grow_by_one_are_neither_recorded_nor_planned_but_a_few) {
  const planned_arena_stats stats = stats_after("growing");
  EXPECT_LE(stats.plans_made, 8u);
  EXPECT_LE(stats.recorded_allocations, stats.allocations / 10);
  EXPECT_LE(stats.misses, stats.allocations / 50) << "plans that are given up each time rest";
}

TEST(step_kinds, a_training_that_is_restarted_again_and_again_is_planned) {
  const planned_arena_stats stats = stats_after("restarted");
  EXPECT_GE(stats.planned_steps, steps_played * 9 / 10);
  EXPECT_LE(stats.plans_made, 6u);
}

TEST(step_kinds, more_kinds_than_plans_are_kept_do_not_displace_each_other) {
  const planned_arena_stats stats = stats_after("many");
  EXPECT_GE(stats.planned_steps, steps_played / 2);
  EXPECT_LE(stats.plans_made, 10u);
}

TEST(step_kinds, a_cycle_of_four_lengths_of_a_transformer_converges) {
  const planned_arena_stats stats = stats_after("transformer");
  EXPECT_GE(stats.planned_steps, steps_played * 9 / 10);
  EXPECT_LE(stats.plans_made, 6u);
}

/// Steps of so many requests, the first of which has that size.
void run_large_step(planned_arena& memory, std::size_t requests, std::size_t first_bytes) {
  const planned_arena::step here{memory};
  for (std::size_t i = 0; i < requests; ++i) {
    const std::size_t bytes = i == 0 ? first_bytes : 64 + i % 7;
    memory.deallocate(memory.allocate(bytes), bytes);
  }
}

TEST(step_kinds, large_steps_that_never_repeat_are_hardly_recorded_and_planned) {
  planned_arena memory;
  for (std::size_t i = 0; i < 40; ++i) run_large_step(memory, 2000, 100'000 + 256 * i);
  EXPECT_LE(memory.stats().plans_made, 4u);
  EXPECT_LE(memory.stats().recorded_allocations, 4 * 2000u);
  EXPECT_GE(memory.stats().fallback_allocations, 30 * 2000u);
}

TEST(step_kinds, a_step_of_a_unet_fits_into_what_is_live_at_once) {
  const tools::stepped_trace unet = tools::generate_steps("unet", 2);
  EXPECT_EQ(unet.steps.size(), 2u);
  EXPECT_EQ(unet.trace.peak_live_bytes / MiB, 187u);
  EXPECT_TRUE(unet.trace.left.empty());
  std::vector<lifetime> blocks(unet.trace.blocks / 2);
  for (std::size_t i = 0; i <= unet.steps[0].last_event; ++i) {
    tools::trace_event const& event = unet.trace.events[i];
    if (event.allocates) blocks[event.block] = {.lower = i, .upper = i, .size = event.bytes};
    else blocks[event.block].upper = i;
  }
  EXPECT_EQ(make_plan(blocks).height, unet.trace.peak_live_bytes);
}

TEST(step_kinds, steps_that_never_repeat_are_planned_ever_less_often) {
  planned_arena memory;
  for (std::size_t i = 0; i < 2000; ++i) run_large_step(memory, 20, 1000 + 256 * i);
  EXPECT_LE(memory.stats().plans_made, 4u + 3u)
      << "one is forgiven after 256 steps, after 512 more, and 1,024 more";
  EXPECT_GE(memory.stats().plans_made, 4u + 2u);
}

TEST(step_kinds, of_any_300_steps_no_more_than_a_twentieth_is_recorded_or_missed) {
  for (char const* name : tools::generated_programs()) {
    played_program program{name, steps_played + 100};
    const std::vector<planned_arena_stats> after = program.run();
    for (std::size_t first = 0; first + steps_played < after.size(); ++first) {
      planned_arena_stats const &begin = after[first], &end = after[first + steps_played];
      const std::uint64_t off_the_plan =
          end.recorded_allocations - begin.recorded_allocations + end.misses - begin.misses;
      ASSERT_LE(20 * off_the_plan, end.allocations - begin.allocations) << name << " from step " << first;
      ASSERT_LE(end.plans_made - begin.plans_made, 8u) << name << " from step " << first;
    }
  }
}

// ---- blocks that outlive steps of several kinds -----------------------------------------------------------

TEST(planned_arena_zone, keeps_a_block_that_outlives_one_kind_of_step_out_of_the_way_of_others) {
  planned_arena memory;
  played_steps<planned_arena> steps{memory};
  std::uint64_t from_fallback = 0;
  for (std::size_t i = 0; i < 20; ++i) {
    const std::string frees = i == 0 ? "" : " -x" + std::to_string(i - 1);
    from_fallback = steps.step("x" + std::to_string(i) + "=1000 a=500" + frees + " -a");
    from_fallback += steps.step("b=6000 c=700 -b -c");
  }
  EXPECT_EQ(from_fallback, 0u);
  EXPECT_EQ(memory.stats().height_bytes, 2 * 1024u + 6144u + 768u) << "below it lies x, twice";
  EXPECT_EQ(memory.stats().plans_made, 2u);
}

TEST(planned_arena_zone, has_one_place_for_blocks_of_one_size_that_outlive_steps_of_several_kinds) {
  planned_arena memory;
  played_steps<planned_arena> steps{memory};
  std::uint64_t from_fallback = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    const std::string frees = i == 0 ? "" : " -g" + std::to_string(i - 1);
    const std::string kind = i % 2 == 0 ? "a=500" : "b=9000";
    from_fallback = steps.step(kind + frees + " g" + std::to_string(i) + "=5000 -" + kind.substr(0, 1));
  }
  EXPECT_EQ(from_fallback, 0u);
  EXPECT_EQ(memory.stats().height_bytes, 5120u + 9216u) << "of the last step, in which b came";
}

TEST(planned_arena_zone, has_no_bytes_for_what_outlived_a_step_that_came_once) {
  planned_arena memory;
  played_steps<planned_arena> steps{memory};
  steps.step("a=300 p=50000 q=60000 -a");
  for (std::size_t i = 0; i < 5; ++i) steps.step("a=600 b=900 -a -b");
  EXPECT_EQ(memory.stats().height_bytes, 768u + 1024u);
  steps.play("-p -q");
}

// ---- the fallback -----------------------------------------------------------------------------------------

TEST(planned_arena_fallback, has_the_memory_of_plans_in_a_step_that_is_not_recorded_too) {
  planned_arena memory;
  played_steps<planned_arena> steps{memory};
  for (char const* text : {"a=1100000 -a", "b=1200000 -b", "c=1300000 -c", "d=1400000 -d", "a=1100000 -a"})
    steps.step(text);
  EXPECT_GT(memory.stats().committed_bytes, 0u);
  const std::uint64_t recorded = memory.stats().recorded_allocations;
  const planned_arena::step here{memory};
  steps.play("e=1500000");
  EXPECT_EQ(memory.stats().committed_bytes, 0u);
  EXPECT_EQ(memory.stats().recorded_allocations, recorded) << "four plans have not paid yet";
  steps.play("-e");
}

TEST(planned_arena_fallback, has_not_the_memory_of_a_plan_that_is_little) {
  planned_arena memory;
  played_steps<planned_arena> steps{memory};
  for (int i = 0; i < 2; ++i) steps.step("a=1000000 -a");
  const std::size_t held = memory.stats().committed_bytes;
  EXPECT_GE(held, 1'000'000u);
  steps.step("b=2000000 -b");
  EXPECT_GT(memory.stats().fallback_allocations, 1u);
  EXPECT_EQ(memory.stats().committed_bytes, held) << "up to 1 MiB stays";
}

// Twenty kinds in turn, of which eight have plans, and some need more than any of these.
TEST(planned_arena_fallback,
     does_not_take_memory_again_and_again_where_kinds_with_plans_and_without_take_turns) {
  planned_arena memory;
  std::size_t decommits = 0, committed = 0;
  std::uint64_t recorded = 0;
  for (std::size_t i = 0; i < 2000; ++i) {
    if (i == 1000) {
      decommits = 0;
      recorded = memory.stats().recorded_allocations;
    }
    const std::size_t kind = i % 20;
    const planned_arena::step here{memory};
    std::vector<std::pair<void*, std::size_t>> blocks;
    for (std::size_t k = 0; k < 20 + kind; ++k) {
      const std::size_t bytes = 100 + k * 37 + kind * 10'000;
      blocks.emplace_back(memory.allocate(bytes), bytes);
    }
    for (auto const& [block, bytes] : blocks) memory.deallocate(block, bytes);
    decommits += memory.stats().committed_bytes < committed ? 1 : 0;
    committed = memory.stats().committed_bytes;
  }
  EXPECT_GT(committed, 1 * MiB);
  EXPECT_LE(decommits, 2u);
  EXPECT_EQ(memory.stats().recorded_allocations, recorded) << "no plan can be made while all are in use";
}

TEST(planned_arena_fallback, does_not_take_memory_again_and_again_where_a_plan_serves_no_step_wholly) {
  pool blocks;
  planned_arena memory{&blocks};
  std::mt19937_64 random{1};
  std::size_t decommits = 0, committed = 0;
  for (std::size_t i = 0; i < 4000; ++i) {
    if (i == 2000) decommits = 0;
    const planned_arena::step here{memory};
    std::vector<std::pair<void*, std::size_t>> live;
    const auto take = [&](std::size_t bytes) { live.emplace_back(memory.allocate(bytes), bytes); };
    if (i % 2 == 0) {
      // As the step before the last, but for one request.
      const std::size_t odd = 5 + random() % 50;
      for (std::size_t k = 0; k < 60; ++k) {
        take(50'000 + k * 100);
        if (k == odd) take(200'000 + 16 * (random() % 100'000));
      }
    } else {
      // Never twice the same.
      take(600'000 + 16 * (random() % 10'000));
      for (std::size_t k = 0; k < 20; ++k) take(1000 + 16 * (random() % 1000));
    }
    for (auto const& [block, bytes] : live) memory.deallocate(block, bytes);
    decommits += memory.stats().committed_bytes < committed ? 1 : 0;
    committed = memory.stats().committed_bytes;
  }
  EXPECT_GT(memory.stats().planned_allocations, 20'000u);
  EXPECT_LE(decommits, 40u);
}

TEST(planned_arena_fallback, that_is_a_pool_is_trimmed_when_a_plan_serves) {
  pool blocks;
  planned_arena memory{&blocks};
  for (int i = 0; i < 2; ++i) {
    const planned_arena::step here{memory};
    memory.deallocate(memory.allocate(100'000), 100'000);
    if (i == 0) EXPECT_GT(blocks.stats().cached_bytes, 0u);
  }
  EXPECT_EQ(blocks.stats().cached_bytes, 0u);
}

TEST(planned_arena_fallback, is_trimmed_by_the_options_once_for_each_plan) {
  static int trims;
  trims = 0;
  planned_arena memory{{.trim_fallback = [](std::pmr::memory_resource&) noexcept { ++trims; }}};
  for (int i = 0; i < 5; ++i) {
    const planned_arena::step here{memory};
    memory.deallocate(memory.allocate(1000), 1000);
  }
  EXPECT_EQ(trims, 1);
}

}  // namespace
}  // namespace tidemark::test
