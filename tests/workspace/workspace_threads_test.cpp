// SPDX-License-Identifier: Apache-2.0
// Strategy: first the ways to get a workspace that is not passed as an argument, step by step. Then
// concurrent threads, and coroutines that take turns on one thread or move between threads; each checks the
// contents of its arrays. ThreadSanitizer runs the tests too.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <deque>
#include <mutex>
#include <numeric>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/telemetry/statistics_resource.hpp>
#include <tidemark/workspace/extras/this_thread_workspace.hpp>
#include <tidemark/workspace/workspace.hpp>

#include "coroutines.hpp"
#include "other_thread.hpp"
#include "thread_storm.hpp"
#include "violation_recorder.hpp"
#include "workspace_levels.hpp"

namespace tidemark::test {
namespace {

/// An upstream that is never destroyed, because workspaces of threads may outlive a test.
statistics_resource& new_upstream() {
  static auto* const all = new std::deque<statistics_resource>;
  return all->emplace_back();
}

/// Workspaces that are made without options take all their memory from `upstream`, records too.
class default_workspaces : public testing::Test {
 protected:
  default_workspaces() {
    workspace_options options = before_;
    options.upstream = options.bookkeeping = &upstream;
    set_default_workspace_options(options);
  }
  ~default_workspaces() override { set_default_workspace_options(before_); }

  statistics_resource& upstream = new_upstream();

 private:
  workspace_options before_ = default_workspace_options();
};

/// A function of a program that is not given a workspace. @return the sum of 0, 1, …, n - 1.
double sum_of_indices(std::size_t n) {
  workspace::scope scope{this_thread_workspace()};
  auto x = scope.acquire<double>(n);
  std::iota(x.begin(), x.end(), 0.0);
  return std::accumulate(x.begin(), x.end(), 0.0);
}

// This thread's own.

using this_threads = default_workspaces;

// S4.72
TEST_F(this_threads, workspace_is_the_same_at_each_call_and_warm) {
  on_another_thread([&] {
    workspace const* const first = &this_thread_workspace();
    EXPECT_EQ(sum_of_indices(100), 4950);
    const std::size_t warm = upstream.stats().allocations;
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(sum_of_indices(100), 4950);
      EXPECT_EQ(&this_thread_workspace(), first);
    }
    EXPECT_EQ(upstream.stats().allocations, warm);
  });
}

TEST_F(this_threads, memory_is_freed_when_the_thread_ends) {
  on_another_thread([&] {
    (void)this_thread_workspace().acquire<double>(1000);  // outside all scopes: it is not freed before
    EXPECT_GT(upstream.stats().used_bytes, 1000 * sizeof(double));
  });
  EXPECT_EQ(upstream.stats().used_bytes, 0u);
}

/// Uses the thread's workspace when the thread ends.
struct late_user {
  bool* same = nullptr;  // whether it is the one that it was
  workspace* known = nullptr;
  ~late_user() {
    if (same == nullptr) return;
    *same = (known == nullptr || &this_thread_workspace() == known) && sum_of_indices(1000) == 499'500;
  }
};
late_user& late() {
  static thread_local late_user user;
  return user;
}

TEST_F(this_threads, workspace_outlives_thread_local_objects_made_after_it) {
  bool same = false;
  on_another_thread([&] {
    workspace& own = this_thread_workspace();
    late().same = &same;
    late().known = &own;
  });
  EXPECT_TRUE(same);
  EXPECT_EQ(upstream.stats().used_bytes, 0u);
}

TEST_F(this_threads, workspace_can_be_created_by_a_thread_local_destructor) {
  bool worked = false;
  on_another_thread([&] { late().same = &worked; });
  EXPECT_TRUE(worked);
  EXPECT_GT(upstream.stats().allocations, 0u);
  EXPECT_EQ(upstream.stats().used_bytes, 0u);
}

// S4.55
TEST_F(this_threads, concurrent_scopes_never_share_memory) {
  std::vector<std::span<double>> arrays[storm_threads];
  std::barrier<> all_are_there{storm_threads};
  on_threads([&](std::size_t thread) {
    std::mt19937 random{static_cast<unsigned>(thread)};
    workspace& ws = this_thread_workspace();
    workspace::scope outermost{ws};
    for (std::size_t round = 0; round < 200; ++round) {
      workspace::scope inner{this_thread_workspace()};
      const std::size_t n = 1 + random() % 1000;
      auto mine = inner.acquire<double>(n);
      std::ranges::fill(mine, static_cast<double>(thread));
      EXPECT_EQ(sum_of_indices(n), static_cast<double>(n * (n - 1) / 2));
      EXPECT_EQ(std::ranges::count(mine, static_cast<double>(thread)), static_cast<std::ptrdiff_t>(n));
    }
    for (std::size_t i = 0; i < 20; ++i) arrays[thread].push_back(outermost.acquire<double>(1 + i * 10));
    all_are_there.arrive_and_wait();  // none of them has ended yet
  });
  std::vector<std::span<double>> all;
  for (auto const& mine : arrays) all.insert(all.end(), mine.begin(), mine.end());
  ASSERT_EQ(all.size(), 20 * storm_threads);
  std::ranges::sort(all, {}, [](std::span<double> array) { return array.data(); });
  for (std::size_t i = 1; i < all.size(); ++i) {
    EXPECT_LE(all[i - 1].data() + all[i - 1].size(), all[i].data());
  }
  EXPECT_EQ(upstream.stats().used_bytes, 0u);
}

// Bindings.

// S4.57
TEST_F(this_threads, workspace_is_the_last_bound_workspace) {
  on_another_thread([&] {
    workspace first, second;
    workspace const* const own = &this_thread_workspace();
    {
      workspace_binding outer{first};
      EXPECT_EQ(&this_thread_workspace(), &first);
      {
        workspace_binding inner{second};
        EXPECT_EQ(&this_thread_workspace(), &second);
        (void)sum_of_indices(10);
      }
      EXPECT_EQ(&this_thread_workspace(), &first);
    }
    EXPECT_EQ(&this_thread_workspace(), own);
    EXPECT_EQ(first.stats().slot_count, 0u);
    EXPECT_EQ(second.stats().slot_count, 1u);
  });
}

TEST_F(this_threads, binding_transfers_the_workspace_at_both_ends) {
  const violation_recorder recorder;
  workspace ws;
  (void)ws.acquire<double>(1);
  on_another_thread([&] {
    workspace_binding bound{ws};
    (void)this_thread_workspace().acquire<double>(1);
  });
  (void)ws.acquire<double>(1);
  EXPECT_EQ(violation_recorder::reports().size(), 0u);
}

// Coroutines.

/// A coroutine that stops at each `co_yield` until it is resumed.
using steps = generator<int>;

/// Opens scopes that stay open while other coroutines run, and checks the contents of its arrays.
/// @param wrong counts wrong contents
steps use_numbers(std::size_t id, std::atomic<int>& wrong) {
  const auto number = static_cast<double>(id);
  const auto check = [&](std::span<double const> numbers, double value) {
    wrong += std::ranges::count(numbers, value) != std::ssize(numbers);
  };
  workspace const* const mine = &this_thread_workspace();
  for (std::size_t round = 0; round < 20; ++round) {
    workspace::scope outer{this_thread_workspace()};
    auto first = outer.fill(number, 10 + id);
    co_yield 0;
    {
      workspace::scope<double> inner{this_thread_workspace()};
      auto second = inner.fill(-number, 5 * (round + 1));
      wrong += sum_of_indices(id + round + 2) <= 0;
      co_yield 0;
      {
        workspace::scope innermost{this_thread_workspace()};
        auto third = innermost.fill(0.5, 100);
        auto bits = innermost.trues(id + 1);
        co_yield 0;
        check(third, 0.5);
        wrong += bits.count() != id + 1;
      }
      check(second, -number);
      co_yield 0;
    }
    auto fourth = outer.fill(number + 0.25, round);
    co_yield 0;
    check(first, number);
    check(fourth, number + 0.25);
    wrong += &this_thread_workspace() != mine;
    wrong += this_thread_workspace().depth() != 1;
  }
}

/// A task and its memory.
struct job {
  workspace memory;
  steps work;

  job(std::size_t id, std::atomic<int>& wrong) : work{use_numbers(id, wrong)} {}
  /// @return true if more work is left
  bool resume() {
    workspace_binding bound{memory};
    work.owner.get().resume();
    return !work.owner.get().done();
  }
};

// S4.57
TEST(coroutines, keep_their_scopes_when_interleaved_on_one_thread) {
  const violation_recorder recorder;
  std::atomic<int> wrong{0};
  std::deque<job> jobs;
  for (std::size_t id = 0; id < 8; ++id) jobs.emplace_back(id, wrong);
  std::vector<job*> unfinished;
  for (job& one : jobs) unfinished.push_back(&one);
  std::mt19937 random{7};
  std::size_t turns = 0;
  while (!unfinished.empty()) {
    const std::size_t next = random() % unfinished.size();
    if (!unfinished[next]->resume()) {
      unfinished.erase(unfinished.begin() + static_cast<std::ptrdiff_t>(next));
    }
    ++turns;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(turns, 8u * (20 * 5 + 1));
  for (job const& one : jobs) {
    EXPECT_EQ(one.memory.depth(), 0u);
    EXPECT_EQ(one.memory.stats().active_slots, 0u);
    one.memory.check_invariants();
  }
  EXPECT_EQ(violation_recorder::reports().size(), 0u);
}

// S4.57
TEST(coroutines, end_their_scopes_when_destroyed_while_suspended) {
  const violation_recorder recorder;
  std::atomic<int> wrong{0};
  {
    job abandoned{3, wrong};
    for (int i = 0; i < 3; ++i) abandoned.resume();
    EXPECT_EQ(abandoned.memory.depth(), 3u);
  }
  EXPECT_EQ(violation_recorder::reports().size(), 0u);
}

// S4.58
TEST(coroutines, keep_their_workspaces_when_resumed_by_several_threads) {
  std::atomic<int> wrong{0};
  std::deque<job> jobs;
  for (std::size_t id = 0; id < 2 * storm_threads; ++id) jobs.emplace_back(id, wrong);
  std::mutex mutex;
  std::deque<job*> queue;
  for (job& one : jobs) queue.push_back(&one);
  std::atomic<std::size_t> unfinished{jobs.size()};
  on_threads([&](std::size_t) {
    while (unfinished.load() > 0) {
      job* mine = nullptr;
      {
        const std::scoped_lock lock{mutex};
        if (!queue.empty()) mine = std::exchange(queue.front(), nullptr);
        if (mine != nullptr) queue.pop_front();
      }
      if (mine == nullptr) {
        std::this_thread::yield();
      } else if (mine->resume()) {
        const std::scoped_lock lock{mutex};
        queue.push_back(mine);
      } else {
        --unfinished;
      }
    }
  });
  EXPECT_EQ(wrong, 0);
  for (job const& one : jobs) one.memory.check_invariants();
}

steps work_on(checked_workspace& ws) {
  checked_workspace::scope scope{ws};
  auto before = scope.ones(10);
  co_yield 0;
  auto after = scope.zeros(10);
  after(0) = before(9);
}

// S4.58
TEST(coroutine_migration, is_reported_by_a_checked_workspace_without_an_ownership_release) {
  const violation_recorder recorder;
  checked_workspace ws;
  const steps work = work_on(ws);
  work.owner.get().resume();
  on_another_thread([&] { work.owner.get().resume(); });
  EXPECT_TRUE(work.owner.get().done());
  EXPECT_GE(violation_recorder::count(violation_kind::wrong_thread), 1u);
  EXPECT_EQ(violation_recorder::count(violation_kind::wrong_thread), violation_recorder::reports().size());
  violation_recorder::reports().clear();
  ws.release_thread_ownership();
  const steps released = work_on(ws);
  released.owner.get().resume();
  ws.release_thread_ownership();
  on_another_thread([&] { released.owner.get().resume(); });
  EXPECT_EQ(violation_recorder::reports().size(), 0u);
}

}  // namespace
}  // namespace tidemark::test
