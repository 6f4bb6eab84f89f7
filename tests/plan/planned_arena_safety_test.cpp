// SPDX-License-Identifier: Apache-2.0
// Strategy: steps that leave their plan in one way each: blocks that are returned late, in a later step,
// never, twice or wrongly; memory returned while blocks are in use. Live blocks keep their contents
// (played_steps.hpp checks this), misuse is reported, and requests that share no byte with a late block are
// served as before.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>

#include <tidemark/core/units.hpp>
#include <tidemark/core/upstream_memory.hpp>
#include <tidemark/core/virtual_memory.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>

#include "calling_upstream.hpp"
#include "played_steps.hpp"
#include "recording_supply.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

class planned_arena_safety : public played_arena {
 protected:
  static std::size_t reports() { return violation_recorder::reports().size(); }

  violation_recorder violations_;
};

// P.19
TEST_F(planned_arena_safety, blocks_only_the_places_that_overlap_a_late_block) {
  // a, b and d have the same bytes one after the other; x has its own.
  step("x=4000 a=1000 -a b=1000 -b c=1000 d=600 -c -d -x");
  EXPECT_EQ(stats().height_bytes, 0u);
  EXPECT_EQ(step("x=4000 a=1000 b=1000 -b c=1000 -a d=600 -c -d -x"), 2u) << "b and c, while a is there";
  EXPECT_EQ(stats().misses, 2u);
  EXPECT_EQ(stats().plans_made, 2u)
      << "more than one request in eight: the plan is for this step from now on";
  EXPECT_EQ(step("x=4000 a=1000 b=1000 -a -b c=1000 d=600 -c -d -x"), 0u);
}

TEST_F(planned_arena_safety, a_place_over_several_blocks_waits_for_all) {
  const std::string allocates = "a=1000 b=1000 c=1000 ";
  step(allocates + "-a -b -c d=3000 -d e=100 -e");
  EXPECT_EQ(step(allocates + "-a -b d=3000 -c -d e=100 -e"), 1u);
  EXPECT_EQ(step(allocates + "-b -c d=3000 -a -d e=100 -e"), 1u);
  EXPECT_EQ(step(allocates + "-a -c d=3000 -b -d e=100 -e"), 1u);
  EXPECT_EQ(step(allocates + "-c -b -a d=3000 -d e=100 -e"), 0u);
}

// P.20
TEST_F(planned_arena_safety, keeps_a_block_that_unexpectedly_outlives_its_step) {
  step("a=1000 -a b=1000 -b");
  step("a=1000 -a b=1000");
  EXPECT_EQ(stats().used_blocks, 1u);
  EXPECT_EQ(step("a=1000 -a c=1000 -c"), 2u) << "b is in their bytes";
  steps_.play("-b");
  EXPECT_EQ(step("a=1000 -a b=1000 -b"), 0u);
}

TEST_F(planned_arena_safety, accepts_deallocation_between_steps) {
  const std::string text = "a=1000 -a b=1000 c=500";
  step("a=1000 -a b=1000 c=500 -b -c");
  step(text);
  steps_.play("-b -c");
  EXPECT_EQ(step(text), 0u);
  steps_.play("-c -b");
  EXPECT_EQ(step(text), 0u);
}

// P.25
TEST_F(planned_arena_safety, reports_a_double_free_and_changes_nothing) {
  const std::string text = "a=1000 b=1000 -a -b";
  step(text);
  step(text);
  const planned_arena::step here{memory_};
  steps_.play("a=1000 b=1000");
  std::byte* const a = steps_.at("a");
  steps_.play("-a");
  memory_.deallocate(a, 1000, 8);
  EXPECT_EQ(violation_recorder::count(violation_kind::bad_deallocate), 1u);
  EXPECT_EQ(stats().used_blocks, 1u);
  memory_.check_invariants();
  EXPECT_EQ(reports(), 1u);
}

TEST_F(planned_arena_safety, reports_a_pointer_inside_a_block_and_changes_nothing) {
  step("a=1000 -a");
  const planned_arena::step here{memory_};
  steps_.play("a=1000");
  memory_.deallocate(steps_.at("a") + 16, 100);
  EXPECT_EQ(violation_recorder::count(violation_kind::bad_deallocate), 1u);
  EXPECT_EQ(stats().used_blocks, 1u);
}

TEST_F(planned_arena_safety, reports_a_pointer_to_uncommitted_planned_addresses) {
  step("a=1000 -a");
  step("a=1000");
  std::byte* const a = steps_.at("a");
  steps_.play("-a");
  EXPECT_GT(memory_.trim(), 0u);
  EXPECT_EQ(stats().committed_bytes, 0u);
  memory_.deallocate(a, 1000);
  memory_.deallocate(a + 1 * MiB, 1000);
  EXPECT_EQ(violation_recorder::count(violation_kind::bad_deallocate), 2u)
      << "the fallback would not know it";
}

// P.25
TEST_F(planned_arena_safety, reports_a_wrong_size_and_keeps_the_block) {
  if (check_level < 2) GTEST_SKIP() << "only level 2 checks this";
  step("a=1000 -a");
  step("a=900");
  memory_.deallocate(steps_.at("a"), 1000, 8);
  EXPECT_EQ(violation_recorder::count(violation_kind::bad_deallocate), 1u);
  EXPECT_EQ(stats().used_blocks, 1u);
  step("b=1000 -b");  // a is no longer a block of the plan
  memory_.deallocate(steps_.at("a"), 1000, 8);
  EXPECT_EQ(violation_recorder::count(violation_kind::bad_deallocate), 2u);
  EXPECT_EQ(stats().used_blocks, 1u);
}

TEST_F(planned_arena_safety, trim_between_steps_returns_all_memory) {
  const std::string text = "a=100000 -a b=50000 -b";
  step(text);
  step(text);
  const std::size_t committed = stats().committed_bytes;
  EXPECT_GT(committed, 100'000u);
  EXPECT_EQ(memory_.trim(), committed);
  EXPECT_EQ(stats().committed_bytes, 0u);
  EXPECT_EQ(step(text), 0u) << "the next step makes the request again";
}

TEST_F(planned_arena_safety, trim_leaves_blocks_in_use_their_memory) {
  step("a=50000 b=100000 c=200000 -a -b -c");
  step("a=50000 b=100000 c=200000 -c");
  (void)memory_.trim();
  const auto end = [&](char const* name, std::size_t bytes) {
    return static_cast<std::size_t>(steps_.at(name) + bytes - std::min(steps_.at("a"), steps_.at("b")));
  };
  EXPECT_GE(stats().committed_bytes, std::max(end("a", 50'000), end("b", 100'000)));
  steps_.play("-a -b");  // checks the contents
  EXPECT_GT(memory_.trim(), 0u);
  EXPECT_EQ(stats().committed_bytes, 0u);
}

TEST_F(planned_arena_safety, trim_in_a_step_leaves_its_plan_its_memory) {
  const std::string text = "a=100000 -a b=50000 -b";
  step(text);
  step(text);
  const planned_arena::step here{memory_};
  steps_.play("a=100000 -a");
  (void)memory_.trim();
  EXPECT_GE(stats().committed_bytes, stats().height_bytes);
  steps_.play("b=50000 -b");
  EXPECT_EQ(stats().misses, 0u);
}

// P.24
TEST(planned_arena_memory, falls_back_when_its_upstream_throws) {
  calling_upstream upstream;
  upstream.on_allocate = [] { throw std::runtime_error{"no"}; };
  basic_planned_arena<upstream_memory> memory{planned_arena_options{}, &upstream};
  played_steps<basic_planned_arena<upstream_memory>> steps{memory};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(steps.step("a=100 b=100 -a -b"), 2u);
}

TEST(planned_arena_memory, serves_one_kind_of_step_after_failing_for_another) {
  recording_os os;
  planned_arena memory{planned_arena_options{}, virtual_memory_options{}, os};
  played_steps<planned_arena> steps{memory};
  const std::string small = "a=100 -a b=200 -b", large = "a=100 -a b=900000 -b";
  for (int i = 0; i < 2; ++i) steps.step(small, 1);
  os.commit_limit_bytes = os.committed_bytes;  // no more than now
  EXPECT_EQ(steps.step(large, 2), 2u);
  os.committed_bytes = 0;  // decommitted memory can be committed again
  EXPECT_EQ(steps.step(small, 1), 0u);
  EXPECT_EQ(steps.step(large, 2), 2u);
  EXPECT_EQ(steps.step(small, 1), 0u);
  os.commit_limit_bytes = supply::never;
  EXPECT_EQ(steps.step(large, 2), 0u) << "as soon as memory is free";
}

TEST(planned_arena_memory, is_never_allocated_above_the_height_of_a_plan) {
  // A plan of another's make, whose height is no multiple of its alignment: the last place holds 100 bytes
  // and no more.
  step_plan plan{.blocks = {{.request = 0, .life = {.lower = 0, .upper = 1, .size = 100, .offset = 0}}},
                 .requests = 1,
                 .alignment = 4096,
                 .height = 100,
                 .lower_bound = 100};
  recording_resource upstream;
  basic_planned_arena<upstream_memory> memory{{.reserve = 1}, &upstream};
  memory.use(plan);
  played_steps<basic_planned_arena<upstream_memory>> steps{memory};
  EXPECT_EQ(steps.step("a=100 -a"), 0u);
  EXPECT_EQ(steps.step("a=101 -a"), 1u);
}

TEST(planned_arena_memory, is_never_allocated_above_the_height_from_a_second_slot) {
  // The first place of the request holds 4096 bytes, the second one 100.
  const auto place = [](std::size_t offset) {
    return planned_block{.request = 0,
                         .life = {.lower = 0, .upper = 2, .size = 100, .alignment = 4096, .offset = offset}};
  };
  recording_resource upstream;
  basic_planned_arena<upstream_memory> memory{{.reserve = 1}, &upstream};
  memory.use({.blocks = {place(0), place(4096)}, .requests = 1, .alignment = 4096, .height = 4196});
  played_steps<basic_planned_arena<upstream_memory>> steps{memory};
  EXPECT_EQ(steps.step("a=100"), 0u);
  EXPECT_EQ(steps.step("b=4000 -a"), 1u);
  EXPECT_EQ(steps.step("c=100"), 0u);
  EXPECT_EQ(steps.step("d=100"), 0u);
}

TEST(planned_arena_memory, is_not_used_for_a_plan_of_larger_alignment_until_it_can_move) {
  recording_resource upstream;
  basic_planned_arena<upstream_memory> memory{{.alignment = 16}, upstream_memory{&upstream}};
  played_steps<basic_planned_arena<upstream_memory>> steps{memory};
  steps.step("a=100 -a");
  steps.step("a=100");  // which stays, and the range with it
  const std::string aligned = "b=50@1048576 -b c=10 -c";
  for (int i = 0; i < 5; ++i) steps.step(aligned);  // played_steps checks the alignment
  steps.play("-a");
  EXPECT_EQ(steps.step(aligned), 0u);
}

TEST(planned_arena_memory, is_not_used_for_the_only_plan_of_larger_alignment) {
  recording_resource upstream;
  basic_planned_arena<upstream_memory> memory{{.max_kinds = 1, .reserve = 4 * MiB}, &upstream};
  played_steps<basic_planned_arena<upstream_memory>> steps{memory};
  steps.step("a=100 -a");
  steps.step("a=100");
  const std::string aligned = "b=1000 c=50@1048576 -b -c";
  for (int i = 0; i < 3; ++i) steps.step(aligned);
  EXPECT_EQ(memory.stats().plans, 1u);
  steps.play("-a");
  EXPECT_EQ(steps.step(aligned), 0u);
}

}  // namespace
}  // namespace tidemark::test
