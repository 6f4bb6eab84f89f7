// SPDX-License-Identifier: Apache-2.0
// Strategy: steps that are recorded, that follow their plan and that leave it, as an observer sees them. The
// same steps without an observer have the same plans.
#include <gtest/gtest.h>

#include <cstddef>
#include <new>
#include <string>
#include <vector>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>
#include <tidemark/telemetry/limit_resource.hpp>

#include "recording_observer.hpp"

namespace tidemark::test {
namespace {

// Three blocks, freed in another order than they were allocated; the last outlives the step.
void* observed_step(planned_arena& memory, std::size_t extra = 0) {
  planned_arena::step step{memory, 7};
  void* const first = memory.allocate(100);
  void* const second = memory.allocate(200);
  if (extra != 0) memory.deallocate(memory.allocate(extra), extra);
  memory.deallocate(first, 100);
  void* const third = memory.allocate(300);
  memory.deallocate(second, 200);
  return third;
}

TEST(planned_observer, reports_recorded_and_planned_steps_alike) {
  recording_observer seen;
  planned_arena memory{planned_arena_options{.observer = &seen}};
  for (int i = 0; i < 6; ++i) {
    void* const third = observed_step(memory);
    EXPECT_EQ(seen.drain(), (event_list{"step 7", "+100", "+200", "-100", "+300", "-200", "end"}));
    memory.deallocate(third, 300);
    EXPECT_EQ(seen.drain(), event_list{"-300"});
  }
  void* const third = observed_step(memory, 5000);
  EXPECT_EQ(seen.drain(),
            (event_list{"step 7", "+100", "+200", "+5000", "-5000", "-100", "+300", "-200", "end"}));
  memory.deallocate(third, 300);
  memory.deallocate(memory.allocate(10), 10);
  EXPECT_EQ(seen.drain(), (event_list{"-300", "+10", "-10"}));
  EXPECT_GE(memory.stats().planned_steps, 4u);
  memory.check_invariants();
}

TEST(planned_observer, plans_as_without_an_observer) {
  recording_observer seen;
  planned_arena plain, observed{planned_arena_options{.observer = &seen}};
  for (planned_arena* memory : {&plain, &observed}) {
    for (std::size_t i = 0; i < 40; ++i)
      memory->deallocate(observed_step(*memory, i % 5 == 4 ? 64 * i : 0), 300);
  }
  planned_arena_stats const one = plain.stats(), other = observed.stats();
  EXPECT_EQ(one.planned_steps, other.planned_steps);
  EXPECT_EQ(one.planned_allocations, other.planned_allocations);
  EXPECT_EQ(one.fallback_allocations, other.fallback_allocations);
  EXPECT_EQ(one.plans_made, other.plans_made);
  EXPECT_EQ(one.height_bytes, other.height_bytes);
  EXPECT_EQ(plain.plans(), observed.plans());
  EXPECT_TRUE(seen.live.empty());
}

TEST(planned_observer, a_rejected_request_gets_no_block) {
  recording_observer seen;
  planned_arena memory{planned_arena_options{.observer = &seen}};
  for (int i = 0; i < 3; ++i) memory.deallocate(observed_step(memory), 300);
  {
    planned_arena::step step{memory, 7};
    seen.rejects_next = true;
    EXPECT_THROW((void)memory.allocate(100), std::bad_alloc);
    seen.drain();
    seen.fails_next = true;
    EXPECT_THROW((void)memory.allocate(100), std::bad_alloc);
    EXPECT_EQ(seen.drain(), event_list{"!100"});
    EXPECT_EQ(memory.stats().used_blocks, 0u);
  }
  memory.check_invariants();
}

TEST(planned_observer, a_limit_holds_for_planned_blocks_and_for_those_of_the_fallback) {
  limit_resource budget{600};
  planned_arena memory{planned_arena_options{.observer = &budget}};
  for (int i = 0; i < 4; ++i) {
    memory.deallocate(observed_step(memory), 300);
    planned_arena::step step{memory, 7};
    void* const planned = memory.allocate(100);
    EXPECT_THROW((void)memory.allocate(501), out_of_memory);
    void* const from_fallback = memory.allocate(500);
    EXPECT_THROW((void)memory.allocate(1), out_of_memory);
    memory.deallocate(planned, 100);
    memory.deallocate(from_fallback, 500);
  }
  EXPECT_EQ(budget.stats().refused, 8u);
  EXPECT_EQ(budget.stats().used_bytes, 0u);
}

}  // namespace
}  // namespace tidemark::test
