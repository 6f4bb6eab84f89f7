// SPDX-License-Identifier: Apache-2.0
// Strategy: random blocks, trims and failures of the upstream, beside a
// shadow of what is live. After each step the sums equal the model's; the invariants of the heap hold now and
// then. What each step does to a pool is in pool_test.cpp.
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
