// SPDX-License-Identifier: Apache-2.0
// Strategy: scopes and epochs are opened and ended in every way, right and wrong, and a tool that knows the
// rules reports the open ranges.
#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/arena/scratch.hpp>
#include <tidemark/epoch/epoch.hpp>
#include <tidemark/workspace/workspace.hpp>

#include "strict_tool.hpp"
#include "violation_recorder.hpp"

namespace {

using namespace tidemark;
using detail::range_kind;
using ranges_type = std::vector<test::strict_tool::range>;

class named_range : public ::testing::Test {
 protected:
  test::violation_recorder violations;
  test::strict_tool tool;
  arena step{{.reserve = 1 * MiB, .name = "step"}};
  arena other{{.reserve = 1 * MiB, .name = "other"}};
  workspace ws{workspace_options{.name = "solver"}};
  epoch_resource memory{epoch_options{.name = "memory"}};

  const test::strict_tool::range in_step{range_kind::arena_scope, "step"};
  const test::strict_tool::range in_other{range_kind::arena_scope, "other"};
  const test::strict_tool::range in_solver{range_kind::workspace_scope, "solver"};
};

TEST_F(named_range, spans_an_arena_scope) {
  {
    arena::scope scope{step};
    EXPECT_EQ(tool.ranges(), (ranges_type{in_step}));
    arena::scope inner{other};
    EXPECT_EQ(tool.ranges(), (ranges_type{in_step, in_other}));
  }
  EXPECT_TRUE(tool.ranges().empty());
}

TEST_F(named_range, ends_when_a_scope_is_ended_early) {
  arena::scope scope{step};
  workspace::scope<> in_workspace{ws};
  scope.end();
  EXPECT_EQ(tool.ranges(), (ranges_type{in_solver}));
  in_workspace.end();
  EXPECT_TRUE(tool.ranges().empty());
  scope.end();
  in_workspace.end();
}

TEST_F(named_range, ends_when_another_scope_takes_its_place) {
  arena::scope scope{step};
  scope = arena::scope{other};
  EXPECT_EQ(tool.ranges(), (ranges_type{in_other}));
  scope = arena::scope{other};
  EXPECT_EQ(tool.ranges(), (ranges_type{in_other})) << "begins where the old one began";
  scope = arena::scope{};
  EXPECT_TRUE(tool.ranges().empty());
}

TEST_F(named_range, ends_with_its_own_scope_when_scopes_end_out_of_order) {
  std::optional<arena::scope> outer{std::in_place, step};
  arena::scope inner{other};
  arena::scope innermost{step};
  outer.reset();
  EXPECT_EQ(tool.ranges(), (ranges_type{in_other, in_step}));
  EXPECT_EQ(violations.count(violation_kind::scope_order), 1u);
}

TEST_F(named_range, ends_with_its_scope_on_any_thread) {
  arena::scope scope{step};
  arena::scope stays{other};
  step.release_thread_ownership();
  std::thread{[&] { scope.end(); }}.join();
  EXPECT_EQ(tool.ranges(), (ranges_type{in_other}));
  step.release_thread_ownership();
}

TEST_F(named_range, ends_although_the_arena_was_destroyed_under_its_scope) {
  std::optional<arena> gone{std::in_place, arena_options{.reserve = 1 * MiB, .name = "gone"}};
  arena::scope scope{*gone};
  gone.reset();
  scope.end();
  EXPECT_TRUE(tool.ranges().empty());
  EXPECT_EQ(violations.count(violation_kind::scope_outlived), 1u);
}

TEST_F(named_range, spans_a_scratch_scope) {
  const arena::scope temporary = scratch(step);
  ASSERT_EQ(tool.ranges().size(), 1u);
  EXPECT_EQ(tool.ranges().front().name, temporary.arena().name());
}

TEST_F(named_range, spans_a_workspace_scope) {
  {
    workspace::scope<> scope{ws};
    workspace::scope<double> inner{ws};
    EXPECT_EQ(tool.ranges(), (ranges_type{in_solver, in_solver}));
  }
  EXPECT_TRUE(tool.ranges().empty());
  const auto open = with_workspace(ws, [&] { return tool.ranges().size(); });
  EXPECT_EQ(open, 1u);
  EXPECT_TRUE(tool.ranges().empty());
}

TEST_F(named_range, spans_an_epoch) {
  {
    epoch training{memory, "training"};
    EXPECT_EQ(tool.ranges(), (ranges_type{{range_kind::epoch, "training"}}));
    {
      epoch batch{memory, "batch"};
      EXPECT_EQ(tool.ranges(), (ranges_type{{range_kind::epoch, "training"}, {range_kind::epoch, "batch"}}));
    }
    (void)training.end();
    EXPECT_TRUE(tool.ranges().empty());
  }
  with_epoch(memory, [&] { EXPECT_EQ(tool.ranges().size(), 1u); });
  EXPECT_TRUE(tool.ranges().empty());
}

TEST_F(named_range, ends_with_an_epoch_that_another_thread_ends) {
  std::optional<epoch> opened{std::in_place, memory, "elsewhere"};
  std::thread{[&] { (void)opened->end(); }}.join();
  EXPECT_TRUE(tool.ranges().empty());
  EXPECT_EQ(violations.count(violation_kind::wrong_thread), 1u);
  opened.reset();
}

TEST_F(named_range, covers_blocks_freed_at_its_end) {
  borrowed_device_arena device{borrowed_device_memory{{std::uintptr_t{1} << 62, 1 * MiB}}};
  {
    const borrowed_device_arena::scope scope{device};
    (void)device.allocate(100);
    tool.calls.clear();
  }
  EXPECT_EQ(tool.calls, (std::vector<std::string>{"reset_heap", "end_range"}));
}

TEST_F(named_range, is_not_sent_to_a_tool_that_does_not_listen) {
  detail::ranges_are_heard.store(false);
  {
    const arena::scope scope{step};
    const workspace::scope<> in_workspace{ws};
    const epoch one{memory};
  }
  EXPECT_TRUE(tool.calls.empty());
  detail::ranges_are_heard.store(true);
}

TEST_F(named_range, is_not_ended_if_the_tool_rejected_its_begin) {
  tool.watches = false;
  {
    const arena::scope scope{step};
    const epoch one{memory};
  }
  EXPECT_EQ(tool.calls, (std::vector<std::string>{"begin_range", "begin_range"}));
}

}  // namespace
