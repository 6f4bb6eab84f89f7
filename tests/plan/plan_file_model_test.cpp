// SPDX-License-Identifier: Apache-2.0
// Strategy: files of valid plans, tampered with at random: a number, a row, a character. Each is rejected in
// a sentence that names the file, or the plan serves steps that ask for what it says and for something near
// it, and give blocks back early, late, and in later steps. The shadow sees that no two live blocks share a
// byte and that each is aligned as asked; the upstream, that nothing lies outside of what it gave.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "plan_file_model.hpp"
#include "seeds.hpp"

namespace tidemark::test {
namespace {

using namespace plan_files;

// D.2
TEST(plan_file_model, tampered_files_are_rejected_or_serve_blocks_that_are_apart) {
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
