// SPDX-License-Identifier: Apache-2.0
// Strategy: programs whose steps are of several kinds (step_kinds.hpp), played on a planned arena with the
// ends of each block written and read again. How much of them is planned, and how much work goes into plans,
// is counted, not timed: topic plan of the benchmarks has the times beside the pool.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory_resource>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/plan/replay/planned_arena.hpp>
#include <tidemark/pool/pool.hpp>

#include "step_kinds.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

constexpr std::size_t steps_played = 300;

/// Plays steps with the ends of each block written, and read when it goes back.
class played_program {
 public:
  explicit played_program(std::string const& name)
      : program_{tools::generate_steps(name, steps_played)}, blocks_(program_.trace.blocks) {}

  /// What is counted after all steps.
  planned_arena_stats run() {
    for (tools::trace_step const& step : program_.steps) {
      {
        const planned_arena::step here{memory_};
        for (std::size_t i = step.first_event; i <= step.last_event; ++i) play(program_.trace.events[i]);
      }
      memory_.check_invariants();  // blocks in use do not overlap
    }
    for (tools::trace_event const& event : program_.trace.left) play(event);
    return memory_.stats();
  }

 private:
  void play(tools::trace_event const& event) {
    const auto mark = static_cast<unsigned char>(event.block % 251);
    const std::size_t ends = std::min<std::size_t>(event.bytes, 16);
    unsigned char*& block = blocks_[event.block];
    if (event.allocates) {
      block = static_cast<unsigned char*>(memory_.allocate(event.bytes, tools::replay_alignment));
      std::memset(block, mark, ends);
      std::memset(block + event.bytes - ends, mark, ends);
      return;
    }
    const auto is_mark = [mark](unsigned char byte) { return byte == mark; };
    EXPECT_TRUE(std::all_of(block, block + ends, is_mark)) << "block " << event.block;
    EXPECT_TRUE(std::all_of(block + event.bytes - ends, block + event.bytes, is_mark))
        << "block " << event.block;
    memory_.deallocate(block, event.bytes, tools::replay_alignment);
  }

  tools::stepped_trace program_;
  planned_arena memory_;
  std::vector<unsigned char*> blocks_;
};

planned_arena_stats stats_after(std::string const& program) { return played_program{program}.run(); }

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

TEST(step_kinds, large_steps_that_never_repeat_are_not_planned_and_hardly_recorded) {
  planned_arena memory;
  for (std::size_t i = 0; i < 40; ++i) run_large_step(memory, 20'000, 100'000 + 16 * i);
  EXPECT_EQ(memory.stats().plans_made, 0u);
  EXPECT_LE(memory.stats().recorded_allocations, 4 * 10'001u);
}

TEST(step_kinds, large_steps_that_repeat_are_planned) {
  planned_arena memory;
  for (std::size_t i = 0; i < 8; ++i) run_large_step(memory, 20'000, 100'000);
  EXPECT_EQ(memory.stats().plans_made, 1u);
  EXPECT_GE(memory.stats().planned_steps, 4u);
}

// ---- the fallback -----------------------------------------------------------------------------------------

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

// ---- calls of two threads ---------------------------------------------------------------------------------

/// Lets another thread in, once, while the arena's call waits for it.
class interrupted_fallback final : public std::pmr::memory_resource {
 public:
  planned_arena* arena = nullptr;
  bool frees = false;
  void* held = nullptr;  ///< what the other thread frees

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    if (planned_arena* const called = std::exchange(arena, nullptr)) {
      std::thread{[&] {
        if (frees) called->deallocate(held, 100);
        else called->deallocate(called->allocate(100), 100);
      }}.join();
    }
    return std::pmr::new_delete_resource()->allocate(bytes, align);
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    std::pmr::new_delete_resource()->deallocate(block, bytes, align);
  }
  bool do_is_equal(memory_resource const& other) const noexcept override { return this == &other; }
};

TEST(planned_arena_calls, of_two_threads_at_once_are_reported) {
  if (check_level < 2) GTEST_SKIP() << "which only level 2 looks at";
  for (const bool frees : {false, true}) {
    const violation_recorder violations;
    interrupted_fallback fallback;
    planned_arena memory{&fallback};
    fallback.held = memory.allocate(100);
    fallback.arena = &memory;
    fallback.frees = frees;
    memory.deallocate(memory.allocate(100), 100);
    ASSERT_GE(violation_recorder::reports().size(), 1u);
    EXPECT_EQ(violation_recorder::reports()[0].kind, violation_kind::wrong_thread);
    EXPECT_EQ(violation_recorder::reports()[0].message,
              std::string{"planned_arena 'planned_arena': "} + (frees ? "deallocate" : "allocate") +
                  " while another thread is in a call: it is for one thread at a time");
    if (!frees) memory.deallocate(fallback.held, 100);
  }
}

TEST(planned_arena_calls, of_threads_that_take_turns_are_not_reported) {
  const violation_recorder violations;
  planned_arena memory;
  for (int i = 0; i < 3; ++i) {
    std::thread{[&] {
      const planned_arena::step here{memory};
      memory.deallocate(memory.allocate(100), 100);
    }}.join();
  }
  EXPECT_EQ(violation_recorder::reports().size(), 0u);
  EXPECT_EQ(memory.stats().planned_steps, 2u);
}

}  // namespace
}  // namespace tidemark::test
