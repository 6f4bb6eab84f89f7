// SPDX-License-Identifier: Apache-2.0
// Strategy: long random sequences of owners, compared with a model of the block of each owner.
#include <gtest/gtest.h>

#include "seeds.hpp"
#include "unique_block_model.hpp"

namespace tidemark::test {
namespace {

// V.7
TEST(unique_block_model, each_block_has_one_owner_and_goes_back_once) {
  using model = unique_block_model;
  run_for_seeds_to_reach<model>({{"moved", &model::moved, 1000},
                                 {"released", &model::released, 1000},
                                 {"refused", &model::refused, 100}},
                                of_a_seed<model>, 20'000);
}

}  // namespace
}  // namespace tidemark::test
