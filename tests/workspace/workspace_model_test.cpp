// SPDX-License-Identifier: Apache-2.0
// Strategy: long random sequences of all operations of a workspace on one thread, compared with a model: a
// vector of arrays, a vector of open scopes, and the slot sizes of each type. Each array keeps its contents
// until its scope ends, and no two arrays share memory. A slot with enough room does not move. After each
// step all numbers equal the model's, and the invariants hold.
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
  using model = workspace_model<Workspace>;
  const violation_recorder violations;
  const std::uint64_t times = in_this_length(1000, 20'000);
  run_for_seeds<model>(
      [&](std::uint64_t seed, auto run) {
        const auto upstream = make_upstream();
        model one{upstream.get(), seed};
        run(one);
      },
      full_steps,
      {{"skipped", &model::skipped, times},
       {"refused", &model::refused, times},
       {"trimmed", &model::trimmed, times},
       {"compacted", &model::compacted, times},
       {"kept in use", &model::kept_in_use, times},
       {"reused", &model::reused, times},
       {"grown", &model::grown, times}});
  EXPECT_TRUE(violations.reports().empty());
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
// S4.2 S4.3 S4.4 S4.5 S4.6 S4.7 S4.8 S4.9 S4.12 S4.13 S4.28 S4.30 S4.31 S4.32 S4.33 S4.38 S4.60 S4.73 S4.78
TEST(workspace_model, agrees_with_checked_workspaces_on_an_arena) {
  run_workspace_model<checked_workspace>(on_arena);
}
TEST(workspace_model, agrees_with_checked_workspaces_on_a_test_resource) {
  run_workspace_model<checked_workspace>(on_test_resource);
}

}  // namespace
}  // namespace tidemark::test
