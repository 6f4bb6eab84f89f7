// SPDX-License-Identifier: Apache-2.0
// Strategy: threads that have used scratch arenas and their workspaces and wait, or are in a scope, or use
// both all the time, while another thread signals memory pressure. ThreadSanitizer checks for races between
// the two.
#include <gtest/gtest.h>

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <latch>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/arena/scratch.hpp>
#include <tidemark/core/memory_pressure.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/pool/global_pool.hpp>
#include <tidemark/workspace/extras/this_thread_workspace.hpp>
#include <tidemark/workspace/workspace_options.hpp>

namespace tidemark::test {
namespace {

constexpr std::size_t large = 8 * MiB;

std::size_t committed_scratch() {
  const arena::scope scope = scratch(no_conflicts);
  return scope.arena().stats().committed_bytes;
}
void use_scratch() {
  arena::scope scope = scratch(no_conflicts);
  std::memset(scope.allocate(large), 1, large);
}
void use_workspace() {
  workspace::scope scope{this_thread_workspace()};
  auto x = scope.zeros<float>(large / sizeof(float));
  x[0] = 1;
}

/// Runs `before` on another thread, `meanwhile` on this one while that waits, and `after` there.
void on_waiting_thread(std::function<void()> const& before, std::function<void()> const& meanwhile,
                       std::function<void()> const& after) {
  std::latch has_run{1}, goes_on{1};
  std::thread other{[&] {
    before();
    has_run.count_down();
    goes_on.wait();
    after();
  }};
  has_run.wait();
  meanwhile();
  goes_on.count_down();
  other.join();
}

TEST(idle_memory, one_call_returns_the_memory_of_eight_threads) {
  constexpr int threads = 8;
  std::latch have_run{threads}, go_on{1};
  std::atomic<std::size_t> kept{0};
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&] {
      use_scratch();
      use_workspace();
      have_run.count_down();
      go_on.wait();
      kept += committed_scratch() + this_thread_workspace().stats().held_bytes;
    });
  }
  have_run.wait();
  (void)signal_memory_pressure();
  go_on.count_down();
  for (std::thread& each : all) each.join();
  EXPECT_LT(kept, 8 * MiB) << "of 128 MiB";
}

TEST(idle_memory, all_scratch_arenas_of_a_thread_return_memory) {
  on_waiting_thread(
      [] {
        arena::scope one = scratch(no_conflicts);
        arena::scope two = scratch(one);
        (void)two.allocate(large);
        (void)one.allocate(large);
      },
      [] { (void)signal_memory_pressure(); },
      [] {
        const arena::scope one = scratch(no_conflicts);
        const arena::scope two = scratch(one);
        EXPECT_LT(one.arena().stats().committed_bytes, 1 * MiB);
        EXPECT_LT(two.arena().stats().committed_bytes, 1 * MiB);
      });
}

TEST(idle_memory, open_scope_keeps_its_memory) {
  std::byte* block = nullptr;
  std::latch has_run{1}, goes_on{1};
  std::thread other{[&] {
    arena::scope scope = scratch(no_conflicts);
    block = static_cast<std::byte*>(scope.allocate(large));
    std::memset(block, 7, large);
    workspace::scope in{this_thread_workspace()};
    auto x = in.zeros<float>(large / sizeof(float));
    x[5] = 3;
    {
      const arena::scope inner = scratch(no_conflicts);
      const workspace::scope<> inside{this_thread_workspace()};
    }
    has_run.count_down();
    goes_on.wait();
    EXPECT_EQ(block[large - 1], std::byte{7});
    EXPECT_EQ(x[5], 3.0F);
    EXPECT_GE(this_thread_workspace().stats().held_bytes, large);
    EXPECT_GE(scope.arena().stats().committed_bytes, large);
  }};
  has_run.wait();
  (void)signal_memory_pressure();
  goes_on.count_down();
  other.join();
}

TEST(idle_memory, workspace_used_outside_scopes_keeps_its_memory_until_reset) {
  on_waiting_thread(
      [] {
        use_workspace();
        auto outside = this_thread_workspace().zeros<int>(1000);
        outside[7] = 7;
        use_workspace();
      },
      [] { (void)signal_memory_pressure(); },
      [] {
        EXPECT_GE(this_thread_workspace().stats().held_bytes, large);
        EXPECT_EQ(this_thread_workspace().stats().active_slots, 1u);
        EXPECT_EQ(this_thread_workspace().depth(), 0u);
        this_thread_workspace().check_invariants();
        this_thread_workspace().reset();
        (void)signal_memory_pressure();
        EXPECT_EQ(this_thread_workspace().stats().held_bytes, 0u);
      });
}

TEST(idle_memory, of_other_workspaces_is_never_trimmed) {
  workspace ws;
  detail::workspace_core& core = detail::workspace_access::core(ws);
  const auto use = [&] {
    workspace::scope scope{ws};
    (void)scope.acquire<float>(1000);
  };
  use();
  EXPECT_EQ(core.trim_if_idle(), 0u);
  ws.release();
  EXPECT_EQ(core.trim_if_idle(), 0u);
  core.permit_idle_trims();
  use();
  EXPECT_GE(core.trim_if_idle(), 1000 * sizeof(float));
  ws.check_invariants();
}

TEST(idle_memory, is_returnable_after_rewind_release_and_each_cold_call) {
  std::thread{[] {
    workspace& own = this_thread_workspace();
    const std::vector<std::function<void()>> calls{
        [&] { (void)own.stats(); },
        [&] { (void)own.trim(); },
        [&] { (void)own.trim<int>(); },
        [&] { (void)own.trim_to_recent_peak(); },
        [&] { (void)own.compact(); },
        [&] { own.check_invariants(); },
        [&] { (void)own.describe(); },
        [&] { own.rewind(); },
        [&] { own.checkpoint(), own.rewind(); },
        [&] { own.checkpoint(), own.reset(); },
        [&] { (void)own.acquire<int>(5), own.rewind(); },
        [&] { (void)own.acquire<int>(5), own.reset(), own.reset<int>(); },
        [&] { (void)own.acquire<int>(5), own.release(); },
        [&] { own.for_each_type([](workspace_type_stats const&) {}); },
        [&] { tick_workspace_sweeps(); }};
    for (auto const& call : calls) {
      call();
      use_workspace();
      own.check_invariants();
      (void)signal_memory_pressure();
      EXPECT_EQ(own.stats().held_bytes, 0u);
    }
  }}.join();
}

TEST(idle_memory, assigned_scope_keeps_its_memory) {
  std::thread{[] {
    arena::scope scope = scratch(no_conflicts);
    void* const first = scope.allocate(100);
    scope = arena::scope{scratch(no_conflicts)};
    EXPECT_EQ(scope.allocate(100), first);
    (void)signal_memory_pressure();
    std::memset(first, 1, 100);
    arena::scope moved = std::move(scope);
    (void)signal_memory_pressure();
    std::memset(first, 1, 100);
    moved.end();
    use_scratch();
    (void)signal_memory_pressure();
    EXPECT_LT(committed_scratch(), 1 * MiB);
  }}.join();
}

TEST(idle_memory, is_trimmed_while_other_threads_use_it) {
  std::atomic<bool> ends{false};
  std::vector<std::thread> users;
  for (int t = 0; t < 2; ++t) {
    users.emplace_back([&, t] {
      workspace& own = this_thread_workspace();
      for (int i = 0; i < 400 || !ends; ++i) {
        {
          arena::scope scope = scratch(no_conflicts);
          auto* const bytes = static_cast<unsigned char*>(scope.allocate(100'000));
          std::memset(bytes, t, 100'000);
          workspace::scope in{own};
          auto x = in.zeros<float>(5000);
          auto y = own.zeros<int>(300);
          x[1] = 1, y[2] = 2;
          ASSERT_EQ(bytes[99'999], t);
          ASSERT_EQ(x[4999], 0.0F);
        }
        if (i % 16 == 0) (void)own.stats();
        if (i % 64 == 0) {
          auto outside = own.zeros<double>(100);
          outside[3] = i;
          ASSERT_EQ(outside[3], i);
          own.reset();
        }
      }
    });
  }
  for (int i = 0; i < 300; ++i) (void)signal_memory_pressure();
  ends = true;
  for (std::thread& each : users) each.join();
}

TEST(idle_memory, threads_that_end_during_a_trim_free_their_memory) {
  std::atomic<bool> ends{false};
  std::thread signals{[&] {
    while (!ends) (void)signal_memory_pressure();
  }};
  for (int i = 0; i < 20; ++i) {
    std::thread{[] {
      use_scratch();
      use_workspace();
    }}.join();
  }
  ends = true;
  signals.join();
}

}  // namespace
}  // namespace tidemark::test
