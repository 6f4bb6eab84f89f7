// SPDX-License-Identifier: Apache-2.0
// Strategy: random sequences on many stacks of adaptors (adaptor_stack.hpp), compared with the shadow of
// resource_model.hpp. The counts of the layers must agree all the time, and at its end each stack must have
// returned all blocks of its upstream, block by block.
#include <gtest/gtest.h>

#include <cstdint>

#include "adaptor_stack.hpp"
#include "seeds.hpp"
#include "stacks_model.hpp"

namespace tidemark::test {
namespace {

// D.7
TEST(resource_model, agrees_with_stacks_of_adaptors) {
  adaptor_stack::reached seen;
  run_for_seeds(
      [&](std::uint64_t seed, auto run) {
        stacks_model model{seed, seen};
        run(model);
      },
      8'000);
  if (::testing::Test::HasFailure()) return;
  EXPECT_GT(seen.two_of_a_kind, seen.stacks / 4);
  EXPECT_GT(seen.refused_below, seen.stacks / 4);
  EXPECT_GT(seen.quarantined, seen.stacks / 4);
}

}  // namespace
}  // namespace tidemark::test
