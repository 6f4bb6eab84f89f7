// SPDX-License-Identifier: Apache-2.0
// Strategy: a scope without a name ends at its semicolon. unnamed_scopes.py compiles this file, and expects a
// warning for each line that is marked `// warns`, with the marked text, and for no other line.
#include <utility>

#include <tidemark/tidemark.hpp>
#include <tidemark/workspace/extras/this_thread_workspace.hpp>

using namespace tidemark;

// clang-format off
void unnamed(arena& a, shared_arena& s, workspace& w, basic_workspace<0>& w0, basic_workspace<1>& w1,
             planned_arena& p, epoch_resource& e, trace_log& log, expect_no_upstream& quiet, pool& blocks) {
  arena::scope{a};                                  // warns: name the scope
  arena::scope{&a};                                 // warns: name the scope
  arena::scope{};                                   // warns: name the scope
  (arena::scope(a));                                // warns: name the scope
  upstream_arena other{&blocks};
  upstream_arena::scope{other};                     // warns: name the scope
  shared_arena::scope{s};                           // warns: name the scope
  workspace::scope{w};                              // warns: name the scope
  workspace::scope<double, int>{w};                 // warns: name the scope
  basic_workspace<0>::scope<>{w0};                  // warns: name the scope
  basic_workspace<1>::scope<float>{w1};             // warns: name the scope
  planned_arena::step{p};                           // warns: name the scope
  epoch{e};                                         // warns: name the scope
  epoch{e, "step"};                                 // warns: name the scope
  buffer_group{e};                                  // warns
  trace_slice{log, "x"};                            // warns: name the scope
  allocation_site{"x"};                             // warns: name the scope
  allocation_site{};                                // warns: name the scope
  expect_resource{&a, "x"};                         // warns: name the scope
  expect_resource::allowance{};                     // warns: name the scope
  quiet.expect_none();                              // warns: name the scope
  workspace_binding{w};                             // warns: name the scope
  on_memory_pressure([] {});                        // warns
  pressure_subscription{};                          // warns
  scratch(no_conflicts);                            // warns: name the scope
  scratch(a);                                       // warns: name the scope
  arena::scope named{a};
  shared_arena::scope team{s};
  arena::scope{std::move(named)};                   // warns: name the scope
  shared_arena::scope{std::move(team)};             // warns: name the scope
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
