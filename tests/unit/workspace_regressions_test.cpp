// SPDX-License-Identifier: Apache-2.0
// Strategy: defects that a package of the same idea once had, AdaptiveArrayPools.jl, each with the test that
// would have seen it, named by the number of the change there (n19 is #19). The text of #36 is known; for the
// others the numbers tell which part was changed and the defect is what that part's tests and notes suggest,
// so those tests stand for a class of defects. All run at level 1, because its checks must not change what a
// workspace does.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <new>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tidemark/units.hpp>
#include <tidemark/with_workspace.hpp>
#include <tidemark/workspace.hpp>
#include <tidemark/workspace_errors.hpp>
#include <tidemark/workspace_sweeps.hpp>

#include "recording_supply.hpp"
#include "unseen_write.hpp"
#include "warning_recorder.hpp"
#include "workspace_levels.hpp"

namespace tidemark::test {
namespace {

// Named in full, because builds may have other defaults.
using workspace_1 = basic_workspace<workspace_policy{.checks = 1, .pooling = true, .sweeps = true}>;
using scope_1 = workspace_1::scope<>;

/// Types that have no list of their own, as many as a test wants.
template <int N>
struct other {
  double value[2];
};
template <class T>
struct boxed {
  T value;
};

template <class T>
workspace_type_stats of_type(workspace_1 const& ws) {
  workspace_type_stats found;
  ws.for_each_type([&](workspace_type_stats const& one) {
    if (std::string{one.element} == detail::element_name<T>) found = one;
  });
  return found;
}

/// No defect, or leak, of any of these tests may show in the counts.
void expect_at_rest(workspace_1 const& ws) {
  EXPECT_EQ(ws.stats().active_slots, 0u);
  EXPECT_EQ(ws.stats().saved_counts, 0u);
  EXPECT_EQ(ws.stats().depth, 0u);
  ws.check_invariants();
}

// A function that is called in a scope, and acquires of a type that the scope has not named.
template <class T>
void helper(workspace_1& ws) {
  (void)ws.acquire<T>(3);
}

// #19 stands for: a type without a list of its own is given back by the first scope that uses it, when it is
// new, and no more by those after it, if a second type was used without having been named.
TEST(workspace_regressions, n19_fallback_types_are_rewound_from_the_second_scope_on) {
  workspace_1 ws;
  for (int i = 0; i < 5; ++i) {
    {
      workspace_1::scope<other<0>> scope{ws};
      (void)scope.acquire<other<0>>(3);
      helper<float>(ws);
    }
    EXPECT_EQ(of_type<other<0>>(ws).slots, 1u) << i;
    EXPECT_EQ(of_type<float>(ws).slots, 1u) << i;
    expect_at_rest(ws);
  }
}

TEST(workspace_regressions, n19_fallback_types_that_begin_in_an_inner_scope_are_rewound) {
  workspace_1 ws;
  for (int i = 0; i < 5; ++i) {
    scope_1 outer{ws};
    helper<other<1>>(ws);
    {
      workspace_1::scope<other<2>> inner{ws};
      (void)inner.acquire<other<2>>(3);
      helper<other<1>>(ws);
      EXPECT_EQ(of_type<other<1>>(ws).active_slots, 2u);
    }
    EXPECT_EQ(of_type<other<1>>(ws).active_slots, 1u);
    EXPECT_EQ(of_type<other<2>>(ws).active_slots, 0u);
    outer.end();
    EXPECT_EQ(of_type<other<1>>(ws).slots, 2u) << i;
    EXPECT_EQ(of_type<other<2>>(ws).slots, 1u) << i;
    expect_at_rest(ws);
  }
}

TEST(workspace_regressions, n19_a_type_that_is_named_and_then_acquired_is_saved_once) {
  workspace_1 ws;
  workspace_1::scope<other<3>, other<3>> scope{ws};
  (void)scope.acquire<other<3>>(3);
  helper<other<3>>(ws);
  EXPECT_EQ(ws.stats().saved_counts, 1u);
}

TEST(workspace_regressions, n19_two_types_of_one_template_are_two) {
  workspace_1 ws;
  for (int i = 0; i < 3; ++i) {
    scope_1 scope{ws};
    (void)scope.acquire<boxed<double>>(3);
    helper<boxed<float>>(ws);
    EXPECT_EQ(of_type<boxed<double>>(ws).slots, 1u);
    EXPECT_EQ(of_type<boxed<float>>(ws).slots, 1u);
  }
  expect_at_rest(ws);
}

// #31 stands for: checks in several levels, set at run time, of which an object made before knows nothing, or
// some come without the others.
TEST(workspace_regressions, n31_one_switch_has_all_checks_or_none) {
  const auto run = [](auto& ws) {
    std::array<bool, 4> seen{};
    double const* late = nullptr;
    const auto view = with_workspace(ws, [&](auto& scope) {
      auto fresh = scope.fill(7.0, 3);
      late = fresh.data();
      return fresh;
    });
    seen[0] = read_unseen(late, 7) == 0x7F;  // the first byte of a not-a-number, and not of 7
    try {
      (void)view.data();
    } catch (stale_view const& stale) {
      seen[1] = true;
      seen[2] = std::string{stale.what()}.find("workspace_regressions_test.cpp:") != std::string::npos;
    }
    try {
      (void)with_workspace(ws,
                           [](auto& scope) { return std::span<double>{scope.template acquire<double>(3)}; });
    } catch (workspace_escape const&) {
      seen[3] = true;
    }
    return seen;
  };
  workspace_1 checked;
  unchecked_workspace unchecked;
  EXPECT_EQ(run(checked), (std::array{true, true, true, true}));
  EXPECT_EQ(run(unchecked), (std::array{false, false, false, false}));
}

// The switch is part of the type, so that all of a type agree, and no view of one kind can pass for the
// other.
static_assert(workspace_1::checked && !unchecked_workspace::checked);
static_assert(!std::is_convertible_v<unchecked_workspace::view<double>, workspace_1::view<double>>);

TEST(workspace_regressions, n31_without_checks_nothing_is_kept_beside_the_slots) {
  recording_resource records;
  recording_resource memory;
  workspace_options options;
  options.bookkeeping = &records;
  options.upstream = &memory;
  unchecked_workspace ws{options};
  const auto step = [&] {
    unchecked_workspace::scope<> scope{ws};
    (void)scope.acquire<double>(3);
    (void)scope.acquire<other<4>>(3);
  };
  step();
  const std::size_t calls = records.calls + memory.calls;
  for (int i = 0; i < 100; ++i) step();
  EXPECT_EQ(records.calls + memory.calls, calls);
}

// #36: memory of an outer scope that was returned from an inner one was taken for an escape.
TEST(workspace_regressions, n36_outer_memory_is_no_escape_and_inner_memory_is) {
  workspace_1 ws;
  scope_1 outer{ws};
  const auto a = outer.fill(7.0, 3);
  {
    scope_1 inner{ws};
    const auto b = inner.fill(8.0, 3);
    EXPECT_NO_THROW((void)inner.returning(a));
    EXPECT_NO_THROW((void)inner.returning(a.elements().first(2)));
    EXPECT_NO_THROW((void)inner.returning(std::tuple{a, std::accumulate(b.begin(), b.end(), 0.0)}));
    EXPECT_THROW((void)inner.returning(b), workspace_escape);
    EXPECT_THROW((void)inner.returning(b.elements().first(2)), workspace_escape);
    EXPECT_THROW((void)inner.returning(std::tuple{a, b}), workspace_escape);
  }
  EXPECT_EQ(a[2], 7.0);
  EXPECT_THROW((void)outer.returning(a), workspace_escape);
}

// #36 as well: inner scopes that had been left without their end were still counted when the result was
// looked at.
TEST(workspace_regressions, n36_results_are_judged_by_their_own_scope_after_an_inner_one_was_left) {
  const warning_recorder recorder;
  workspace_1 ws;
  scope_1 outermost{ws};
  const auto grand = outermost.acquire<double>(3);
  {
    scope_1 outer{ws};
    const auto own = outer.acquire<double>(3);
    try {
      ws.checkpoint();  // no object ends it
      helper<double>(ws);
      throw std::runtime_error{"on the way"};
    } catch (std::runtime_error const&) {
      EXPECT_THROW((void)outer.returning(own), workspace_escape);
      EXPECT_NO_THROW((void)outer.returning(grand));
    }
  }
  EXPECT_EQ(ws.stats().depth, 1u);
  EXPECT_EQ(ws.stats().active_slots, 1u);
}

// #36 as well: a type of which the inner scope has acquired nothing has nothing to report.
TEST(workspace_regressions, n36_types_without_a_saved_count_have_no_escapes) {
  workspace_1 ws;
  scope_1 outer{ws};
  const auto kept = outer.acquire<other<5>>(3);
  const auto bits = outer.trues(70);
  scope_1 inner{ws};
  (void)inner.acquire<double>(3);
  EXPECT_NO_THROW((void)inner.returning(std::pair{kept, bits}));
}

template <class T>
T identity(T value) {
  return value;
}

// #38 stands for: escapes judged by names in the source, which forget what a function, a swap or a member
// passes on. Here addresses are looked at, so names do not matter.
TEST(workspace_regressions, n38_escapes_are_found_through_functions_swaps_and_members) {
  workspace_1 ws;
  scope_1 scope{ws};
  std::vector<double> owned(3, 1.0);
  std::span<double> x = scope.acquire<double>(3);
  EXPECT_THROW((void)scope.returning(identity(x)), workspace_escape);
  EXPECT_THROW((void)scope.returning(x.last(1)), workspace_escape);
  struct holder {
    double scale;
    std::span<double> data;
  };
  const holder held{2, x};
  EXPECT_THROW((void)scope.returning(held.data), workspace_escape);
  EXPECT_NO_THROW((void)scope.returning(held.scale));
  std::span<double> y{owned};
  std::swap(x, y);
  EXPECT_NO_THROW((void)scope.returning(x));
  EXPECT_THROW((void)scope.returning(y), workspace_escape);
}

TEST(workspace_regressions, n38_a_copy_and_a_name_that_was_bound_anew_are_no_escapes) {
  workspace_1 ws;
  scope_1 scope{ws};
  std::vector<double> owned(3, 1.0);
  std::span<double> x = scope.fill(7.0, 3);
  const std::vector<double> copy(x.begin(), x.end());
  EXPECT_NO_THROW((void)scope.returning(copy));
  x = owned;
  EXPECT_NO_THROW((void)scope.returning(x));
}

/// Gives the same memory each time, once at a time.
class one_block final : public std::pmr::memory_resource {
 public:
  bool out = false;

 private:
  void* do_allocate(std::size_t bytes, std::size_t) override {
    if (out || bytes > sizeof memory_) throw std::bad_alloc{};
    out = true;
    return memory_;
  }
  void do_deallocate(void*, std::size_t, std::size_t) override { out = false; }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  alignas(64) std::byte memory_[1024];
};

// #39 stands for: checks that allocate at the end of each scope, and records of what may escape that are not
// cut by every kind of end, so that they accuse an innocent at the same address later.
TEST(workspace_regressions, n39_checks_allocate_nothing_once_warm) {
  recording_resource records;
  recording_resource memory;
  workspace_options options;
  options.bookkeeping = &records;
  options.upstream = &memory;
  workspace_1 ws{options};
  const auto step = [&] {
    const double sum = with_workspace(ws, [](scope_1& scope) {
      (void)scope.acquire<other<6>>(3);
      return scope.fill(7.0, 3)[1];
    });
    EXPECT_EQ(sum, 7.0);
    (void)with_workspace(ws, [](scope_1& scope) {
      (void)scope.acquire_tensor<double>(2, 3);
      return std::pair{std::vector<std::complex<double>>(2), std::span<double>{}};
    });
  };
  step();
  const std::size_t calls = records.calls + memory.calls;
  for (int i = 0; i < 1000; ++i) step();
  EXPECT_EQ(records.calls + memory.calls, calls);
}

TEST(workspace_regressions, n39_every_kind_of_end_cuts_the_records) {
  workspace_1 ws;
  const auto use = [&] {
    helper<double>(ws);
    helper<other<7>>(ws);
  };
  {
    const scope_1 scope{ws};
    use();
  }
  expect_at_rest(ws);
  {
    const workspace_1::scope<double> scope{ws};
    use();
  }
  expect_at_rest(ws);
  {
    const workspace_1::scope<double, other<7>> scope{ws};
    use();
  }
  expect_at_rest(ws);
  ws.checkpoint<double>();
  use();
  ws.rewind();
  expect_at_rest(ws);
  ws.checkpoint();
  use();
  ws.reset();
  expect_at_rest(ws);
  ws.checkpoint();
  use();
  ws.release();
  expect_at_rest(ws);
  try {
    const scope_1 scope{ws};
    use();
    throw std::runtime_error{"on the way"};
  } catch (std::runtime_error const&) {
    expect_at_rest(ws);
  }
}

TEST(workspace_regressions, n39_owned_memory_at_an_address_that_was_a_slots_is_no_escape) {
  one_block memory;
  workspace_1 ws{&memory};
  void const* before = nullptr;
  with_workspace(ws, [&](scope_1& scope) { before = scope.acquire<double>(3).data(); });
  (void)ws.trim();
  ASSERT_FALSE(memory.out);
  const std::pmr::vector<double> owned(3, 1.0, &memory);
  ASSERT_EQ(owned.data(), before);
  scope_1 scope{ws};
  EXPECT_NO_THROW((void)scope.returning(std::span{owned}));
}

// #45 stands for: compaction that measures a slot by a size it once had, shrinks it below a view that is in
// use, leaves headers that point to the memory before, or overflows where options are extreme.
TEST(workspace_regressions, n45_compaction_never_shrinks_below_a_view_in_use) {
  workspace_1 ws;
  with_workspace(ws, [](scope_1& scope) { (void)scope.acquire<double>(1'000'000); });
  with_workspace(ws, [](scope_1& scope) { (void)scope.acquire_tensor<double>(100); });
  scope_1 scope{ws};
  const auto live = scope.fill(7.0, 1000);
  const compact_summary summary = ws.compact();
  EXPECT_EQ(summary.slots, 0u);
  EXPECT_EQ(summary.in_use, 1u);
  EXPECT_EQ(ws.stats().held_bytes, 8'000'000u);
  EXPECT_TRUE(std::ranges::all_of(live, [](double value) { return value == 7.0; }));
}

TEST(workspace_regressions, n45_compaction_measures_the_newest_request_and_not_the_largest) {
  workspace_1 ws;
  with_workspace(ws, [](scope_1& scope) { (void)scope.acquire<double>(1'000'000); });
  with_workspace(ws, [](scope_1& scope) { (void)scope.acquire_tensor<double>(100); });
  EXPECT_EQ(ws.compact().slots, 1u);
  EXPECT_EQ(ws.stats().held_bytes, 150 * sizeof(double));
}

TEST(workspace_regressions, n45_headers_of_every_rank_point_to_the_new_memory) {
  recording_resource memory;
  workspace_1 ws{&memory};
  std::array<dl_tensor*, 3> headers{};
  const auto use = [&](scope_1& scope, std::size_t rank) {
    if (rank == 1) return scope.acquire_tensor<double>(24);
    if (rank == 2) return scope.acquire_tensor<double>(6, 4);
    return scope.acquire_tensor<double>(2, 3, 4);
  };
  with_workspace(ws, [](scope_1& scope) { (void)scope.acquire<double>(1'000'000); });
  for (std::size_t rank = 1; rank <= 3; ++rank) {
    with_workspace(ws, [&](scope_1& scope) { headers[rank - 1] = use(scope, rank); });
  }
  EXPECT_EQ(ws.compact().slots, 1u);
  EXPECT_EQ(memory.outstanding, 36 * sizeof(double)) << "the memory before is gone";
  for (std::size_t rank = 1; rank <= 3; ++rank) {
    scope_1 scope{ws};
    dl_tensor* const header = use(scope, rank);
    EXPECT_EQ(header, headers[rank - 1]);
    EXPECT_TRUE(memory.holds(header->data));
    std::fill_n(static_cast<double*>(header->data), 24, 7.0);  // a sanitizer would see a wrong one
  }
}

TEST(workspace_regressions, n45_extreme_options_change_nothing) {
  workspace_1 ws;
  with_workspace(ws, [](scope_1& scope) { (void)scope.acquire<double>(1'000'000); });
  with_workspace(ws, [](scope_1& scope) { (void)scope.acquire<double>(100); });
  const double no_number = std::nan("");
  for (const compact_options& extreme :
       {compact_options{.headroom = 1e300}, compact_options{.headroom = 1e6},
        compact_options{.factor = 1e300}, compact_options{.factor = no_number},
        compact_options{.headroom = no_number}}) {
    EXPECT_EQ(ws.compact(extreme).slots, 0u);
    EXPECT_EQ(ws.stats().held_bytes, 8'000'000u);
    ws.check_invariants();
  }
}

/// The sweeper with options of a test, which ticks only when the test does.
class held_sweeper {
 public:
  explicit held_sweeper(sweep_options options = {}) { enable(options); }
  held_sweeper(held_sweeper const&) = delete;
  held_sweeper& operator=(held_sweeper const&) = delete;
  ~held_sweeper() {
    enable_workspace_sweeps({.interval = std::chrono::hours{1}});
    disable_workspace_sweeps();
  }
  static void enable(sweep_options options) {
    options.interval = std::chrono::hours{1};
    enable_workspace_sweeps(options);
  }
};

void grow_and_use_little(workspace_1& ws) {
  with_workspace(ws, [](scope_1& scope) { (void)scope.acquire<double>(1'000'000); });
  with_workspace(ws, [](scope_1& scope) { (void)scope.acquire<double>(100); });
}

/// A slot that a sweep will shrink: its large request is older than the last sweep.
void make_compactable(workspace_1& ws) {
  grow_and_use_little(ws);
  tick_workspace_sweeps();
  {
    const scope_1 served{ws};
  }
  with_workspace(ws, [](scope_1& scope) { (void)scope.acquire<double>(100); });
  ASSERT_EQ(ws.stats().held_bytes, 8'000'000u);
}

// #46 stands for: work for the background that is done where a scope ends, which an early return or an
// exception passes by, or in inner scopes, whose outer ones are at work; and a failure of that work that
// reaches the user.
TEST(workspace_regressions, n46_a_request_is_served_at_the_next_outermost_scope_however_the_last_one_ended) {
  const held_sweeper sweeper;
  const auto early = [](workspace_1& ws) {
    const scope_1 scope{ws};
    tick_workspace_sweeps();
    return;
  };
  const auto thrown = [](workspace_1& ws) {
    try {
      const scope_1 scope{ws};
      tick_workspace_sweeps();
      throw std::runtime_error{"the user's"};
    } catch (std::runtime_error const& error) {
      EXPECT_EQ(error.what(), std::string{"the user's"});
    }
  };
  const auto broken_off = [](workspace_1& ws) {
    for (;;) {
      const scope_1 scope{ws};
      tick_workspace_sweeps();
      break;
    }
  };
  for (auto* leave : {+early, +thrown, +broken_off}) {
    workspace_1 ws;
    make_compactable(ws);
    leave(ws);
    EXPECT_EQ(ws.stats().held_bytes, 8'000'000u) << "nothing happens at the end";
    const scope_1 next{ws};
    EXPECT_EQ(ws.stats().held_bytes, 150 * sizeof(double));
  }
}

TEST(workspace_regressions, n46_inner_scopes_leave_a_request_to_the_outermost) {
  const held_sweeper sweeper;
  workspace_1 ws;
  make_compactable(ws);
  {
    const scope_1 outer{ws};
    tick_workspace_sweeps();
    const scope_1 inner{ws};
    EXPECT_EQ(ws.stats().held_bytes, 8'000'000u);
  }
  const scope_1 outermost{ws};
  EXPECT_EQ(ws.stats().held_bytes, 150 * sizeof(double));
}

TEST(workspace_regressions, n46_a_smaller_slot_that_cannot_be_had_is_not_the_users_concern) {
  const held_sweeper sweeper;
  recording_resource memory;
  workspace_1 ws{&memory};
  make_compactable(ws);
  tick_workspace_sweeps();
  memory.fail_from = memory.calls;
  EXPECT_NO_THROW(const scope_1 scope{ws});
  EXPECT_EQ(ws.stats().held_bytes, 8'000'000u);
  ws.check_invariants();
}

TEST(workspace_regressions, n46_a_tick_passes_over_workspaces_that_are_gone) {
  const held_sweeper sweeper;
  workspace_1 first;
  auto gone = std::make_unique<workspace_1>();
  workspace_1 last;
  make_compactable(first);
  make_compactable(last);
  gone.reset();
  tick_workspace_sweeps();
  const scope_1 scope_of_first{first};
  const scope_1 scope_of_last{last};
  EXPECT_EQ(first.stats().held_bytes, 150 * sizeof(double));
  EXPECT_EQ(last.stats().held_bytes, 150 * sizeof(double));
}

// #47 stands for: a trim that forgets a peak when a scope ends, leaves out types without a list of their own,
// or changes results.
TEST(workspace_regressions, n47_a_trim_keeps_the_recent_peak_and_drops_types_that_were_not_used) {
  const held_sweeper sweeper{{.trim_every = 1}};
  workspace_1 ws;
  const auto use = [&](int slots_of_double, int slots_of_other) {
    const scope_1 scope{ws};
    for (int i = 0; i < slots_of_double; ++i) helper<double>(ws);
    for (int i = 0; i < slots_of_other; ++i) helper<other<8>>(ws);
  };
  use(3, 2);
  tick_workspace_sweeps();
  use(1, 0);  // serves the tick: the peak before it was 3 and 2
  EXPECT_EQ(of_type<double>(ws).slots, 3u);
  EXPECT_EQ(of_type<other<8>>(ws).slots, 2u);
  tick_workspace_sweeps();
  const scope_1 serves{ws};
  EXPECT_EQ(of_type<double>(ws).slots, 1u);
  EXPECT_EQ(of_type<other<8>>(ws).slots, 0u);
}

double run_steps(bool with_ticks) {
  workspace_1 ws;
  double sum = 0;
  for (std::size_t step = 0; step < 4000; ++step) {
    if (with_ticks && step % 7 == 0) tick_workspace_sweeps();
    scope_1 scope{ws};
    const std::size_t width = step % 5 + 1;
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t n = step % 1100 == 11 && i == 0 ? 200'000 : 10 + step % 13;
      const auto values = scope.acquire<double>(n);
      for (std::size_t k = 0; k < n; ++k) values[k] = std::sin(static_cast<double>(k * width + step));
      sum += std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(n);
    }
  }
  return sum;
}

TEST(workspace_regressions, n47_results_are_the_same_to_the_last_bit_with_sweeps_and_without) {
  const held_sweeper sweeper{{.trim_every = 3, .compaction = {.factor = 2, .least_bytes = 1}}};
  EXPECT_EQ(run_steps(true), run_steps(false));
}

// #48 stands for: settings that mix with those before them when they are given anew.
TEST(workspace_regressions, n48_new_options_replace_all_of_the_old_ones) {
  const held_sweeper sweeper{{.compaction = {.factor = 2, .least_bytes = 1}}};
  workspace_1 ws;
  const auto bytes_after_sweeps = [&] {
    ws.release();
    with_workspace(ws, [](scope_1& scope) { (void)scope.acquire<double>(1000); });
    for (int tick = 0; tick < 2;
         ++tick) {  // the large request is older than the period that the second looks at
      with_workspace(ws, [](scope_1& scope) { (void)scope.acquire<double>(10); });
      tick_workspace_sweeps();
      const scope_1 served{ws};
    }
    return ws.stats().held_bytes;
  };
  EXPECT_EQ(bytes_after_sweeps(), 15 * sizeof(double));
  held_sweeper::enable({});
  EXPECT_EQ(bytes_after_sweeps(), 1000 * sizeof(double)) << "less than least_bytes, which is 1 MiB again";
}

TEST(workspace_regressions, n48_new_options_begin_to_count_ticks_anew) {
  const held_sweeper sweeper{{.trim_every = 2}};
  workspace_1 ws;
  const auto slots_after_tick = [&] {
    tick_workspace_sweeps();
    {
      const scope_1 served{ws};
    }
    return ws.stats().slots;
  };
  with_workspace(ws, [](scope_1& scope) { (void)scope.acquire<double>(10); });
  EXPECT_EQ(slots_after_tick(), 1u);
  EXPECT_EQ(slots_after_tick(), 1u) << "a trim, whose period had a use";
  EXPECT_EQ(slots_after_tick(), 1u);
  held_sweeper::enable({.trim_every = 2});
  EXPECT_EQ(slots_after_tick(), 1u) << "it would be the second one";
  EXPECT_EQ(slots_after_tick(), 0u);
}

TEST(workspace_regressions, n48_no_trim_where_there_is_to_be_none) {
  const held_sweeper sweeper{{.trim_every = 0}};
  workspace_1 ws;
  with_workspace(ws, [](scope_1& scope) { (void)scope.acquire<double>(10); });
  for (int i = 0; i < 30; ++i) {
    tick_workspace_sweeps();
    const scope_1 served{ws};
    EXPECT_EQ(ws.stats().slots, 1u);
  }
}

// #50 was not found, and stands, as a guess by what was changed around it, for: a scope that saves and
// restores all types that there are, so that its cost grows with types it does not use.
template <int... N>
void register_types(workspace_1& ws, std::integer_sequence<int, N...>) {
  (helper<other<1000 + N>>(ws), ...);
}

TEST(workspace_regressions, n50_a_scope_saves_only_what_it_uses_however_many_types_there_are) {
  workspace_1 ws;
  register_types(ws, std::make_integer_sequence<int, 3>{});
  const auto use = [&] {
    scope_1 scope{ws};
    EXPECT_EQ(ws.stats().saved_counts, 0u);
    helper<other<1001>>(ws);
    helper<other<1001>>(ws);
    EXPECT_EQ(ws.stats().saved_counts, 1u);
    scope.end();
    EXPECT_EQ(ws.stats().saved_counts, 0u);
  };
  use();
  register_types(ws, std::make_integer_sequence<int, 100>{});
  use();
  EXPECT_EQ(of_type<other<1099>>(ws).active_slots, 1u) << "acquired outside, and untouched";
}

TEST(workspace_regressions, n50_what_is_known_of_a_type_ends_with_release_and_survives_trim_and_reset) {
  workspace_1 ws;
  helper<other<9>>(ws);
  ws.reset();
  helper<other<9>>(ws);
  EXPECT_EQ(of_type<other<9>>(ws).slots, 1u);
  ws.reset();
  (void)ws.trim();
  helper<other<9>>(ws);
  EXPECT_EQ(of_type<other<9>>(ws).slots, 1u);
  ws.release();
  EXPECT_EQ(ws.stats().types, 0u);
  helper<other<9>>(ws);
  EXPECT_EQ(of_type<other<9>>(ws).active_slots, 1u);
}

// #53 stands for: an outer scope that takes the acquisitions of an inner one for its own, a scope whose last
// expression is its memory by accident, and a list that is looked up once and used after it is gone.
TEST(workspace_regressions, n53_an_inner_scope_saves_its_own_types_and_not_the_outer_ones) {
  workspace_1 ws;
  const workspace_1::scope<double> outer{ws};
  EXPECT_EQ(ws.stats().saved_counts, 1u);
  {
    workspace_1::scope<float> inner{ws};
    EXPECT_EQ(ws.stats().saved_counts, 2u);
    (void)inner.acquire<float>(3);
    EXPECT_EQ(ws.stats().saved_counts, 2u) << "saved when it was opened";
    (void)inner.acquire<double>(3);
    EXPECT_EQ(ws.stats().saved_counts, 3u) << "the outer scope's count is not the inner one's";
  }
  EXPECT_EQ(ws.stats().saved_counts, 1u);
  EXPECT_EQ(ws.stats().active_slots, 0u);
}

TEST(workspace_regressions, n53_a_result_of_an_assignment_is_judged_by_what_it_refers_to) {
  workspace_1 ws;
  std::vector<double> owned(3);
  const auto assign = [](std::span<double> to, std::span<double const> from) -> double& {
    std::ranges::copy(from, to.begin());
    return to[0] = 7;
  };
  EXPECT_NO_THROW(with_workspace(
      ws, [&](scope_1& scope) -> double& { return assign(owned, scope.zeros<double>(3).elements()); }));
  EXPECT_EQ(owned[0], 7.0);
  EXPECT_THROW(
      with_workspace(ws, [&](scope_1& scope) -> double& { return assign(scope.acquire<double>(3), owned); }),
      workspace_escape);
}

TEST(workspace_regressions, n53_a_discarded_array_at_the_end_of_a_scope_is_no_error) {
  workspace_1 ws;
  EXPECT_NO_THROW((void)with_workspace(ws, [](scope_1& scope) { return scope.fill(7.0, 3); }));
}

TEST(workspace_regressions, n53_a_scope_that_has_named_its_types_keeps_their_lists_from_release) {
  workspace_1 ws;
  workspace_1::scope<other<10>> scope{ws};
  EXPECT_THROW(ws.release(), std::logic_error);
  (void)scope.acquire<other<10>>(3);
  EXPECT_EQ(of_type<other<10>>(ws).active_slots, 1u);
  scope.end();
  ws.release();
  workspace_1::scope<other<10>> next{ws};
  (void)next.acquire<other<10>>(3);
  EXPECT_EQ(of_type<other<10>>(ws).active_slots, 1u);
}

}  // namespace
}  // namespace tidemark::test
