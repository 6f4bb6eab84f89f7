// SPDX-License-Identifier: Apache-2.0
// Misuse that an arena reports while the program runs: destructors that rewind their own arena, and scopes
// that are used after their end. Each report is recorded, and the arena must stay as it is.
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/arena.hpp>

#include "caught.hpp"
#include "contains.hpp"
#include "violation_recorder.hpp"

namespace {

using namespace tidemark;

template <class Body>
struct runs_at_end {
  explicit runs_at_end(Body body) : body{std::move(body)} {}
  ~runs_at_end() { body(); }
  Body body;
};

class arena_misuse : public ::testing::Test {
 protected:
  std::size_t rewinds() const { return recorder.count(violation_kind::rewind_in_destructor); }
  test::violation_recorder recorder;
};

TEST_F(arena_misuse, reports_a_destructor_that_rewinds_its_arena) {
  using rewind_call = void (*)(arena&, arena_mark const&);
  std::size_t expected = 0;
  for (rewind_call back : {rewind_call{[](arena& a, arena_mark const&) { a.reset(); }},
                           rewind_call{[](arena& a, arena_mark const&) { a.release(); }},
                           rewind_call{[](arena& a, arena_mark const& first) { a.rewind(first); }},
                           rewind_call{[](arena& a, arena_mark const&) { a.pop(1 * MiB); }}}) {
    for (int blocks : {1, 10}) {  // in one chunk, in several
      arena a{{.reserve = 64 * KiB}};
      *a.push<int>() = 1;
      const arena_mark first = a.mark();
      a.make<runs_at_end<std::function<void()>>>([&] { back(a, first); });
      for (int i = 0; i < blocks; ++i) (void)a.allocate(32 * KiB);
      a.reset();
      EXPECT_EQ(a.position(), 0u);
      a.check_invariants();
      EXPECT_EQ(rewinds(), ++expected);
    }
  }
}

TEST_F(arena_misuse, reports_a_destructor_that_rewinds_to_a_mark_after_its_object) {
  arena a;
  std::optional<arena_mark> behind;
  a.make<runs_at_end<std::function<void()>>>([&] { a.rewind(*behind); });
  behind = a.mark();
  (void)a.allocate(100);
  a.reset();
  EXPECT_EQ(rewinds(), 1u);
  EXPECT_EQ(a.position(), 0u);
  a.check_invariants();
}

TEST_F(arena_misuse, reports_destructors_that_reset_at_the_end_of_a_scope_and_of_the_arena) {
  {
    arena a;
    {
      arena::scope scope{a};
      scope.make<runs_at_end<std::function<void()>>>([&] { a.reset(); });
    }
    EXPECT_EQ(rewinds(), 1u);
    EXPECT_EQ(a.position(), 0u);
    a.make<runs_at_end<std::function<void()>>>([&] { a.release(); });
    a.make<runs_at_end<std::function<void()>>>([&] { a.reset(); });
  }
  EXPECT_EQ(rewinds(), 3u);
}

TEST_F(arena_misuse, reports_a_destructor_that_ends_the_scope_around_it) {
  arena a;
  std::optional<arena::scope> outer{std::in_place, a};
  const arena_mark begin = a.mark();
  a.make<runs_at_end<std::function<void()>>>([&] { outer->end(); });
  (void)a.allocate(100);
  a.rewind(begin);
  EXPECT_EQ(rewinds(), 1u);
  a.check_invariants();
  outer.reset();
  a.reset();
  EXPECT_EQ(a.position(), 0u);
}

TEST_F(arena_misuse, allows_scopes_and_marks_inside_a_destructor) {
  arena a;
  int ended = 0;
  a.make<runs_at_end<std::function<void()>>>([&] {
    const arena_mark here = a.mark();
    {
      arena::scope scope{a};
      scope.make<runs_at_end<std::function<void()>>>([&] { ++ended; });
      (void)scope.push_array<int>(100);
    }
    (void)a.allocate(100);
    a.rewind(here);
    ++ended;
  });
  a.reset();
  EXPECT_EQ(ended, 2);
  EXPECT_EQ(rewinds(), 0u);
  EXPECT_EQ(a.position(), 0u);
  a.check_invariants();
}

TEST_F(arena_misuse, reports_two_arenas_whose_destructors_reset_each_other) {
  arena a, b;
  a.make<runs_at_end<std::function<void()>>>([&] { b.reset(); });
  b.make<runs_at_end<std::function<void()>>>([&] { a.reset(); });
  a.reset();
  EXPECT_EQ(rewinds(), 1u);
  EXPECT_EQ(a.position(), 0u);
  EXPECT_EQ(b.position(), 0u);
}

// ---- shared arenas ----

TEST_F(arena_misuse, reports_a_destructor_that_resets_its_shared_arena) {
  shared_arena team;
  const shared_arena_mark first = team.mark();
  const std::function<void()> ways[] = {[&] { team.reset(); }, [&] { team.release(); },
                                        [&] { team.rewind(first); }};
  std::size_t expected = 0;
  for (auto const& back : ways) {
    local_arena& local = team.local();
    local.make<runs_at_end<std::function<void()>>>(back);
    team.rewind(first);
    EXPECT_EQ(rewinds(), ++expected);
    {
      shared_arena::scope scope{team};
      local.make<runs_at_end<std::function<void()>>>(back);
    }
    EXPECT_EQ(rewinds(), ++expected);
    {
      local_arena::scope scope{local};
      scope.make<runs_at_end<std::function<void()>>>(back);
    }
    EXPECT_EQ(rewinds(), ++expected);
    EXPECT_EQ(team.stats().used_bytes, 0u);
    team.check_invariants();
  }
}

// ---- types whose destructor would not run, or that cannot be made ----

template <class Target, class T, class... Arguments>
constexpr bool can_push = requires(Target& to, Arguments... given) { (void)to.template push<T>(given...); };
template <class Target, class T, class... Tag>
constexpr bool can_push_array =
    requires(Target& to, Tag... tag) { (void)to.template push_array<T>(1, tag...); };
template <class Target, class T, class... Arguments>
constexpr bool can_make = requires(Target& to, Arguments... given) { to.template make<T>(given...); };

struct needs_an_int {
  explicit needs_an_int(int) {}
};

template <class Target>
constexpr bool rejects_lost_destructors =
    can_push<Target, int> && can_push<Target, int, int> && !can_push<Target, std::string> &&
    !can_push<Target, std::string, char const*> && can_push<Target, std::string, no_destructor_t> &&
    can_push<Target, std::string, no_destructor_t, char const*> && can_push_array<Target, int> &&
    !can_push_array<Target, std::string> && can_push_array<Target, std::string, no_destructor_t>;
template <class Target>
constexpr bool rejects_wrong_arguments =
    can_make<Target, std::string, char const*> && !can_make<Target, std::string, std::string*> &&
    !can_make<Target, needs_an_int> && can_make<Target, needs_an_int, int> &&
    !can_push<Target, needs_an_int> && !can_push_array<Target, needs_an_int> &&
    !can_push<Target, needs_an_int, no_destructor_t>;

static_assert(rejects_lost_destructors<arena> && rejects_wrong_arguments<arena>);
static_assert(rejects_lost_destructors<arena::scope> && rejects_wrong_arguments<arena::scope>);
static_assert(rejects_lost_destructors<upstream_arena> && rejects_wrong_arguments<upstream_arena>);
static_assert(rejects_lost_destructors<local_arena> && rejects_wrong_arguments<local_arena>);
static_assert(can_push<process_arena, std::string>, "a process_arena runs no destructor");

// ---- scopes that are not open ----

#if TIDEMARK_CHECKS >= 2

// The place of the line before.
std::string here(std::source_location where = std::source_location::current()) {
  return std::string{where.file_name()} + ':' + std::to_string(where.line() - 1);
}

template <class Use>
void expect_report(Use use, std::string const& place) {
  test::violation_recorder recorder;
  EXPECT_THROW(use(), std::logic_error);
  EXPECT_PRED2(test::contains, recorder.only(violation_kind::ended_scope_use), place);
}

TEST(arena_scopes_that_ended, report_each_use_with_their_opening_location) {
  arena a;
  arena::scope scope{a};
  const std::string place = here();
  scope.end();
  expect_report([&] { (void)scope.allocate(1); }, place);
  expect_report([&] { (void)scope.push<int>(1); }, place);
  expect_report([&] { (void)scope.push_array<int>(1); }, place);
  expect_report([&] { (void)scope.push_bytes(1); }, place);
  expect_report([&] { scope.make<std::string>(); }, place);
  expect_report([&] { (void)scope.arena(); }, place);
  arena::scope from{a};
  const std::string from_place = here();
  arena::scope to{std::move(from)};
  expect_report([&] { (void)from.allocate(1); }, from_place);  // NOLINT(bugprone-use-after-move)
  arena::scope never;
  expect_report([&] { (void)never.allocate(1); }, "arena: a scope is used");
}

TEST(arena_scopes_that_ended, report_use_of_shared_scopes) {
  shared_arena team;
  shared_arena::scope scope{team};
  const std::string place = here();
  scope.end();
  expect_report([&] { (void)scope.arena(); }, place);
}

TEST(arena_scopes, are_reported_with_their_opening_location) {
  test::violation_recorder recorder;
  std::string outer_place, inner_place;
  const auto expect_both = [&](std::size_t i) {
    ASSERT_GT(recorder.reports().size(), i);
    EXPECT_PRED2(test::contains, recorder.reports()[i].message, outer_place);
    EXPECT_PRED2(test::contains, recorder.reports()[i].message, inner_place);
  };
  {
    arena a;
    std::optional<arena::scope> outer{arena::scope{a}};
    outer_place = here();
    arena::scope inner{a};
    inner_place = here();
    (void)outer->allocate(1);
    expect_both(0);
    const std::logic_error refused = test::caught<std::logic_error>([&] { a.reset(); });
    EXPECT_PRED2(test::contains, refused.what(), "open, opened at " + inner_place);
    const arena_mark within = a.mark();
    (void)within;
    outer.reset();
    expect_both(1);
  }
  std::optional<arena> gone{std::in_place};
  arena::scope open{*gone};
  outer_place = inner_place = here();
  gone.reset();
  expect_both(2);
}

#endif

}  // namespace
