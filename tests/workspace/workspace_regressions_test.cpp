// SPDX-License-Identifier: Apache-2.0
// Strategy: defects that AdaptiveArrayPools.jl, a package of the same idea, had or may have had, each with
// the tests that would have found it; the comment above a group says what the defect was. They run at level
// 1, because its checks must not change what a workspace does.
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

#include <tidemark/core/units.hpp>
#include <tidemark/workspace/extras/dlpack.hpp>
#include <tidemark/workspace/extras/workspace_sweeps.hpp>
#include <tidemark/workspace/workspace.hpp>

#include "recording_supply.hpp"
#include "unseen_write.hpp"
#include "warning_recorder.hpp"
#include "workspace_levels.hpp"

namespace tidemark::test {
namespace {

using workspace_1 = checked_workspace;
using scope_1 = workspace_1::scope<>;

/// Types without a fixed list, as many as a test needs.
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

// The defect: only the first scope that used a type without a fixed list rewound it, if a second type was
// used without having been named.
TEST(workspace_regressions, rewinds_types_that_a_helper_acquires_in_every_scope_and_not_only_the_first) {
  workspace_1 ws;
  for (int i = 0; i < 5; ++i) {
    {
      workspace_1::scope<other<0>> scope{ws};
      (void)scope.acquire<other<0>>(3);
      helper<float>(ws);
    }
    EXPECT_EQ(of_type<other<0>>(ws).slot_count, 1u) << i;
    EXPECT_EQ(of_type<float>(ws).slot_count, 1u) << i;
    expect_at_rest(ws);
  }
}

// The defect: check levels were set at run time. Objects made before did not notice, and some checks came
// without the others.
TEST(workspace_regressions, switches_all_checks_on_or_off_together) {
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

// The defect: memory of an outer scope that an inner one returned was taken for an escape.
TEST(workspace_regressions, rejects_inner_memory_that_escapes_and_not_memory_of_an_outer_scope) {
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

template <class T>
T identity(T value) {
  return value;
}

// The defect: escapes were judged by names in the source, which misses what a function, a swap or a member
// passes on. Here addresses are compared.
TEST(workspace_regressions, finds_escapes_through_functions_swaps_and_members) {
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

// The defect: checks allocated at the end of each scope, and some kinds of end did not clear the records of
// what may escape, so that other memory at the same address was reported later.
TEST(workspace_regressions, allocates_nothing_for_checks_once_warm) {
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
      (void)acquire_tensor<double>(scope, 2, 3);
      return std::pair{std::vector<std::complex<double>>(2), std::span<double>{}};
    });
  };
  step();
  const std::size_t calls = records.calls + memory.calls;
  for (int i = 0; i < 1000; ++i) step();
  EXPECT_EQ(records.calls + memory.calls, calls);
}

TEST(workspace_regressions, clears_its_records_at_every_kind_of_end) {
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

TEST(workspace_regressions, accepts_owned_memory_at_an_address_that_was_a_slots) {
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

// The defect: compaction measured a slot by a size that it once had, shrank it below a view in use, left
// headers that pointed to the old memory, or overflowed if options were extreme.
TEST(workspace_regressions, keeps_the_size_of_a_slot_in_use_when_compacting) {
  workspace_1 ws;
  with_workspace(ws, [](scope_1& scope) { (void)scope.acquire<double>(1'000'000); });
  with_workspace(ws, [](scope_1& scope) { (void)acquire_tensor<double>(scope, 100); });
  scope_1 scope{ws};
  const auto live = scope.fill(7.0, 1000);
  const compact_summary summary = ws.compact();
  EXPECT_EQ(summary.slot_count, 0u);
  EXPECT_EQ(summary.in_use, 1u);
  EXPECT_EQ(ws.stats().held_bytes, 8'000'000u);
  EXPECT_TRUE(std::ranges::all_of(live, [](double value) { return value == 7.0; }));
}

TEST(workspace_regressions, compacts_by_the_newest_request_and_not_the_largest) {
  workspace_1 ws;
  with_workspace(ws, [](scope_1& scope) { (void)scope.acquire<double>(1'000'000); });
  with_workspace(ws, [](scope_1& scope) { (void)acquire_tensor<double>(scope, 100); });
  EXPECT_EQ(ws.compact().slot_count, 1u);
  EXPECT_EQ(ws.stats().held_bytes, 150 * sizeof(double));
}

TEST(workspace_regressions, points_headers_of_every_rank_to_the_memory_after_compacting) {
  recording_resource memory;
  workspace_1 ws{&memory};
  std::array<dl_tensor*, 3> headers{};
  const auto use = [&](scope_1& scope, std::size_t rank) {
    if (rank == 1) return acquire_tensor<double>(scope, 24);
    if (rank == 2) return acquire_tensor<double>(scope, 6, 4);
    return acquire_tensor<double>(scope, 2, 3, 4);
  };
  with_workspace(ws, [](scope_1& scope) { (void)scope.acquire<double>(1'000'000); });
  for (std::size_t rank = 1; rank <= 3; ++rank) {
    with_workspace(ws, [&](scope_1& scope) { headers[rank - 1] = use(scope, rank); });
  }
  EXPECT_EQ(ws.compact().slot_count, 1u);
  EXPECT_EQ(memory.outstanding, 36 * sizeof(double)) << "the memory before is gone";
  for (std::size_t rank = 1; rank <= 3; ++rank) {
    scope_1 scope{ws};
    dl_tensor* const header = use(scope, rank);
    EXPECT_EQ(header, headers[rank - 1]);
    EXPECT_TRUE(memory.holds(header->data));
    std::fill_n(static_cast<double*>(header->data), 24, 7.0);  // a sanitizer would see a wrong one
  }
}

TEST(workspace_regressions, changes_nothing_when_compacting_by_extreme_options) {
  workspace_1 ws;
  with_workspace(ws, [](scope_1& scope) { (void)scope.acquire<double>(1'000'000); });
  with_workspace(ws, [](scope_1& scope) { (void)scope.acquire<double>(100); });
  const double no_number = std::nan("");
  for (const compact_options& extreme :
       {compact_options{.headroom = 1e300}, compact_options{.headroom = 1e6},
        compact_options{.factor = 1e300}, compact_options{.factor = no_number},
        compact_options{.headroom = no_number}}) {
    EXPECT_EQ(ws.compact(extreme).slot_count, 0u);
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

// The defect: sweeps ran at the end of a scope, which an early return or an exception skipped, or in inner
// scopes while the outer ones were in use; and their failures reached the user.
TEST(workspace_regressions, serves_a_sweep_at_the_next_outermost_scope_however_the_last_one_ended) {
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

// The defect: a trim forgot the peak when a scope ended, left out types without a fixed list, or changed
// results.
TEST(workspace_regressions, keeps_the_recent_peak_in_a_trim_and_drops_types_that_were_not_used) {
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
  EXPECT_EQ(of_type<double>(ws).slot_count, 3u);
  EXPECT_EQ(of_type<other<8>>(ws).slot_count, 2u);
  tick_workspace_sweeps();
  const scope_1 serves{ws};
  EXPECT_EQ(of_type<double>(ws).slot_count, 1u);
  EXPECT_EQ(of_type<other<8>>(ws).slot_count, 0u);
}

// The defect: new settings were mixed with the old ones.
TEST(workspace_regressions, replaces_all_sweep_options_by_new_ones) {
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

// The defect: a scope saved and restored all types that there were, so that its cost grew with types that it
// did not use.
template <int... N>
void register_types(workspace_1& ws, std::integer_sequence<int, N...>) {
  (helper<other<1000 + N>>(ws), ...);
}

TEST(workspace_regressions, saves_only_what_a_scope_uses_however_many_types_there_are) {
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

// The defect: an outer scope took the acquisitions of an inner one for its own, a scope whose last expression
// was its memory by accident was rejected, and a list was looked up once and used after it was gone.
TEST(workspace_regressions, saves_for_each_scope_the_types_that_it_uses_itself) {
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

TEST(workspace_regressions, judges_the_result_of_an_assignment_by_what_it_refers_to) {
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

TEST(workspace_regressions, rejects_a_release_while_a_scope_has_named_types) {
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
