// SPDX-License-Identifier: Apache-2.0
// Strategy: random raw blocks in nested epochs, kept, deallocated early, late and after they were kept. A
// model knows the epoch of each block. Contents and statistics are checked after each step.
#include <gtest/gtest.h>

#include "epoch_slabs_model.hpp"
#include "seeds.hpp"

namespace tidemark::test {
namespace {

// S3.1
TEST(epoch_slabs_model, agrees_with_epochs_of_raw_blocks) {
  using model = epoch_slabs_model;
  run_for_seeds<model>(20'000, {{"reclaimed", &model::reclaimed, in_this_length(1000, 20'000)},
                                {"promoted", &model::promoted, in_this_length(1000, 20'000)},
                                {"late", &model::late, in_this_length(100, 20'000)},
                                {"freed when kept", &model::freed_when_kept, in_this_length(1000, 20'000)}});
}

}  // namespace
}  // namespace tidemark::test
