// SPDX-License-Identifier: Apache-2.0
// Strategy: a scope is right if the arena's position after its end is that of its opening, for every kind of
// end. Misuse is reported and leaves the arena in a state that its invariants describe.
#include <tidemark/arena/arena.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <memory_resource>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "violation_recorder.hpp"

namespace tidemark {
namespace {

using test::violation_recorder;

// S0.18
TEST(arena_scope, rewinds_when_it_is_destroyed) {
  arena a;
  (void)a.allocate(100);
  const std::size_t before = a.position();
  void* inside = nullptr;
  {
    arena::scope scope{a};
    inside = scope.push_bytes(1000);
    (void)scope.push<int>(3);
    (void)scope.push_array<double>(10);
    (void)scope.push_array<double>(10, uninitialized);
    (void)scope.allocate(10);
    (void)scope.push_bytes(10, uninitialized, 64);
    EXPECT_GT(a.position(), before);
  }
  EXPECT_EQ(a.position(), before);
  EXPECT_EQ(a.push_bytes(1000), inside);
}

TEST(arena_scope, offers_its_arena_to_containers) {
  arena a;
  const std::size_t before = a.position();
  {
    const arena::scope scope{a};
    EXPECT_EQ(scope.resource(), &a);
    const std::pmr::vector<int> values({1, 2, 3}, scope.resource());
    EXPECT_TRUE(a.owns(values.data()));
  }
  EXPECT_EQ(a.position(), before);
}

TEST(arena_scope, is_move_only_and_moved_from_scopes_are_inert) {
  static_assert(!std::is_copy_constructible_v<arena::scope> && !std::is_copy_assignable_v<arena::scope>);
  static_assert(std::is_nothrow_move_constructible_v<arena::scope> &&
                std::is_nothrow_move_assignable_v<arena::scope>);
  arena a;
  {
    arena::scope first{a};
    (void)a.allocate(64);
    arena::scope second{std::move(first)};
    EXPECT_FALSE(first);  // NOLINT: what a moved-from scope is, is the point
    EXPECT_TRUE(second);
    first.end();
    EXPECT_EQ(a.position(), 64u);
  }
  EXPECT_EQ(a.position(), 0u);
}

// S0.18
TEST(arena_scope, is_inert_without_an_arena) {
  arena* none = nullptr;
  arena::scope scope{none};
  EXPECT_FALSE(scope);
  scope.end();
  arena::scope other;
  EXPECT_FALSE(other);
  other = std::move(scope);
  EXPECT_FALSE(other);
}

TEST(arena_scope, outer_scope_can_be_moved_while_an_inner_scope_is_open) {
  arena a;
  std::optional<arena::scope> outer{std::in_place, a};
  (void)a.allocate(16);
  {
    const arena::scope inner{a};
    (void)a.allocate(16);
    std::optional<arena::scope> elsewhere{std::move(outer)};
    outer = std::move(elsewhere);
  }
  EXPECT_EQ(a.position(), 16u);
  outer.reset();
  EXPECT_EQ(a.position(), 0u);
}

// S0.18
TEST(arena_scope, rewinds_to_its_opening_position_after_a_move) {
  arena a;
  void* const below = a.allocate(64);
  const arena::scope outer{a};
  void* const between = a.allocate(64);
  {
    arena::scope inner{a};
    const arena::scope moved{std::move(inner)};
    (void)a.allocate(64);
  }
  a.deallocate(between, 64);
  EXPECT_EQ(a.position(), 64u);
  a.deallocate(below, 64);
  EXPECT_EQ(a.position(), 64u) << "below the outer scope nothing is reclaimed";
}

// S0.19
TEST(arena_scope, move_assignment_first_rewinds_its_own_region) {
  arena a, b;
  arena::scope scope{a};
  (void)a.allocate(64);
  scope = arena::scope{b};
  EXPECT_EQ(a.position(), 0u);
  (void)b.allocate(64);
  scope = arena::scope{};
  EXPECT_EQ(b.position(), 0u);
}

// S0.19
TEST(arena_scope, move_assignment_restarts_on_one_arena_and_ignores_self_assignment) {
  const violation_recorder recorder;
  arena a;
  (void)a.allocate(32);
  arena::scope scope{a};
  for (int i = 0; i < 10; ++i) {
    (void)a.allocate(64);
    scope = arena::scope{a};
    EXPECT_EQ(a.position(), 32u);
  }
  (void)a.allocate(64);
  arena::scope& same = scope;
  scope = std::move(same);
  EXPECT_TRUE(scope);
  EXPECT_EQ(a.position(), 96u);
  EXPECT_TRUE(recorder.reports().empty());
}

// S0.20
TEST(arena_scope, unwinds_nested_scopes_in_order_during_exceptions) {
  arena a{{.reserve = 64 * KiB}};
  std::vector<std::size_t> positions;
  const auto descend = [&](auto& self, int depth) -> void {
    const std::size_t before = a.position();
    try {
      const arena::scope scope{a};
      (void)a.allocate(20 * KiB);
      if (depth == 10) throw std::runtime_error("deep");
      self(self, depth + 1);
    } catch (...) {
      positions.push_back(a.position() - before);
      throw;
    }
  };
  EXPECT_THROW(descend(descend, 0), std::runtime_error);
  EXPECT_EQ(positions, std::vector<std::size_t>(11, 0));
  EXPECT_EQ(a.position(), 0u);
}

TEST(arena_scope, rejects_reset_and_release_while_open) {
  arena a{{.name = "busy"}};
  const arena::scope scope{a};
  (void)a.allocate(64);
  EXPECT_THROW(a.reset(), std::logic_error);
  EXPECT_THROW(a.release(), std::logic_error);
  EXPECT_EQ(a.position(), 64u);
}

TEST(arena_scope, reports_an_outer_scope_that_ends_first) {
  const violation_recorder recorder;
  arena a{{.name = "stack"}};
  (void)a.allocate(16);
  arena::scope outer{a};
  (void)a.allocate(64);
  arena::scope inner{a};
  (void)a.allocate(64);
  outer.end();
  ASSERT_EQ(recorder.count(violation_kind::scope_order), 1u);
  EXPECT_TRUE(recorder.reports()[0].message.starts_with(
      "arena 'stack': a scope ends while a scope inside it is still open"));
  EXPECT_EQ(a.position(), 144u);
  inner.end();
  EXPECT_EQ(a.position(), 16u);
  a.check_invariants();
  a.reset();
  EXPECT_EQ(recorder.reports().size(), 1u);
}

TEST(arena_scope, reports_an_arena_destroyed_before_its_scope) {
  const violation_recorder recorder;
  auto a = std::make_unique<arena>(arena_options{.name = "short-lived"});
  arena::scope scope{*a};
  (void)a->allocate(64);
  a.reset();
  EXPECT_EQ(recorder.count(violation_kind::scope_outlived), 1u);
  EXPECT_FALSE(scope);
}

TEST(arena_scope, level_2_reports_allocation_through_an_outer_scope) {
  if constexpr (check_level < 2) GTEST_SKIP() << "needs check level 2; this build has " << check_level;
  const violation_recorder recorder;
  arena a{{.name = "shared"}};
  arena::scope outer{a};
  (void)outer.push<int>();
  {
    arena::scope inner{a};
    (void)inner.push<int>();
    (void)outer.push<int>();  // would vanish with `inner`
  }
  EXPECT_EQ(recorder.count(violation_kind::outer_scope_use), 1u);
  (void)outer.push<int>();
  EXPECT_EQ(recorder.reports().size(), 1u);
}

}  // namespace
}  // namespace tidemark
