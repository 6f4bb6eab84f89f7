// SPDX-License-Identifier: Apache-2.0
// Strategy: random programs of steps on planned arenas. A program has a few patterns of requests that begin
// alike, and follows, bends and breaks them: sizes, order, requests left out, added or missing at the end;
// blocks that die early, late, in another order, steps later or never; steps that alternate, and requests
// between them. The memory may be scarce, and the fallback may fail. A shadow checks each block's contents
// and that no two blocks overlap. The counts equal those of the model, which learns from the fallback who
// served a request.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include <tidemark/core/upstream_memory.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>

#include "planned_model.hpp"
#include "recording_supply.hpp"
#include "seeds.hpp"

namespace tidemark::test {
namespace {

using namespace planned_programs;

template <class Arena, class Supply>
void run_programs(bool is_scarce, std::uint64_t operations) {
  reached sums;
  run_for_seeds(
      [&](std::uint64_t seed, auto run) {
        planned_model<Arena, Supply> model{seed, is_scarce, sums};
        run(model);
      },
      operations);
  // Programs that never did these things would show nothing about them.
  if (::testing::Test::HasFailure()) return;
  EXPECT_GT(sums.of_arenas.planned_allocations, sums.operations / 10);
  const std::pair<char const*, std::uint64_t> counts[] = {
      {"steps wholly planned", sums.of_arenas.planned_steps},
      {"blocks of the fallback", sums.of_arenas.fallback_allocations},
      {"blocks outside of steps", sums.of_arenas.outside_allocations},
      {"misses", sums.of_arenas.misses},
      {"plans made", sums.of_arenas.plans_made},
      {"steps partly planned", sums.of_arenas.partly_planned_steps},
      {"changes of the kind", sums.kind_changes},
      {"slots added", planned_model<Arena, Supply>::is_borrowed ? sums.operations : sums.added_slots},
      {"blocks through the beginning of a step", sums.blocks_through_steps},
      {"trims", sums.trimmed},
      {"plans used again", sums.used_plans},
      {"operations without memory for the plan", sums.unlaid},
      {"blocks refused", is_scarce ? sums.refused : sums.operations},
      {"wrong frees", check_level >= 2 ? sums.wrong_frees : sums.operations}};
  for (auto const& [what, count] : counts) EXPECT_GT(count, sums.operations / 20'000) << what;
}

// P.19 P.22
TEST(planned_model, any_program_on_ample_memory) {
  run_programs<planned_arena, recording_os>(false, 100'000);
}
TEST(planned_model, any_program_on_scarce_memory) { run_programs<planned_arena, recording_os>(true, 60'000); }
TEST(planned_model, any_program_on_memory_of_an_upstream) {
  run_programs<basic_planned_arena<upstream_memory>, recording_resource>(true, 60'000);
}

// P.19
TEST(planned_model, any_program_on_memory_of_its_fallback) {
  run_programs<basic_planned_arena<upstream_memory>, fallback_supply>(true, 60'000);
}

}  // namespace
}  // namespace tidemark::test
