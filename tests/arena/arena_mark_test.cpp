// SPDX-License-Identifier: Apache-2.0
// Strategy: an exception rejects every wrong mark and leaves the arena unchanged. Every right mark is
// accepted, however much happened in between.
#include <tidemark/arena/arena.hpp>

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "caught.hpp"
#include "contains.hpp"

namespace tidemark {
namespace {

/// Rewinds, expects a refusal that says `why`, and that nothing changed.
void expect_refused(arena& a, arena_mark const& mark, std::string const& why) {
  const std::size_t before = a.position();
  const std::string message = test::message_of<std::invalid_argument>([&] { a.rewind(mark); });
  EXPECT_TRUE(message.starts_with("arena '" + std::string{a.name()} + "': cannot rewind: the mark "))
      << message;
  EXPECT_PRED2(test::contains, message, why);
  EXPECT_EQ(a.position(), before);
}

TEST(arena_mark, from_another_arena_is_rejected) {
  arena mine{{.name = "mine"}}, other;
  expect_refused(mine, other.mark(), "another arena");
  expect_refused(mine, arena_mark{}, "another arena");
}

TEST(arena_mark, from_an_earlier_arena_at_the_same_address_is_rejected) {
  alignas(arena) std::byte storage[sizeof(arena)];
  auto* first = new (storage) arena;
  const arena_mark old = first->mark();
  first->~arena();
  auto* second = new (storage) arena;
  expect_refused(*second, old, "another arena");
  second->~arena();
}

// S0.10
TEST(arena_mark, ahead_of_the_position_is_rejected) {
  arena a;
  const arena_mark begin = a.mark();
  (void)a.allocate(100);
  const arena_mark ahead = a.mark();
  a.rewind(begin);
  expect_refused(a, ahead, "lies ahead");
}

TEST(arena_mark, rewound_over_is_rejected_after_the_arena_grows_again) {
  for (int way = 0; way < 5; ++way) {
    arena a;
    (void)a.allocate(32);
    const arena_mark low = a.mark();
    (void)a.allocate(64);
    const arena_mark stale = a.mark();
    if (way == 0) a.rewind(low);
    if (way == 1) a.reset();
    if (way == 2) a.pop(64);
    if (way == 3) a.pop(16);
    if (way == 4) {
      a.rewind(low);
      (void)a.mark();
    }
    (void)a.allocate(500);
    expect_refused(a, stale, "rewound over");
  }
}

TEST(arena_mark, below_an_open_scope_is_rejected) {
  arena a;
  const arena_mark low = a.mark();
  (void)a.allocate(64);
  {
    const arena::scope scope{a};
    (void)a.allocate(64);
    expect_refused(a, low, "scope that is still open");
  }
  a.rewind(low);
}

TEST(arena_mark, from_before_a_release_is_rejected) {
  arena a;
  const arena_mark old = a.mark();
  a.release();
  (void)a.allocate(10);
  expect_refused(a, old, "release()");
}

TEST(arena_mark, is_distinguished_from_stale_marks_nearby) {
  // At each level a mark lives on and one 16 bytes above dies: both lie below the final position.
  arena a;
  std::vector<arena_mark> live, dead;
  for (int i = 0; i < 200; ++i) {
    (void)a.allocate(16);
    live.push_back(a.mark());
    (void)a.allocate(16);
    dead.push_back(a.mark());
    (void)a.allocate(16);
    a.rewind(live.back());
    (void)a.allocate(64);
  }
  for (arena_mark const& mark : dead) expect_refused(a, mark, "rewound over");
  while (!live.empty()) {
    a.rewind(live.back());
    live.pop_back();
  }
  EXPECT_EQ(a.position(), 16u);
}

TEST(arena_mark, is_a_plain_value) {
  static_assert(std::is_trivially_copyable_v<arena_mark>);
  arena a;
  const arena_mark mark = a.mark();
  EXPECT_EQ(mark, a.mark());
  EXPECT_NE(mark, arena_mark{});
}

}  // namespace
}  // namespace tidemark
