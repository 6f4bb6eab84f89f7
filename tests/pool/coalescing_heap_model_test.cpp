// SPDX-License-Identifier: Apache-2.0
// Strategy: random blocks, trims and failures of the upstream, compared with a shadow of the live blocks.
// After each step the sums equal the model's; the heap's invariants are checked now and then. pool_test.cpp
// has the effects of each step on a pool.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "coalescing_heap_model.hpp"
#include "seeds.hpp"

namespace tidemark::test {
namespace {

// S2.5
TEST(coalescing_heap_model, agrees_with_the_heap) {
  std::size_t taken = 0, refused = 0, stranded = 0, returned = 0;
  run_for_seeds(
      [&](std::uint64_t seed, auto run) {
        coalescing_heap_model model{seed};
        run(model);
        taken += model.taken;
        refused += model.refused;
        stranded += model.stranded;
        returned += model.returned;
      },
      10'000);
  // A sequence that never did these things would show nothing about them.
  EXPECT_GT(taken, 1000u);
  EXPECT_GT(refused, 10u);
  EXPECT_GT(stranded, 10u);
  EXPECT_GT(returned, 10u);
}

}  // namespace
}  // namespace tidemark::test
