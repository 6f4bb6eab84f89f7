// SPDX-License-Identifier: Apache-2.0
// Strategy: long random sequences of owners, compared with a model of the block of each owner.
#include <gtest/gtest.h>

#include <cstdint>

#include "seeds.hpp"
#include "unique_block_model.hpp"

namespace tidemark::test {
namespace {

// V.7
TEST(unique_block_model, each_block_has_one_owner_and_goes_back_once) {
  std::uint64_t moved = 0, released = 0, refused = 0;
  run_for_seeds(
      [&](std::uint64_t seed, auto run) {
        unique_block_model model{seed};
        run(model);
        moved += model.moved;
        released += model.released;
        refused += model.refused;
      },
      20'000);
  // A sequence that never did these things would show nothing about them.
  EXPECT_GT(moved, 1000u);
  EXPECT_GT(released, 1000u);
  EXPECT_GT(refused, 100u);
}

}  // namespace
}  // namespace tidemark::test
