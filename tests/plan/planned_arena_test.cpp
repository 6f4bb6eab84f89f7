// SPDX-License-Identifier: Apache-2.0
// Strategy: small steps written as text (played_steps.hpp), one fact each: the blocks from the plan, the
// blocks from the fallback, and their counts. Live blocks keep their contents in all tests.
// planned_arena_safety_test.cpp and planned_arena_plans_test.cpp have the other facts.
#include <tidemark/plan/replay/planned_arena.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/core/upstream_memory.hpp>

#include "caught.hpp"
#include "played_steps.hpp"
#include "recording_supply.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

using planned_arena_in_steps = played_arena;

// P.17
TEST_F(planned_arena_in_steps, records_the_first_step_and_serves_the_second_from_the_plan) {
  const std::string text = "a=1000 b=300 -a c=500 -b -c";
  EXPECT_EQ(step(text), 3u);
  EXPECT_EQ(stats().plans_made, 1u);
  EXPECT_EQ(step(text), 0u);
  EXPECT_EQ(fallback_.calls, 3u);
  EXPECT_EQ(stats().planned_allocations, 3u);
  EXPECT_EQ(stats().planned_steps, 1u);
  EXPECT_EQ(stats().misses, 0u);
}

// P.17
TEST_F(planned_arena_in_steps, returns_the_same_addresses_in_each_step) {
  const std::string text = "a=1000 b=300 -a c=500 -c -b d=0 -d";
  step(text);
  (void)steps_.addresses();
  step(text);
  const std::vector<std::byte*> first = steps_.addresses();
  EXPECT_EQ(first.size(), 4u);
  for (int i = 0; i < 5; ++i) {
    step(text);
    EXPECT_EQ(steps_.addresses(), first);
  }
}

// P.17
TEST_F(planned_arena_in_steps, blocks_that_never_live_at_once_share_their_bytes) {
  const std::string text = "a=1000 -a b=1000 -b c=1000 d=200 -c -d";
  step(text);
  EXPECT_EQ(stats().height_bytes, 0u) << "no plan was used yet";
  step(text);
  EXPECT_EQ(stats().height_bytes, 1024u + 256u);
  EXPECT_EQ(stats().lower_bound_bytes, 1024u + 256u);
  EXPECT_GE(stats().committed_bytes, stats().height_bytes);
}

TEST_F(planned_arena_in_steps, a_container_runs_by_its_plan) {
  for (int round = 0; round < 3; ++round) {
    const planned_arena::step here{memory_};
    std::pmr::vector<std::pmr::string> lines{&memory_};
    for (int i = 0; i < 20; ++i)
      lines.emplace_back("a line that is too long to be kept in the string itself");
    EXPECT_EQ(lines[19].size(), 55u);
  }
  EXPECT_EQ(stats().planned_steps, 2u);
}

// P.18
TEST(planned_arena, serves_requests_that_fit_the_plan_and_counts_the_others) {
  struct deviation {
    char const *what, *planned;
    std::vector<std::pair<char const*, std::uint64_t>>
        played;  // steps, and what each takes from the fallback
  };
  constexpr char const *two = "a=1000 b=1000 -a -b", *four = "a=100 b=1000 c=5000 d=300 -a -b -c -d";
  constexpr char const* aligned = "a=100 b=10@4096 c=1@1048576 d=5@2 -a e=7@16384 -b -c -d -e";
  constexpr char const* aligned_to_8_mib = "a=100 b=10@8388608 -a -b";
  constexpr char const* in_order = "a=1000 b=1000 c=1000 -a -b -c d=2000 -d";
  const deviation deviations[] = {
      {"smaller, and up to the plan's alignment", two, {{"a=1 b=999 -a -b", 0}, {"a=0 b=1024 -a -b", 0}}},
      {"larger than its place", two, {{"a=1000 b=1025 -a -b", 1}, {two, 0}}},
      {"b, whose turn is over", "a=100 b=1000 c=5000 -a -b -c", {{"a=100 c=5000 b=1000 -a -b -c", 1}}},
      {"one too many", "a=100 -a", {{"a=100 -a b=100 -b", 1}}},
      {"left out, or an early end", four, {{"a=100 c=5000 d=300 -a -c -d", 0}, {"a=100 -a", 0}}},
      {"of a stricter alignment", "a=100 b=100 -a -b", {{"a=100 b=100@4096 -a -b", 1}}},
      {"of any alignment", aligned, {{aligned, 0}}},
      {"aligned beyond the 2 MiB of ranges",
       aligned_to_8_mib,
       {{aligned_to_8_mib, 0}, {aligned_to_8_mib, 0}}},
      {"given back in another order or early",
       in_order,
       {{"a=1000 b=1000 c=1000 -c -a -b d=2000 -d", 0},
        {"a=1000 -a b=1000 -b c=1000 -c d=2000 -d", 0},
        {"a=1000 b=1000 -b c=1000 -c -a d=2000 -d", 0}}}};
  for (deviation const& each : deviations) {
    planned_arena memory;
    played_steps<planned_arena> steps{memory};
    steps.step(each.planned);
    std::uint64_t misses = 0;
    for (auto const& [step, from_fallback] : each.played) {
      EXPECT_EQ(steps.step(step), from_fallback) << each.what << ": " << step;
      EXPECT_EQ(memory.stats().misses, misses += from_fallback) << each.what << ": " << step;
    }
  }
}

TEST_F(planned_arena_in_steps, blocks_of_no_bytes_have_addresses_of_their_own) {
  const std::string text = "a=0 b=0 c=0 -b d=0 -a -c -d";
  step(text);
  EXPECT_EQ(step(text), 0u);  // blocks that are live at once must differ: played_steps checks this
  EXPECT_EQ(stats().height_bytes, 3u * 256u);
}

// P.22
TEST_F(planned_arena_in_steps, unplanned_and_fully_planned_steps_are_counted_apart) {
  step("a=1000 b=1000 -a -b");
  EXPECT_EQ(stats().unplanned_steps, 1u);
  EXPECT_EQ(stats().misses, 0u);
  step("a=1000 b=1000 -a -b");
  EXPECT_EQ(stats().planned_steps, 1u);
  step("a=1000 b=2000 -a -b");
  EXPECT_EQ(stats().partly_planned_steps, 1u);
  EXPECT_EQ(stats().misses, 1u);
  step("");
  EXPECT_EQ(stats().unplanned_steps, 2u) << "without a request";
  EXPECT_EQ(stats().steps, 4u);
}

// P.22
TEST_F(planned_arena_in_steps, serves_requests_outside_of_steps_from_the_fallback) {
  step("a=100 -a");
  steps_.play("o=100");
  EXPECT_TRUE(fallback_.holds(steps_.at("o")));
  EXPECT_EQ(stats().outside_allocations, 1u);
  EXPECT_EQ(step("a=100 -o -a"), 0u);
  EXPECT_EQ(stats().fallback_allocations, 1u);
  EXPECT_EQ(stats().allocations, 3u);
}

TEST_F(planned_arena_in_steps, an_empty_step_keeps_the_plan) {
  step("a=100 -a");
  EXPECT_EQ(step(""), 0u);
  EXPECT_EQ(step("a=100 -a"), 0u);
  EXPECT_EQ(stats().steps, 3u);
  EXPECT_EQ(stats().planned_steps, 1u);
  EXPECT_EQ(stats().plans_made, 1u);
}

// P.25
TEST_F(planned_arena_in_steps, a_nested_step_is_rejected_and_changes_nothing) {
  step("a=100 b=50 -a -b");
  const planned_arena::step open{memory_};
  steps_.play("a=100");
  EXPECT_THROW(const planned_arena::step inner{memory_}, std::logic_error);
  steps_.play("b=50 -a -b");
  EXPECT_EQ(stats().planned_allocations, 2u);
}

TEST(planned_arena, starts_with_zero_statistics) {
  const planned_arena memory;
  const planned_arena_stats stats = memory.stats();
  EXPECT_STREQ(stats.name, "planned_arena");
  EXPECT_EQ(stats.planned_steps + stats.partly_planned_steps + stats.unplanned_steps, 0u);
  EXPECT_EQ(stats.steps + stats.allocations + stats.misses + stats.plans_made, 0u);
  EXPECT_EQ(stats.plans + stats.used_blocks + stats.committed_bytes + stats.reserved_bytes, 0u);
  EXPECT_EQ(memory.fallback_resource(), std::pmr::get_default_resource());
  EXPECT_TRUE(memory.plans().empty());
}

TEST(planned_arena, refuses_impossible_options_with_a_sentence) {
  const auto refusal = [](planned_arena_options options) {
    options.name = "steps";
    return message_or<std::invalid_argument>("", [&] { const planned_arena memory{options}; });
  };
  const std::string alignment = "planned_arena 'steps': alignment is not a power of two from 16";
  EXPECT_EQ(refusal({.alignment = 0}), alignment);
  EXPECT_EQ(refusal({.alignment = 8}), alignment);
  EXPECT_EQ(refusal({.alignment = 48}), alignment);
  EXPECT_EQ(refusal({.max_misses = 0}), "planned_arena 'steps': max_misses is 0");
  EXPECT_EQ(refusal({.max_kinds = 0}), "planned_arena 'steps': max_kinds is 0");
  EXPECT_EQ(refusal({.max_slots = 0}), "planned_arena 'steps': max_slots is 0");
  EXPECT_EQ(refusal({.alignment = 16, .max_misses = 1, .max_kinds = 1, .max_slots = 1}), "");
}

TEST(planned_arena, refuses_an_alignment_that_is_no_power_of_two) {
  planned_arena memory;
  for (std::size_t align : {0u, 3u, 24u})
    EXPECT_THROW((void)memory.allocate(100, align), std::invalid_argument);
  for (int round = 0; round < 2; ++round) {
    const planned_arena::step here{memory};
    // The fast path of a plan checks only the place.
    for (std::size_t align : {0u, 3u, 24u}) {
      if (round == 0 || check_level >= 2)
        EXPECT_THROW((void)memory.allocate(100, align), std::invalid_argument);
    }
    memory.deallocate(memory.allocate(100), 100);
  }
  EXPECT_EQ(memory.stats().planned_steps, 1u) << "a refused request does not count";
}

TEST(planned_arena, ignores_null) {
  planned_arena memory;
  memory.deallocate(nullptr, 100);
  const planned_arena::step here{memory};
  memory.deallocate(nullptr, 0);
  EXPECT_EQ(memory.stats().allocations, 0u);
}

TEST(planned_arena, reports_destruction_before_the_end_of_its_step) {
  const violation_recorder violations;
  std::optional<planned_arena> memory{std::in_place};
  {
    const planned_arena::step open{*memory};
    memory.reset();
    EXPECT_EQ(violation_recorder::count(violation_kind::scope_outlived), 1u);
  }
  EXPECT_EQ(violation_recorder::reports().size(), 1u) << "the step does nothing at its end";
}

TEST(planned_arena, takes_memory_from_an_upstream) {
  recording_resource upstream, fallback;
  {
    basic_planned_arena<upstream_memory> memory{{.fallback = &fallback}, &upstream};
    played_steps<basic_planned_arena<upstream_memory>> steps{memory};
    const std::string text = "a=1000 b=300@512 -a c=500 -b -c";
    EXPECT_EQ(steps.step(text), 3u);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(steps.step(text), 0u);
    EXPECT_EQ(upstream.calls, 1u);
    const std::size_t committed = memory.stats().committed_bytes;
    EXPECT_GE(committed, memory.stats().height_bytes);
    EXPECT_LE(committed, upstream.outstanding);
    EXPECT_EQ(memory.trim(), committed);
    EXPECT_EQ(upstream.outstanding, 0u) << "the upstream has its memory back";
    EXPECT_EQ(steps.step(text), 0u);
  }
  EXPECT_EQ(upstream.outstanding, 0u);
}

TEST_F(planned_arena_in_steps, passes_on_fallback_exceptions_and_counts_nothing) {
  step("a=100 b=100 -a -b");
  {
    const planned_arena::step here{memory_};
    steps_.play("a=100");
    const planned_arena_stats before = stats();
    fallback_.fail_from = fallback_.calls;
    EXPECT_THROW((void)memory_.allocate(5000), std::bad_alloc);
    EXPECT_EQ(stats().allocations, before.allocations);
    EXPECT_EQ(stats().misses, before.misses);
    EXPECT_EQ(stats().used_blocks, 1u);
    steps_.play("b=100 -a -b");
  }
  EXPECT_EQ(stats().planned_allocations, 2u);
  EXPECT_EQ(stats().planned_steps, 0u) << "the fallback was asked";
  EXPECT_EQ(step("a=100 b=100 -a -b"), 0u);
}

// P.24
TEST(planned_arena, uses_the_fallback_if_reserve_or_commit_fails) {
  for (const bool is_reserved : {false, true}) {
    recording_os os;
    planned_arena memory{planned_arena_options{}, virtual_memory_options{}, os};
    played_steps<planned_arena> steps{memory};
    if (is_reserved) os.commit_limit_bytes = 0;
    else os.fail_from = 0, os.fail_count = supply::never;
    for (int i = 0; i < 4; ++i) EXPECT_EQ(steps.step("a=100 b=100 -a -b"), 2u) << is_reserved;
    EXPECT_EQ(memory.stats().committed_bytes, 0u);
    EXPECT_EQ(memory.stats().reserved_bytes != 0, is_reserved);
    os.commit_limit_bytes = os.fail_from = supply::never;
    EXPECT_EQ(steps.step("a=100 b=100 -a -b"), 0u) << "as soon as it can";
  }
}

TEST(planned_arena, stops_trimming_its_fallback_while_the_plan_has_no_memory) {
  recording_os os;
  os.commit_limit_bytes = 0;
  recording_resource upstream;
  pool fallback{pool_options{.upstream = &upstream}};
  planned_arena memory{{.fallback = &fallback}, virtual_memory_options{}, os};
  played_steps<planned_arena> steps{memory};
  for (int i = 0; i < 20; ++i) EXPECT_EQ(steps.step("a=1000 b=3000000 -a -b"), 2u);
  const std::size_t calls = upstream.calls;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(steps.step("a=1000 b=3000000 -a -b"), 2u);
  EXPECT_EQ(upstream.calls, calls);
}

TEST(planned_arena, commits_only_the_memory_its_plan_needs) {
  recording_os os;
  planned_arena memory{planned_arena_options{}, virtual_memory_options{}, os};
  played_steps<planned_arena> steps{memory};
  for (int i = 0; i < 3; ++i) steps.step("a=100000 -a b=100000 -b");
  EXPECT_EQ(memory.stats().committed_bytes, 102'400u) << "25 pages";
  EXPECT_EQ(os.commits, 1u);
  EXPECT_EQ(memory.stats().reserved_bytes, 1 * GiB);
}

TEST(planned_arena, moves_to_a_larger_range_when_no_block_is_in_it) {
  recording_resource upstream;
  basic_planned_arena<upstream_memory> memory{{.reserve = 1}, &upstream};
  played_steps<basic_planned_arena<upstream_memory>> steps{memory};
  const std::string small = "a=100 -a", large = "b=100000 -b";
  for (int i = 0; i < 2; ++i) steps.step(small, 1);
  EXPECT_EQ(steps.step(large, 2), 1u);
  EXPECT_EQ(steps.step("a=100", 1), 0u);
  EXPECT_EQ(steps.step(large, 2), 1u) << "a is in the range";
  EXPECT_LT(memory.stats().committed_bytes, 1000u);
  steps.play("-a");
  EXPECT_EQ(steps.step(large, 2), 0u);
  EXPECT_GE(memory.stats().committed_bytes, 100'000u);
  EXPECT_LT(memory.stats().committed_bytes, 101'000u) << "in place of the other range";
  EXPECT_EQ(steps.step(small, 1), 0u);
}

}  // namespace
}  // namespace tidemark::test
