// SPDX-License-Identifier: Apache-2.0
// Strategy: random blocks, trims and failures of the upstream, compared with a shadow of the live blocks.
// After each step the sums equal the model's; the heap's invariants are checked now and then. pool_test.cpp
// has the effects of each step on a pool.
#include <gtest/gtest.h>

#include "coalescing_heap_model.hpp"
#include "seeds.hpp"

namespace tidemark::test {
namespace {

TEST(coalescing_heap_model, agrees_with_the_heap) {
  using model = coalescing_heap_model;
  run_for_seeds<model>(10'000, {{"taken", &model::taken, 1000},
                                {"refused", &model::refused, 10},
                                {"stranded", &model::stranded, 10},
                                {"returned", &model::returned, 10}});
}

}  // namespace
}  // namespace tidemark::test
