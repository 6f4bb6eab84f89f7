// SPDX-License-Identifier: Apache-2.0
// Strategy: long random programs of heaps, plans, captures, events, limits and suspended arenas on one fake
// device, which finds every access to missing memory and every race. TIDEMARK_STEPS=200000 runs a million
// operations.
#include <gtest/gtest.h>

#include "device_memory_model.hpp"
#include "seeds.hpp"

namespace tidemark::test {
namespace {

TEST(device_memory_model, random_programs_touch_only_memory_that_is_theirs) {
  using model = device_memory_model;
  run_for_seeds<model>(4'000, {{"refused requests", &model::refused, 50},
                               {"planned steps", &model::planned_steps, 50},
                               {"launches", &model::launches, 50},
                               {"resumes", &model::resumes, 50},
                               {"blocks freed behind another stream", &model::waits_of_blocks, 50},
                               {"released graphs", &model::released_graphs, 5}});
}

}  // namespace
}  // namespace tidemark::test
