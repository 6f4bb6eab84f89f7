// SPDX-License-Identifier: Apache-2.0
// Strategy: real threads allocate at once, at random, in all ways. Between two barriers one thread marks,
// opens scopes, rewinds, resets or trims (team_model.hpp).
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "choices.hpp"
#include "run_length.hpp"
#include "team_model.hpp"

namespace tidemark::test {
namespace {

/// Runs a model with its threads. @return the number of their calls
std::uint64_t run_threads(std::uint64_t seed, bool places, std::size_t rounds) {
  constexpr std::size_t threads = team_model::threads;
  team_model model{places};
  std::atomic<std::uint64_t> calls{0};
  std::barrier meeting{static_cast<std::ptrdiff_t>(threads)};
  std::vector<std::thread> team;
  for (std::size_t t = 0; t < threads; ++t) {
    team.emplace_back([&, t] {
      choices random{seed * threads + t};
      for (std::size_t round = 0; round < rounds; ++round) {
        const std::size_t steps = random() % 60;
        for (std::size_t i = 0; i < steps; ++i) model.operate(t, random);
        calls += steps;
        meeting.arrive_and_wait();
        if (t == round % threads) model.rewind_sometimes(random);
        meeting.arrive_and_wait();
        if (random() % 4 == 0) model.leave();
      }
    });
  }
  for (std::thread& thread : team) thread.join();
  model.end();
  return calls.load();
}

void run_for_seeds(bool places) {
  const std::uint64_t first_seed = number_from_environment("TIDEMARK_SEED", 1);
  std::uint64_t operations = 0;
  for (std::uint64_t seed = first_seed; seed < first_seed + 5; ++seed) {
    SCOPED_TRACE("repeat with TIDEMARK_SEED=" + std::to_string(seed));
    operations += run_threads(seed, places, in_this_length(200));
  }
  ::testing::Test::RecordProperty("operations", std::to_string(operations));
}

// G.3 G.6
TEST(shared_arena_model, agrees_with_threads_that_claim_extents) { run_for_seeds(false); }

// G.14
TEST(shared_arena_model, agrees_with_threads_that_have_regions_of_their_own) { run_for_seeds(true); }

}  // namespace
}  // namespace tidemark::test
