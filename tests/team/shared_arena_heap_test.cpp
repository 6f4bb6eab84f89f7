// SPDX-License-Identifier: Apache-2.0
// Strategy: counting versions replace operator new and malloc. A repeated step takes nothing from the heap.
#include <tidemark/team/shared_arena.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>

#include "counting_new.hpp"

namespace tidemark {
namespace {

// G.13
TEST(shared_arena_heap, allocates_nothing_in_a_repeated_step) {
  shared_arena team{{.reserve = 64 * MiB}};
  for (int round = 0; round < 3; ++round) {
    const std::size_t news = test::news, mallocs = test::mallocs;
    {
      shared_arena::scope step{team};
      local_arena& local = team.local();
      for (std::size_t i = 0; i < 10'000; ++i) (void)local.allocate(i % 1000);
      for (std::size_t i = 0; i < 10; ++i) (void)team.allocate(i * 100'000);  // set aside
      shared_arena::scope inner{team};
      local_arena::scope scope{local};
      for (std::size_t i = 0; i < 3'000; ++i) (void)scope.allocate(1000);
    }
    if (round > 0) {
      EXPECT_EQ(test::news, news);
      EXPECT_EQ(test::mallocs, mallocs);
    } else {
      EXPECT_GT(test::news, news);
    }
  }
}

TEST(shared_arena_heap, rewinds_without_memory_for_records) {
  shared_arena team{{.reserve = 64 * MiB}};
  const shared_arena_mark mark = team.mark();
  const auto allocate_all = [&] {
    for (std::size_t i = 0; i < 10'000; ++i) (void)team.allocate(1000);
  };
  allocate_all();
  const std::size_t committed = team.stats().committed_bytes;
  test::max_news = test::news;
  team.rewind(mark);
  test::max_news = std::numeric_limits<std::size_t>::max();
  team.check_invariants();
  EXPECT_EQ(team.stats().used_bytes, 0u);
  allocate_all();
  EXPECT_EQ(team.stats().committed_bytes, committed) << "the rewind freed all memory";
  team.release();
  EXPECT_EQ(team.stats().committed_bytes, 0u);
}

}  // namespace
}  // namespace tidemark
