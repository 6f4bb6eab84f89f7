// SPDX-License-Identifier: Apache-2.0
// Runs a model for several seeds. A failing sequence prints its seed; TIDEMARK_SEED=n repeats it,
// TIDEMARK_STEPS=n sets its length. The results contain the number of steps, for ./run soak.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

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

/// A minimum for a count of a model: all sequences together must exceed `times`, or they show nothing about
/// it.
template <class Model>
struct sequence_count {
  char const* what;
  std::function<std::uint64_t(Model const&)> count;
  std::uint64_t times;
};

/// The same for models of one type, whose counts are added up and expected.
template <class Model, class MakeModel>
void run_for_seeds(MakeModel make_model, std::uint64_t default_steps,
                   std::vector<sequence_count<Model>> const& wanted) {
  std::vector<std::uint64_t> sums(wanted.size());
  run_for_seeds(
      [&](std::uint64_t seed, auto run) {
        make_model(seed, [&](Model& model) {
          run(model);
          for (std::size_t i = 0; i < wanted.size(); ++i) sums[i] += wanted[i].count(model);
        });
      },
      default_steps);
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_GT(sums[i], wanted[i].times) << wanted[i].what;
}
/// For models that are made of a seed alone.
template <class Model>
void run_for_seeds(std::uint64_t default_steps, std::vector<sequence_count<Model>> const& wanted) {
  run_for_seeds<Model>(
      [](std::uint64_t seed, auto run) {
        Model model{seed};
        run(model);
      },
      default_steps, wanted);
}

}  // namespace tidemark::test
