// SPDX-License-Identifier: Apache-2.0
// Strategy: files of valid plans with random changes of a number, a row or a character. A file is rejected
// with a sentence that names it, or its plan serves steps. These steps request the planned blocks or similar
// blocks, and return blocks early, late, and in later steps. The shadow checks that no two live blocks share
// a byte and that each block is aligned as requested. The upstream checks that no block lies outside of its
// memory.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "plan_file_model.hpp"
#include "seeds.hpp"

namespace tidemark::test {
namespace {

using namespace plan_files;

// D.2
TEST(plan_file_model, tampered_files_are_rejected_or_serve_disjoint_blocks) {
  sums seen;
  run_for_seeds(
      [&](std::uint64_t seed, auto run) {
        plan_file_model model{seed, seen};
        run(model);
      },
      6'000);
  if (::testing::Test::HasFailure()) return;
  const std::pair<char const*, std::uint64_t> counts[] = {
      {"files rejected", seen.rejected},
      {"files used", seen.used},
      {"blocks that a plan served", seen.planned / 10},
      {"blocks of requests with several places", seen.several_places},
      {"blocks that outlived their step", seen.live_through_steps}};
  for (auto const& [what, count] : counts) EXPECT_GT(count, seen.used / 4) << what;
}

}  // namespace
}  // namespace tidemark::test
