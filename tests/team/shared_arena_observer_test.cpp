// SPDX-License-Identifier: Apache-2.0
// Strategy: the blocks of a team as an observer sees them. Threads take turns by joining where the order of
// events counts. The last tests have threads that allocate at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/team/shared_arena.hpp>
#include <tidemark/telemetry/limit_resource.hpp>
#include <tidemark/telemetry/statistics_resource.hpp>

#include "other_thread.hpp"
#include "recording_observer.hpp"

namespace tidemark::test {
namespace {

constexpr std::size_t set_aside = 300 * KiB;  // more than a quarter of the next extent

struct observed_team : ::testing::Test {
  recording_observer seen;
  shared_arena team{{.observer = &seen}};
};

TEST_F(observed_team, reports_blocks_of_all_threads_until_their_rewind) {
  {
    shared_arena::scope step{team};
    (void)team.allocate(100);
    on_another_thread([&] {
      local_arena& local = team.local();
      (void)local.push_array<char>(200, uninitialized);
      {
        local_arena::scope inner{local};
        (void)inner.push<int>(3);
      }
      team.deallocate(team.allocate(300), 300);
    });
    EXPECT_EQ(seen.drain(), (event_list{"+100", "+200", "+4", "-4", "+300", "-300"}));
  }
  EXPECT_EQ(seen.drain(), (event_list{"-100", "-200"}));
  team.check_invariants();
}

TEST_F(observed_team, reports_a_set_aside_block_once) {
  shared_arena::scope step{team};
  void* const first = team.allocate(set_aside);
  void* const second = team.allocate(set_aside + 1);
  void* const third = team.allocate(set_aside + 2);
  team.deallocate(first, set_aside);
  team.deallocate(third, set_aside + 2);
  EXPECT_EQ(seen.drain(), (event_list{"+307200", "+307201", "+307202", "-307200", "-307202"}));
  EXPECT_EQ(seen.live.size(), 1u);
  EXPECT_EQ(seen.live.begin()->first, second);
  team.check_invariants();
  step.end();
  EXPECT_EQ(seen.drain(), event_list{"-307201"});
  EXPECT_EQ(team.stats().used_bytes, 0u);
  team.check_invariants();
}

TEST_F(observed_team, frees_the_records_of_set_aside_blocks_in_stack_order) {
  const std::size_t before = team.stats().used_bytes;
  for (int i = 0; i < 3; ++i) {
    void* const first = team.allocate(set_aside);
    void* const second = team.allocate(set_aside);
    team.deallocate(second, set_aside);
    team.deallocate(first, set_aside);
    EXPECT_EQ(team.stats().used_bytes, before);
  }
  EXPECT_TRUE(seen.live.empty());
  team.check_invariants();
}

TEST_F(observed_team, zeroes_set_aside_memory_that_was_used_before) {
  (void)team.allocate(100);  // its extent is below the block
  void* const first = team.allocate(set_aside);
  std::memset(first, 0xff, set_aside);
  team.deallocate(first, set_aside);
  local_arena& local = team.local();
  const std::span<char> second = local.push_array<char>(set_aside);
  EXPECT_EQ(second.data(), first);
  EXPECT_EQ(std::ranges::count(second, '\0'), static_cast<std::ptrdiff_t>(set_aside));
}

TEST_F(observed_team, a_rejected_block_changes_nothing) {
  (void)team.allocate(100);
  seen.drain();
  for (std::size_t bytes : {std::size_t{64}, set_aside}) {
    const std::size_t used_bytes = team.stats().used_bytes;
    seen.rejects_next = true;
    EXPECT_THROW((void)team.allocate(bytes), std::bad_alloc);
    EXPECT_TRUE(seen.drain().empty());
    seen.fails_next = true;
    EXPECT_THROW((void)team.allocate(bytes), std::bad_alloc);
    EXPECT_EQ(seen.drain(), event_list{'!' + std::to_string(bytes)});
    EXPECT_EQ(team.stats().used_bytes, used_bytes);
    team.check_invariants();
  }
}

TEST(shared_arena_observer, is_detached_once_for_all_threads) {
  recording_observer seen;
  {
    shared_arena team{{.observer = &seen}};
    (void)team.allocate(100);
    on_another_thread([&] { (void)team.allocate(200); });
    EXPECT_EQ(seen.detached_times, 0u);
  }
  EXPECT_TRUE(seen.live.empty());
  EXPECT_EQ(seen.detached_times, 1u);
}

// Calls `work(thread)` on four threads at once.
template <class Work>
void at_once(Work work) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work, i);
}

TEST(shared_arena_observer, counts_blocks_of_threads_that_allocate_at_once) {
  statistics_resource counted;
  shared_arena team{{.observer = &counted}};
  for (int step = 0; step < 3; ++step) {
    shared_arena::scope scope{team};
    at_once([&](int) {
      local_arena& local = team.local();
      for (std::size_t i = 1; i <= 100; ++i) (void)local.allocate(i % 10 == 0 ? set_aside : 8 * i);
    });
    EXPECT_EQ(counted.stats().used_blocks, 400u);
    scope.end();
    EXPECT_EQ(counted.stats().used_blocks, 0u);
    EXPECT_EQ(counted.stats().used_bytes, 0u);
  }
  EXPECT_EQ(counted.stats().allocations, 1200u);
  team.check_invariants();
}

TEST(shared_arena_observer, limits_the_bytes_of_all_threads_together) {
  limit_resource budget{1 * MiB};
  shared_arena team{{.observer = &budget}};
  shared_arena::scope scope{team};
  std::atomic<std::size_t> granted = 0;
  at_once([&](int) {
    local_arena& local = team.local();
    EXPECT_THROW(
        for (;;) {
          (void)local.allocate(1000);
          ++granted;
        },
        out_of_memory);
  });
  EXPECT_EQ(granted, 1 * MiB / 1000);
  scope.end();
  EXPECT_EQ(budget.stats().used_bytes, 0u);
}

}  // namespace
}  // namespace tidemark::test
