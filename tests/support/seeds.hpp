// SPDX-License-Identifier: Apache-2.0
// Runs a model for several seeds. A failing sequence prints its seed; TIDEMARK_SEED=n repeats it,
// TIDEMARK_STEPS=n sets its length. The results contain the number of steps, for ./run soak.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "run_length.hpp"

namespace tidemark::test {

/// Five seeds. `make_model(seed, run)` makes the model's dependencies and calls `run(model)`. `run` calls
/// `model.step()` as often as configured and `model.check_contents()` now and then, and stops at the first
/// failure.
template <class MakeModel>
void run_for_seeds(MakeModel make_model, std::uint64_t default_steps = full_steps) {
  const std::uint64_t first_seed = number_from_environment("TIDEMARK_SEED", 1);
  const std::uint64_t steps = number_from_environment("TIDEMARK_STEPS", default_steps);
  std::uint64_t operations = 0;
  for (std::uint64_t seed = first_seed; seed < first_seed + 5; ++seed) {
    SCOPED_TRACE("repeat with TIDEMARK_SEED=" + std::to_string(seed));
    make_model(seed, [&](auto& model) {
      for (std::uint64_t i = 0; i < steps; ++i) {
        model.step();
        ++operations;
        if (i % 64 == 0) model.check_contents();
        if (::testing::Test::HasFailure()) {
          ADD_FAILURE() << "at step " << i;
          return;
        }
      }
    });
    if (::testing::Test::HasFailure()) return;
  }
  ::testing::Test::RecordProperty("operations", std::to_string(operations));
}

}  // namespace tidemark::test
