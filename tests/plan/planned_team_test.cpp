// SPDX-License-Identifier: Apache-2.0
// Strategy: the statements of docs/plan.md about steps of several threads, on threads that run at once.
#include <tidemark/plan/replay/planned_arena.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <vector>

#include <tidemark/pool/synchronized_pool.hpp>

#include "thread_storm.hpp"

namespace tidemark {
namespace {

// G.15
TEST(planned_team, serves_each_thread_by_a_plan_of_its_own) {
  constexpr std::size_t threads = 3, steps = 20, blocks = 64;
  synchronized_pool shared;
  std::array<std::vector<std::vector<void*>>, threads> places;
  std::array<planned_arena_stats, threads> stats;
  test::on_threads(
      [&](std::size_t t) {
        planned_arena memory{{.fallback = &shared, .name = "thread"}};
        for (std::size_t i = 0; i < steps; ++i) {
          planned_arena::step step{memory};
          std::vector<void*>& taken = places[t].emplace_back();
          for (std::size_t n = 0; n < blocks; ++n) {
            const std::size_t bytes = 1000 * (n % 7 + t + 1);
            void* const block = memory.allocate(bytes);
            taken.push_back(block);
            if (n % 2 == 1) memory.deallocate(block, bytes);
            if (n % 2 == 0 && n > 0) {
              const std::size_t before = 1000 * ((n - 2) % 7 + t + 1);
              memory.deallocate(taken[n - 2], before);
            }
          }
          memory.deallocate(taken[blocks - 2], 1000 * ((blocks - 2) % 7 + t + 1));
        }
        stats[t] = memory.stats();
      },
      threads);
  for (std::size_t t = 0; t < threads; ++t) {
    EXPECT_EQ(stats[t].planned_steps, steps - 1);
    EXPECT_EQ(stats[t].fallback_allocations, blocks);  // of the recorded step
    for (std::size_t i = 2; i < steps; ++i) EXPECT_EQ(places[t][i], places[t][1]);
  }
}

}  // namespace
}  // namespace tidemark
