// SPDX-License-Identifier: Apache-2.0
// Runs a model for several seeds. A failing sequence prints its seed; TIDEMARK_SEED=n repeats it,
// TIDEMARK_STEPS=n sets its length. The results contain the number of steps, for ./run soak.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <map>
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

/// Makes a model that needs no more than a seed.
template <class Model>
inline constexpr auto of_a_seed = [](std::uint64_t seed, auto run) {
  Model model{seed};
  run(model);
};

/// What the models of all seeds together have to do, or their sequences would show nothing about it.
template <class Model>
struct at_least {
  char const* what;
  std::uint64_t Model::* count;
  std::uint64_t times;
};

/// As `run_for_seeds`, and expects that the models reach these counts.
template <class Model, class MakeModel>
void run_for_seeds_to_reach(std::initializer_list<at_least<Model>> counts, MakeModel make_model,
                            std::uint64_t default_steps = full_steps) {
  std::map<char const*, std::uint64_t> reached;
  const auto make_and_count = [&](std::uint64_t seed, auto run) {
    make_model(seed, [&](Model& model) {
      run(model);
      for (auto const& each : counts) reached[each.what] += model.*each.count;
    });
  };
  run_for_seeds(make_and_count, default_steps);
  for (auto const& each : counts) EXPECT_GE(reached[each.what], each.times) << each.what;
}

}  // namespace tidemark::test
