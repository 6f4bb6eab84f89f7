// SPDX-License-Identifier: Apache-2.0
// Strategy: scratch promises the identity of the arena behind the scope. Each fact that depends on the number
// of arenas of a thread has its own thread.
#include <tidemark/arena/scratch.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "other_thread.hpp"
#include "recording_supply.hpp"

namespace tidemark {
namespace {

TEST(scratch, is_a_scope_that_rewinds) {
  test::on_another_thread([] {
    arena* which = nullptr;
    for (int i = 0; i < 3; ++i) {
      arena::scope s = scratch(no_conflicts);
      if (which == nullptr) which = &s.arena();
      EXPECT_EQ(&s.arena(), which);
      EXPECT_EQ(which->position(), 0u);
      (void)s.push_array<double>(1000);
    }
    EXPECT_EQ(which->position(), 0u);
    EXPECT_EQ(scratch_arena_count(), 1u);
  });
}

// S0.21
TEST(scratch, never_uses_an_arena_in_conflict) {
  test::on_another_thread([] {
    arena::scope out = scratch(no_conflicts);
    const arena::scope by_scope = scratch(out);
    const arena::scope by_arena = scratch(out.arena());
    const arena::scope by_pointer = scratch(&out.arena());
    const arena::scope by_scope_pointer = scratch(&out);
    std::pmr::memory_resource* resource = &out.arena();
    const arena::scope by_resource = scratch(resource);
    const arena::scope by_reference = scratch(*resource);
    for (arena::scope const* s :
         {&by_scope, &by_arena, &by_pointer, &by_scope_pointer, &by_resource, &by_reference}) {
      EXPECT_NE(&s->arena(), &out.arena());
    }
    EXPECT_EQ(scratch_arena_count(), 2u);
  });
}

// S0.22
TEST(scratch, makes_another_arena_when_all_are_in_conflict) {
  test::on_another_thread([] {
    const arena::scope a = scratch(no_conflicts);
    const arena::scope b = scratch(a);
    const arena::scope c = scratch(a, b);
    const arena::scope d = scratch(b, c, a);
    const std::set<arena*> distinct{&a.arena(), &b.arena(), &c.arena(), &d.arena()};
    EXPECT_EQ(distinct.size(), 4u);
    EXPECT_EQ(scratch_arena_count(), 4u);
  });
}

// S0.23
TEST(scratch, ignores_null_and_foreign_conflicts) {
  test::on_another_thread([] {
    arena elsewhere;
    arena* none = nullptr;
    arena::scope inert;
    const arena::scope first = scratch(no_conflicts);
    const arena::scope second = scratch(nullptr, none, inert, elsewhere, std::pmr::new_delete_resource());
    EXPECT_EQ(&second.arena(), &first.arena());
    EXPECT_EQ(scratch_arena_count(), 1u);
  });
}

// S0.21
TEST(scratch, each_thread_has_its_own) {
  arena* here = nullptr;
  {
    const arena::scope s = scratch(no_conflicts);
    here = &s.arena();
  }
  test::on_another_thread([&] {
    const arena::scope s = scratch(no_conflicts);
    EXPECT_NE(&s.arena(), here);
  });
}

// S0.24
TEST(scratch, grows_on_demand_and_its_options_can_be_set) {
  set_scratch_options({.reserve = 64 * KiB, .name = "small scratch"});
  test::on_another_thread([] {
    arena::scope s = scratch(no_conflicts);
    EXPECT_STREQ(s.arena().name(), "small scratch");
    EXPECT_EQ(s.arena().stats().reserved_bytes, 64 * KiB);
    const std::span<float> large = s.push_array<float>(100 * MiB / sizeof(float));  // far beyond one chunk
    large.back() = 1;
    EXPECT_EQ(s.arena().stats().chunks, 2u);
  });
  set_scratch_options({.name = "scratch"});
}

// S0.24
TEST(scratch, is_freed_when_the_thread_ends) {
  test::recording_os os;
  set_default_os_memory(&os);
  test::on_another_thread([&] {
    arena::scope a = scratch(no_conflicts);
    arena::scope b = scratch(a);
    (void)b.push_array<int>(100'000);
    EXPECT_EQ(os.reserves, 2u);
    EXPECT_GT(os.outstanding, 0u);
  });
  set_default_os_memory(nullptr);
  EXPECT_EQ(os.outstanding, 0u);
}

// S0.24
TEST(scratch, works_in_destructors_of_thread_local_objects) {
  static bool worked = false;
  struct late_user {
    ~late_user() {
      arena::scope s = scratch(no_conflicts);
      worked = s.push_array<int>(1000)[999] == 0;
    }
    void touch() {}
  };
  test::recording_os os;
  set_default_os_memory(&os);
  test::on_another_thread([] {
    thread_local late_user made_before_any_scratch;
    made_before_any_scratch.touch();
    (void)scratch(no_conflicts).push_array<int>(10);
  });
  set_default_os_memory(nullptr);
  EXPECT_TRUE(worked);
  EXPECT_EQ(os.outstanding, 0u);
}

// S0.22
TEST(scratch, without_memory_throws_and_never_returns_a_null_scope) {
  test::recording_os os;
  os.fail_from = 0;
  os.fail_count = test::supply::never;
  set_default_os_memory(&os);
  test::on_another_thread([&] {
    EXPECT_THROW((void)scratch(no_conflicts), out_of_memory);
    EXPECT_EQ(scratch_arena_count(), 0u);
    os.fail_from = test::supply::never;
    EXPECT_TRUE(scratch(no_conflicts));  // the second call works again
  });
  set_default_os_memory(nullptr);
}

// A function in the style that the header recommends: results on `out`, temporaries never on the same arena.
std::span<int> doubled(std::span<int const> x, arena& out) {
  arena::scope temporary = scratch(out);
  const std::span<int> work = temporary.push_array<int>(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) work[i] = 2 * x[i];
  const std::span<int> result = out.push_array<int>(x.size());
  std::copy(work.begin(), work.end(), result.begin());
  return result;
}

TEST(scratch, results_survive_when_callers_pass_their_own_scratch_down) {
  test::on_another_thread([] {
    arena::scope mine = scratch(no_conflicts);
    const std::vector<int> x{1, 2, 3};
    const std::span<int> once = doubled(x, mine.arena());
    const std::span<int> twice = doubled(once, mine.arena());
    EXPECT_EQ(std::vector<int>(twice.begin(), twice.end()), (std::vector<int>{4, 8, 12}));
    EXPECT_EQ(std::vector<int>(once.begin(), once.end()), (std::vector<int>{2, 4, 6}));
  });
}

}  // namespace
}  // namespace tidemark
