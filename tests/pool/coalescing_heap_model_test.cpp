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
  using model = coalescing_heap_model;
  run_for_seeds<model>(10'000, {{"taken", &model::taken, 1000},
                                {"refused", &model::refused, 10},
                                {"stranded", &model::stranded, 10},
                                {"returned", &model::returned, 10}});
}

}  // namespace
}  // namespace tidemark::test
