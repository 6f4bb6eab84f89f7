// SPDX-License-Identifier: Apache-2.0
// Strategy: long random sequences of owners, compared with a model of the block of each owner.
#include <gtest/gtest.h>

#include "seeds.hpp"
#include "unique_block_model.hpp"

namespace tidemark::test {
namespace {

TEST(unique_block_model, each_block_has_one_owner_and_is_freed_once) {
  using model = unique_block_model;
  run_for_seeds<model>(20'000, {{"moved", &model::moved, 1000},
                                {"released", &model::released, 1000},
                                {"refused", &model::refused, 100}});
}

}  // namespace
}  // namespace tidemark::test
