// SPDX-License-Identifier: Apache-2.0
// Strategy: long random sequences on a process arena, whose file is read back and compared with a model of
// the published data.
#include <gtest/gtest.h>

#include <cstdint>

#include "process_arena_model.hpp"
#include "seeds.hpp"

namespace tidemark::test {
namespace {

// V.7
TEST(process_arena_model, what_was_published_stays_as_it_was_until_a_reset) {
  std::uint64_t published = 0, reclaimed = 0, kept = 0, full = 0;
  run_for_seeds(
      [&](std::uint64_t seed, auto run) {
        process_arena_model model{seed};
        run(model);
        published += model.published;
        reclaimed += model.reclaimed;
        kept += model.kept;
        full += model.full;
      },
      20'000);
  // A sequence that never did these things would show nothing about them.
  EXPECT_GT(published, in_this_length(1000, 20'000));
  EXPECT_GT(reclaimed, in_this_length(1000, 20'000));
  EXPECT_GT(kept, in_this_length(1000, 20'000));
  EXPECT_GT(full, in_this_length(10, 20'000));
}

}  // namespace
}  // namespace tidemark::test
