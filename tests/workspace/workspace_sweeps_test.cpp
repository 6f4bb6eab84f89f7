// SPDX-License-Identifier: Apache-2.0
// Strategy: the tests make ticks by hand, so that the requests of each tick are known. The sweeper's own
// thread has an interval of an hour, except in a test of its clock, which waits for a tick. The last tests
// tick on one thread while others work, which must not change their results. ThreadSanitizer runs the tests
// too.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <memory_resource>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <tidemark/workspace/workspace.hpp>
#include <tidemark/workspace/workspace_options.hpp>

#include "calling_upstream.hpp"
#include "caught.hpp"
#include "recording_supply.hpp"
#include "workspace_levels.hpp"

namespace tidemark::test {
namespace {

using swept_checked_workspace = checked_workspace;

/// Makes the workspace perform its pending requests.
template <class Workspace>
void open_a_scope(Workspace& ws) {
  typename Workspace::template scope<> outermost{ws};
}

template <class Workspace>
void use(Workspace& ws, std::size_t arrays, std::size_t n = 100) {
  typename Workspace::template scope<> outermost{ws};
  for (std::size_t i = 0; i < arrays; ++i) (void)outermost.template acquire<double>(n);
}

/// Each test begins without requests and leaves none. Its sweeper, if it has one, ticks only on demand, and
/// trims at each tick.
template <class Workspace>
class sweeps : public testing::Test {
 protected:
  using scope = typename Workspace::template scope<>;
  static constexpr std::chrono::hours never{1};
  static constexpr std::size_t wide = 1'000'000;  // doubles: enough to be compacted
  static constexpr std::size_t wide_bytes = wide * sizeof(double);

  sweeps() { enable_workspace_sweeps({.interval = never, .trim_every = 1}); }
  ~sweeps() override { disable_workspace_sweeps(); }

  void use(std::size_t arrays, std::size_t n = 100) { test::use(ws, arrays, n); }
  void open_a_scope() { test::open_a_scope(ws); }
  [[nodiscard]] std::size_t slots() const { return ws.stats().slot_count; }
  [[nodiscard]] std::size_t held_bytes() const { return ws.stats().held_bytes; }
  /// Takes one tick. The next tick compacts a wide slot, which was used little in between.
  void make_a_slot_to_compact() {
    use(1, wide);
    use(1, 1);
    tick_workspace_sweeps();
    use(1, 1);
  }

  recording_resource upstream;
  Workspace ws{&upstream};
};

using levels = testing::Types<unchecked_workspace, swept_checked_workspace>;
TYPED_TEST_SUITE(sweeps, levels, );

// S4.36
TYPED_TEST(sweeps, a_tick_changes_nothing_until_an_outermost_scope_opens) {
  this->use(3);
  tick_workspace_sweeps();  // ends the period in which there were 3
  this->open_a_scope();
  tick_workspace_sweeps();
  EXPECT_EQ(this->slots(), 3u);
  this->ws.checkpoint();  // an outermost one acts as a scope does
  EXPECT_EQ(this->slots(), 0u);
  this->ws.rewind();
}

// S4.36
TYPED_TEST(sweeps, inner_scopes_do_not_act_on_a_tick) {
  this->use(3);
  tick_workspace_sweeps();
  {
    typename TestFixture::scope outermost{this->ws};  // acts: the peak is 0 from here on
    tick_workspace_sweeps();
    for (int i = 0; i < 3; ++i) {
      typename TestFixture::scope inner{this->ws};
      (void)inner.template acquire<double>(1);
    }
    EXPECT_EQ(this->slots(), 3u);
  }
  EXPECT_EQ(this->slots(), 3u) << "the end of a scope does not act either";
  this->open_a_scope();
  EXPECT_EQ(this->slots(), 1u);
}

// S4.36 S4.77
TYPED_TEST(sweeps, tick_during_a_scope_left_by_an_exception_waits_for_the_next_scope) {
  this->use(3);
  tick_workspace_sweeps();
  this->open_a_scope();
  const auto fails = [&] {
    typename TestFixture::scope outermost{this->ws};
    tick_workspace_sweeps();
    throw std::runtime_error{"the body's"};
  };
  EXPECT_THROW(fails(), std::runtime_error);
  EXPECT_EQ(this->slots(), 3u);
  this->open_a_scope();
  EXPECT_EQ(this->slots(), 0u);
}

TYPED_TEST(sweeps, keep_memory_acquired_outside_scopes_in_place) {
  const std::span<double> kept = this->ws.template acquire<double>(TestFixture::wide);
  kept.front() = 1;
  kept.back() = 2;
  for (int i = 0; i < 4; ++i) {
    tick_workspace_sweeps();
    this->open_a_scope();
  }
  EXPECT_EQ(kept.front() + kept.back(), 3);
  EXPECT_EQ(this->held_bytes(), TestFixture::wide_bytes);
}

// S4.37
TYPED_TEST(sweeps, trims_at_every_third_tick_if_configured) {
  enable_workspace_sweeps({.interval = TestFixture::never, .trim_every = 3});
  this->use(3);
  std::vector<std::size_t> slots;
  for (int tick = 1; tick <= 6; ++tick) {
    tick_workspace_sweeps();
    this->open_a_scope();
    slots.push_back(this->slots());
  }
  EXPECT_EQ(slots, (std::vector<std::size_t>{3, 3, 3, 3, 3, 0}))
      << "3 were used before the third, none since";
}

// S4.37
TYPED_TEST(sweeps, each_tick_compacts_and_trim_every_0_never_trims) {
  enable_workspace_sweeps({.interval = TestFixture::never, .trim_every = 0});
  this->use(3);
  this->make_a_slot_to_compact();
  for (int i = 0; i < 50; ++i) {
    tick_workspace_sweeps();
    this->open_a_scope();
  }
  EXPECT_EQ(this->slots(), 3u);
  EXPECT_LT(this->held_bytes(), TestFixture::wide) << "compacts nevertheless";
}

TYPED_TEST(sweeps, enabling_again_replaces_all_options_and_resets_the_tick_count) {
  enable_workspace_sweeps(
      {.interval = TestFixture::never, .trim_every = 2, .compaction = {.least_bytes = SIZE_MAX}});
  tick_workspace_sweeps();
  enable_workspace_sweeps({.interval = TestFixture::never, .trim_every = 2});
  this->use(3);
  tick_workspace_sweeps();  // the first since then
  this->open_a_scope();
  tick_workspace_sweeps();  // trims: 3 were used
  this->make_a_slot_to_compact();
  EXPECT_EQ(this->slots(), 3u);
  tick_workspace_sweeps();  // trims
  this->open_a_scope();
  EXPECT_EQ(this->slots(), 1u);
  EXPECT_LT(this->held_bytes(), TestFixture::wide) << "by the default limit";
}

TYPED_TEST(sweeps, disabling_clears_requests) {
  this->use(3);
  tick_workspace_sweeps();
  this->open_a_scope();
  tick_workspace_sweeps();
  disable_workspace_sweeps();
  this->open_a_scope();
  EXPECT_EQ(this->slots(), 3u);
}

// S4.38
TYPED_TEST(sweeps, trim_to_the_peak_slot_count_since_the_last_trim) {
  this->use(3);
  tick_workspace_sweeps();
  this->open_a_scope();
  EXPECT_EQ(this->slots(), 3u);
  for (int i = 0; i < 10; ++i) this->use(1);  // often, and one at a time
  tick_workspace_sweeps();
  this->open_a_scope();
  EXPECT_EQ(this->slots(), 1u);
}

TYPED_TEST(sweeps, compact_by_the_largest_request_of_the_period) {
  this->use(1, TestFixture::wide);
  this->use(1, 1);  // the newest is small
  tick_workspace_sweeps();
  this->open_a_scope();
  EXPECT_EQ(this->held_bytes(), TestFixture::wide_bytes);
  this->use(1, 1);
  tick_workspace_sweeps();
  this->open_a_scope();
  EXPECT_EQ(this->held_bytes(), 2 * sizeof(double));
}

// S4.39
TYPED_TEST(sweeps, compaction_catches_any_exception_of_the_upstream) {
  calling_upstream strange;
  TypeParam on_it{&strange};
  use(on_it, 1, TestFixture::wide);
  use(on_it, 1, 1);
  tick_workspace_sweeps();
  use(on_it, 1, 1);
  tick_workspace_sweeps();
  strange.on_allocate = [] { throw 42; };
  EXPECT_NO_THROW(open_a_scope(on_it));
  EXPECT_EQ(on_it.stats().held_bytes, TestFixture::wide_bytes);
}

// S4.37
TEST(workspace_sweeps, reject_an_interval_of_0_and_keep_the_running_sweeper) {
  using namespace std::chrono_literals;
  workspace ws{workspace_options{.upstream = std::pmr::new_delete_resource()}};
  enable_workspace_sweeps({.interval = 1ms, .trim_every = 1});
  for (std::chrono::nanoseconds const interval : {0ns, -1ns}) {
    EXPECT_EQ(test::caught<std::invalid_argument>([&] {
                enable_workspace_sweeps({.interval = interval, .trim_every = 0});
              }).what(),
              "the interval of workspace sweeps is " + std::to_string(interval.count()) +
                  " ns, and must be more than 0");
  }
  EXPECT_TRUE(workspace_sweeps_enabled());
  use(ws, 1);
  while (ws.stats().slot_count !=
         0) {  // until the clock has struck twice; for ever if it has stopped, or never trims
    open_a_scope(ws);
    std::this_thread::yield();
  }
  disable_workspace_sweeps();
}

TEST(workspace_sweeps, accept_the_longest_interval) {
  // Added to the time of day it would overflow, which a sanitizer reports, and otherwise the clock would run
  // wild.
  enable_workspace_sweeps({.interval = std::chrono::nanoseconds::max(), .trim_every = 1});
  workspace ws{workspace_options{.upstream = std::pmr::new_delete_resource()}};
  use(ws, 1);
  for (int i = 0; i < 1000; ++i) {
    open_a_scope(ws);
    ASSERT_EQ(ws.stats().slot_count, 1u) << "after two ticks without use it would be gone";
    std::this_thread::yield();
  }
  disable_workspace_sweeps();
}

TYPED_TEST(sweeps, skip_a_workspace_with_sweeps_disabled) {
  TypeParam alone{workspace_options{.sweeps = false, .upstream = &this->upstream}};
  use(alone, 1, TestFixture::wide);
  for (int i = 0; i < 4; ++i) {
    use(alone, 1, 10);
    tick_workspace_sweeps();
  }
  use(alone, 1, 10);
  EXPECT_EQ(alone.stats().held_bytes, TestFixture::wide_bytes);
}

/// A sum over temporaries of all widths, that depends on the order of every addition. From step 2000 to 2020
/// it waits for 3 `ticks` before each step, if there are any.
template <class Workspace>
double simulate(Workspace& ws, std::atomic<std::size_t> const* ticks) {
  std::vector<double> state{0.5, 0.25, 0.125, 0.0625, 0.03125};
  for (std::size_t step = 0; step < 4000; ++step) {
    if (ticks != nullptr && 2000 <= step && step < 2020) {
      for (const std::size_t seen = ticks->load(); ticks->load() < seen + 3;) std::this_thread::yield();
    }
    typename Workspace::template scope<> scope{ws};
    const std::size_t width = 1 + step % 5, n = step % 11 == 0 ? 200'000 : 100, stride = n / 100;
    for (std::size_t w = 0; w < width; ++w) {
      auto x = scope.template acquire<double>(n);
      double sum = 0;
      for (std::size_t i = 0; i < n; i += stride) x(i) = std::fma(static_cast<double>(i), 1e-3, state[w]);
      for (std::size_t i = 0; i < n; i += stride) sum += std::sin(x(i));
      state[w] = sum / 100;
    }
  }
  double all = 0;
  for (double const one : state) all += one;
  return all;
}

TYPED_TEST(sweeps, keep_results_bitwise_identical) {
  const double alone = simulate(this->ws, nullptr);
  disable_workspace_sweeps();
  enable_workspace_sweeps({.interval = TestFixture::never, .trim_every = 3});
  recording_resource swept_upstream;
  TypeParam swept{&swept_upstream};
  std::atomic<bool> done{false};
  std::atomic<std::size_t> ticks{0};
  std::thread clock{[&] {
    std::mt19937 random{1};
    while (!done.load()) {
      tick_workspace_sweeps();
      ++ticks;
      for (auto pause = random() % 64; pause > 0; --pause) std::this_thread::yield();
    }
  }};
  const double with_ticks = simulate(swept, &ticks);
  done = true;
  clock.join();
  EXPECT_EQ(with_ticks, alone);
  EXPECT_TRUE(std::isfinite(alone));
  EXPECT_GT(swept_upstream.calls, this->upstream.calls) << "the ticks have done something";
  swept.check_invariants();
}

}  // namespace
}  // namespace tidemark::test
