// SPDX-License-Identifier: Apache-2.0
// Strategy: a scope without a name ends at its semicolon. unnamed_scopes.py compiles this file, and expects a
// warning for each line that is marked `// warns`, and for no other line.
#include <utility>

#include <tidemark/tidemark.hpp>
#include <tidemark/workspace/extras/this_thread_workspace.hpp>

using namespace tidemark;

// clang-format off
void unnamed(arena& a, shared_arena& s, workspace& w, basic_workspace<0>& w0, basic_workspace<1>& w1,
             planned_arena& p, epoch_resource& e, trace_log& log, expect_no_upstream& quiet, pool& blocks) {
  arena::scope{a};                                  // warns
  arena::scope{&a};                                 // warns
  arena::scope{};                                   // warns
  (arena::scope(a));                                // warns
  upstream_arena other{&blocks};
  upstream_arena::scope{other};                     // warns
  shared_arena::scope{s};                           // warns
  workspace::scope{w};                              // warns
  workspace::scope<double, int>{w};                 // warns
  basic_workspace<0>::scope<>{w0};                  // warns
  basic_workspace<1>::scope<float>{w1};             // warns
  planned_arena::step{p};                           // warns
  epoch{e};                                         // warns
  epoch{e, "step"};                                 // warns
  buffer_group{e};                                  // warns
  trace_slice{log, "x"};                            // warns
  allocation_site{"x"};                             // warns
  allocation_site{};                                // warns
  expect_resource{&a, "x"};                         // warns
  expect_resource::allowance{};                     // warns
  quiet.expect_none();                              // warns
  workspace_binding{w};                             // warns
  on_memory_pressure([] {});                        // warns
  pressure_subscription{};                          // warns
  scratch(no_conflicts);                            // warns
  scratch(a);                                       // warns
  arena::scope named{a};
  shared_arena::scope team{s};
  arena::scope{std::move(named)};                   // warns
  shared_arena::scope{std::move(team)};             // warns
  const workspace::scope open{w};
  const planned_arena::step step{p};
  const epoch phase{e};
  const trace_slice slice{log, "x"};
  const allocation_site site{"x"};
  const expect_resource expected{&a};
  const expect_resource::allowance allowed;
  const workspace_binding bound{w};
  named = arena::scope{a};
  named = {};
}
