// SPDX-License-Identifier: Apache-2.0
// Strategy: each way to allocate from an arena and each way to release its blocks, as an observer sees it.
// The observer itself fails, too. arena_model_test.cpp compares an observed arena with the model.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/arena/scratch.hpp>
#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/telemetry/limit_resource.hpp>
#include <tidemark/telemetry/observer_list.hpp>
#include <tidemark/telemetry/statistics_resource.hpp>

#include "other_thread.hpp"
#include "recording_observer.hpp"

namespace tidemark::test {
namespace {

struct observed_arena : ::testing::Test {
  recording_observer seen;
  arena memory{{.name = "observed", .observer = &seen}};
};

struct logs_its_end {
  explicit logs_its_end(recording_observer& observer) : to{&observer} {}
  ~logs_its_end() { to->events.emplace_back("~"); }
  recording_observer* to;
};
constexpr std::size_t record_bytes = sizeof(detail::arena_finalizer);

struct throws_when_made {
  throws_when_made() { throw std::runtime_error{"no"}; }
  std::array<char, 24> bytes;
};

template <class Target>
void push_each_form(Target& to) {
  (void)to.template push<int>(7);
  (void)to.template push<int>(uninitialized);
  (void)to.template push_array<double>(3);
  (void)to.template push_array<double>(4, 1.0);
  (void)to.template push_array<double>(5, uninitialized);
  (void)to.push_copy(std::array<short, 3>{1, 2, 3});
  (void)to.push_string("seven..");
  (void)to.push_bytes(9);
  (void)to.push_bytes(10, uninitialized);
  (void)to.template make<long>(1);
  (void)to.allocate(11);
}
event_list events_of_each_form() {
  return {"+4", "+4", "+24", "+32", "+40", "+6", "+8", "+9", "+10", "+8", "+11"};
}

event_list reversed_releases(event_list allocations) {
  std::reverse(allocations.begin(), allocations.end());
  for (std::string& event : allocations) event[0] = '-';
  return allocations;
}

TEST_F(observed_arena, reports_each_form_of_push_in_the_arena_and_in_a_scope) {
  push_each_form(memory);
  EXPECT_EQ(seen.drain(), events_of_each_form());
  {
    arena::scope scope{memory};
    push_each_form(scope);
    EXPECT_EQ(seen.drain(), events_of_each_form());
  }
  EXPECT_EQ(seen.drain(), reversed_releases(events_of_each_form()));
  (void)memory.try_allocate(12);
  std::pmr::memory_resource& as_pmr = memory;
  (void)as_pmr.allocate(13);
  EXPECT_EQ(seen.drain(), (event_list{"+12", "+13"}));
  memory.reset();
  EXPECT_TRUE(seen.live.empty());
}

TEST_F(observed_arena, every_way_to_free_memory_releases_the_newest_block_first) {
  const auto push_three = [&] {
    for (std::size_t bytes : {10u, 20u, 30u}) (void)memory.push_bytes(bytes);
    seen.drain();
  };
  const event_list all{"-30", "-20", "-10"};
  const arena_mark mark = memory.mark();
  push_three();
  memory.rewind(mark);
  EXPECT_EQ(seen.drain(), all);
  push_three();
  memory.pop(32);
  EXPECT_EQ(seen.drain(), event_list{"-30"});
  memory.pop(1000);
  EXPECT_EQ(seen.drain(), (event_list{"-20", "-10"}));
  push_three();
  memory.reset();
  EXPECT_EQ(seen.drain(), all);
  push_three();
  memory.release();
  EXPECT_EQ(seen.drain(), all);
  {
    arena::scope outer{memory};
    (void)outer.push_bytes(1);
    {
      arena::scope inner{memory};
      (void)inner.push_bytes(2);
      arena::scope innermost{memory};
      (void)innermost.push_bytes(3);
    }
    EXPECT_EQ(seen.drain(), (event_list{"+1", "+2", "+3", "-3", "-2"}));
  }
  EXPECT_EQ(seen.drain(), event_list{"-1"});
  {
    arena ends{{.observer = &seen}};
    (void)ends.push_bytes(5);
    (void)ends.push_bytes(6);
  }
  EXPECT_EQ(seen.drain(), (event_list{"+5", "+6", "-6", "-5"}));
  EXPECT_EQ(seen.detached_times, 1u);
}

TEST_F(observed_arena, an_object_is_destroyed_before_its_block_is_released) {
  {
    arena::scope scope{memory};
    scope.make<logs_its_end>(seen);
    (void)scope.push_bytes(100);
  }
  const std::string record = std::to_string(record_bytes), object = std::to_string(sizeof(logs_its_end));
  EXPECT_EQ(seen.drain(),
            (event_list{"+" + record, "+" + object, "+100", "-100", "~", "-" + object, "-" + record}));
}

TEST_F(observed_arena, an_object_that_throws_when_made_leaves_no_block) {
  EXPECT_THROW((void)memory.push<throws_when_made>(no_destructor), std::runtime_error);
  EXPECT_EQ(seen.drain(), (event_list{"+24", "-24"}));
  EXPECT_THROW((void)memory.make<throws_when_made>(), std::runtime_error);
  EXPECT_EQ(memory.position(), 0u);
  EXPECT_TRUE(seen.live.empty());
}

TEST_F(observed_arena, a_rejected_allocation_changes_nothing) {
  (void)memory.push_bytes(64);
  const std::size_t before = memory.position();
  seen.drain();
  seen.rejects_next = true;
  EXPECT_THROW((void)memory.push_array<int>(10), std::bad_alloc);
  EXPECT_EQ(memory.position(), before);
  EXPECT_TRUE(seen.drain().empty());
  seen.fails_next = true;
  EXPECT_THROW((void)memory.push_array<int>(10), std::bad_alloc);
  EXPECT_EQ(memory.position(), before);
  EXPECT_EQ(seen.drain(), event_list{"!40"});
  seen.fails_next = true;
  EXPECT_EQ(memory.try_allocate(8), nullptr);
  EXPECT_EQ(seen.drain(), event_list{"!8"});
  memory.check_invariants();
  (void)memory.push_bytes(1);
  EXPECT_EQ(seen.drain(), event_list{"+1"});
}

TEST_F(observed_arena, an_exhausted_arena_reports_the_failure) {
  arena small{{.reserve = 64 * KiB, .growable = false, .observer = &seen}};
  EXPECT_THROW((void)small.push_bytes(1 * MiB), out_of_memory);
  EXPECT_EQ(small.try_allocate(65 * KiB), nullptr);
  EXPECT_EQ(seen.drain(), (event_list{"!1048576", "!66560"}));
}

TEST_F(observed_arena, deallocate_releases_only_freed_blocks) {
  void* const first = memory.allocate(16);
  void* const second = memory.allocate(32);
  seen.drain();
  memory.deallocate(first, 16);  // not the newest
  EXPECT_TRUE(seen.drain().empty());
  const std::size_t before = memory.position();
  memory.deallocate(second, 32);
  EXPECT_EQ(memory.position(), before - 32);
  EXPECT_EQ(seen.drain(), event_list{"-32"});

  void* const below_mark = memory.allocate(48);
  (void)memory.mark();
  memory.deallocate(below_mark, 48);
  void* const below_scope = memory.allocate(64);
  {
    arena::scope scope{memory};
    memory.deallocate(below_scope, 64);
  }
  EXPECT_EQ(seen.drain(), (event_list{"+48", "+64"}));
  memory.deallocate(below_scope, 64);  // the scope has ended
  EXPECT_EQ(seen.drain(), event_list{"-64"});
}

TEST_F(observed_arena, sees_each_block_when_chunks_are_used_again) {
  arena chunked{{.reserve = 64 * KiB, .name = "chunked", .observer = &seen}};
  for (int round = 0; round < 3; ++round) {
    arena::scope scope{chunked};
    for (int i = 0; i < 10; ++i) (void)scope.push_bytes(20'000, uninitialized);
    EXPECT_EQ(seen.live.size(), 10u);
    (void)scope.push_bytes(8);
    EXPECT_EQ(seen.live.size(), 11u);
  }
  EXPECT_TRUE(seen.live.empty());
  EXPECT_EQ(seen.peak_bytes, 200'008u);
  // The newest block of a chunk: the arena returns to the previous chunk, which is observed, too.
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(chunked.allocate(20'000));
  chunked.deallocate(blocks[3], 20'000);
  (void)chunked.allocate(8);
  EXPECT_EQ(seen.live.size(), 4u);
  chunked.check_invariants();
}

TEST_F(observed_arena, commits_as_much_as_an_unobserved_arena) {
  arena plain{{.reserve = 64 * KiB}}, watched{{.reserve = 64 * KiB, .observer = &seen}};
  for (arena* each : {&plain, &watched}) {
    for (int round = 0; round < 3; ++round) {
      arena::scope scope{*each};
      for (int i = 0; i < 20; ++i) (void)scope.push_bytes(10'000);
    }
    void* const newest = each->allocate(100);
    each->deallocate(newest, 100);
  }
  EXPECT_EQ(watched.position(), plain.position());
  EXPECT_EQ(watched.stats().peak_bytes, plain.stats().peak_bytes);
  EXPECT_EQ(watched.stats().committed_bytes, plain.stats().committed_bytes);
  EXPECT_EQ(watched.stats().chunks, plain.stats().chunks);
  EXPECT_EQ(watched.stats().system_calls, plain.stats().system_calls);
}

TEST_F(observed_arena, works_with_traps) {
  arena traps_too{{.trap = {.one_in = 1, .reserve = 64 * MiB}, .observer = &seen}};
  for (int i = 0; i < 3; ++i) {
    arena::scope scope{traps_too};
    seen.drain();
    push_each_form(scope);
    EXPECT_EQ(seen.drain(), events_of_each_form());
  }
  EXPECT_TRUE(seen.live.empty());
  EXPECT_EQ(traps_too.stats().trapped_scopes, 3u);
}

TEST_F(observed_arena, arenas_on_other_memory_are_observed) {
  const auto use = [&](auto& other) {
    {
      typename std::remove_reference_t<decltype(other)>::scope scope{other};
      for (int i = 0; i < 8; ++i) (void)scope.push_bytes(1000, uninitialized);
      EXPECT_EQ(seen.used_bytes, 8000u);
    }
    EXPECT_EQ(seen.used_bytes, 0u);
    void* const block = other.allocate(24);
    other.deallocate(block, 24);
    EXPECT_EQ(other.position(), 0u);
    EXPECT_EQ(seen.used_bytes, 0u);
  };
  upstream_arena chunks{upstream_memory{std::pmr::new_delete_resource()}, {.observer = &seen}};
  use(chunks);
  upstream_device_arena device_chunks{upstream_device_memory{std::pmr::new_delete_resource()},
                                      {.observer = &seen}};
  use(device_chunks);
  alignas(64) std::array<std::byte, 16'384> buffer;
  borrowed_arena borrowed{borrowed_memory{{reinterpret_cast<std::uintptr_t>(buffer.data()), buffer.size()}},
                          {.observer = &seen}};
  use(borrowed);
}

TEST(arena_under_a_limit, push_throws_at_the_limit_and_a_rewind_returns_the_budget) {
  limit_resource budget{1000};
  arena memory{{.observer = &budget}};
  const arena_mark mark = memory.mark();
  (void)memory.push_array<char>(600);
  const std::size_t before = memory.position();
  EXPECT_THROW((void)memory.push_array<char>(401), out_of_memory);
  EXPECT_EQ(memory.try_allocate(401), nullptr);
  EXPECT_EQ(memory.position(), before);
  EXPECT_EQ(budget.stats().refused, 2u);
  (void)memory.push_array<char>(400);
  memory.rewind(mark);
  (void)memory.push_array<char>(1000);
  EXPECT_EQ(budget.stats().used_bytes, 1000u);
  EXPECT_EQ(budget.stats().peak_bytes, 1000u);
}

TEST(scratch, set_scratch_options_observes_the_arenas_made_from_then_on) {
  statistics_resource counted{std::pmr::null_memory_resource(), "scratch"};
  set_scratch_options({.name = "scratch", .observer = &counted});
  test::on_another_thread([&] {
    {
      arena::scope outer = scratch(no_conflicts);
      (void)outer.push_array<char>(100);
      arena::scope inner = scratch(outer);
      (void)inner.push_string("text");
      EXPECT_EQ(counted.stats().used_bytes, 105u);
    }
    EXPECT_EQ(counted.stats().used_bytes, 0u);
    EXPECT_EQ(counted.stats().peak_blocks, 2u);
  });
  set_scratch_options({.name = "scratch"});
}

TEST(observer_list, tells_every_observer_and_ignores_null) {
  recording_observer first, second;
  observer_list both{&first, nullptr, &second};
  {
    arena memory{{.observer = &both}};
    const arena::scope scope{memory};
    push_each_form(memory);
  }
  EXPECT_EQ(first.events, second.events);
  EXPECT_EQ(first.events.size(), 2 * events_of_each_form().size());
  EXPECT_EQ(first.detached_times, 1u);
  both.step_began(3);
  both.step_ended();
  EXPECT_EQ(event_list(second.events.end() - 2, second.events.end()), (event_list{"step 3", "end"}));
}

TEST(observer_list, undoes_what_earlier_observers_saw_if_an_observer_rejects_a_block) {
  recording_observer first, second, third;
  observer_list all{&first, &second, &third};
  arena memory{{.observer = &all}};
  second.rejects_next = true;
  EXPECT_THROW((void)memory.push_bytes(8), std::bad_alloc);
  EXPECT_EQ(first.drain(), event_list{"!8"});
  EXPECT_EQ(third.drain(), event_list{});
  second.fails_next = true;
  EXPECT_THROW((void)memory.push_bytes(16), std::bad_alloc);
  EXPECT_EQ(first.drain(), (event_list{"+16", "-16"}));
  EXPECT_EQ(second.drain(), event_list{"!16"});
  EXPECT_EQ(third.drain(), event_list{"!16"});
  (void)memory.push_bytes(24);
  for (recording_observer* const each : {&first, &second, &third})
    EXPECT_EQ(each->drain(), event_list{"+24"});
}

}  // namespace
}  // namespace tidemark::test
