// SPDX-License-Identifier: Apache-2.0
// Strategy: long random sequences of everything that a workspace can do on one thread, beside a model: a
// vector of what is allocated, one of what was open when, and for each type the sizes of its slots. What was
// written into each array is there until its scope ends, no two share memory, a slot that had room is where
// it was, and after each step all numbers equal the model's and the invariants hold.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include <tidemark/arena/arena.hpp>
#include <tidemark/pool/pool.hpp>
#include <tidemark/telemetry/test_resource.hpp>
#include <tidemark/workspace/workspace.hpp>

#include "seeds.hpp"
#include "violation_recorder.hpp"
#include "workspace_levels.hpp"
#include "workspace_model.hpp"

namespace tidemark::test {
namespace {

/// @param make_upstream returns a unique pointer to a new resource
template <class Workspace, class MakeUpstream>
void run_workspace_model(MakeUpstream make_upstream) {
  std::uint64_t skipped = 0, refused = 0, trimmed = 0, compacted = 0, kept_in_use = 0, reused = 0, grown = 0;
  const violation_recorder violations;
  run_for_seeds([&](std::uint64_t seed, auto run) {
    const auto upstream = make_upstream();
    workspace_model<Workspace> model{upstream.get(), seed};
    run(model);
    skipped += model.skipped;
    refused += model.refused;
    trimmed += model.trimmed;
    compacted += model.compacted;
    kept_in_use += model.kept_in_use;
    reused += model.reused;
    grown += model.grown;
  });
  EXPECT_TRUE(violations.reports().empty());
  // A sequence that never did these things would show nothing about them.
  for (const std::uint64_t times : {skipped, refused, trimmed, compacted, kept_in_use, reused, grown})
    EXPECT_GT(times, in_this_length(1000, 20'000));
}

constexpr auto on_pool = [] { return std::make_unique<pool>(); };
constexpr auto on_arena = [] { return std::make_unique<arena>(); };
constexpr auto on_test_resource = [] { return std::make_unique<test_resource>(); };

// S4.2
TEST(workspace_model, agrees_with_unchecked_workspaces_on_a_pool) {
  run_workspace_model<unchecked_workspace>(on_pool);
}
TEST(workspace_model, agrees_with_unchecked_workspaces_on_an_arena) {
  run_workspace_model<unchecked_workspace>(on_arena);
}
TEST(workspace_model, agrees_with_unchecked_workspaces_on_a_test_resource) {
  run_workspace_model<unchecked_workspace>(on_test_resource);
}
TEST(workspace_model, agrees_with_checked_workspaces_on_a_pool) {
  run_workspace_model<checked_workspace>(on_pool);
}
// S4.2 S4.4 S4.5 S4.6 S4.7 S4.8 S4.9 S4.12 S4.13 S4.28 S4.30 S4.31 S4.32 S4.38 S4.73 S4.77
TEST(workspace_model, agrees_with_checked_workspaces_on_an_arena) {
  run_workspace_model<checked_workspace>(on_arena);
}
TEST(workspace_model, agrees_with_checked_workspaces_on_a_test_resource) {
  run_workspace_model<checked_workspace>(on_test_resource);
}

}  // namespace
}  // namespace tidemark::test
