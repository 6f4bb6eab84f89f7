// SPDX-License-Identifier: Apache-2.0
// Strategy: long random sequences on a process arena, whose file is read back and compared with a model of
// the published data.
#include <gtest/gtest.h>

#include "process_arena_model.hpp"
#include "seeds.hpp"

namespace tidemark::test {
namespace {

TEST(process_arena_model, keeps_published_data_unchanged_until_a_reset) {
  using model = process_arena_model;
  run_for_seeds<model>(20'000, {{"published", &model::published, in_this_length(1000, 20'000)},
                                {"reclaimed", &model::reclaimed, in_this_length(1000, 20'000)},
                                {"kept", &model::kept, in_this_length(1000, 20'000)},
                                {"full", &model::full, in_this_length(10, 20'000)}});
}

}  // namespace
}  // namespace tidemark::test
