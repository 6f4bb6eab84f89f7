// SPDX-License-Identifier: Apache-2.0
// Common parts of the tests of workspaces: a suite that runs at both check levels, over an upstream that
// knows each block.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <string_view>

#include <tidemark/workspace/workspace.hpp>

#include "recording_supply.hpp"

namespace tidemark::test {

using unchecked_workspace = basic_workspace<0>;  // whatever the library's level
using both_levels = testing::Types<unchecked_workspace, checked_workspace>;

/// `TYPED_TEST_SUITE(workspaces, both_levels, )` in a file's own class of this name that derives from it.
template <class Workspace>
class workspace_suite : public testing::Test {
 public:
  using workspace_type = Workspace;
  template <class... Types>
  using scope = typename Workspace::template scope<Types...>;

 protected:
  void TearDown() override { ws.check_invariants(); }

  recording_resource upstream;
  Workspace ws{workspace_options{.upstream = &upstream, .name = "test"}};
};

/// The numbers of one element type; all 0 if it has no slots.
template <class Workspace>
[[nodiscard]] workspace_type_stats stats_of(Workspace const& ws, std::string_view element) {
  workspace_type_stats found;
  ws.for_each_type([&](workspace_type_stats const& one) {
    if (one.element == element) found = one;
  });
  return found;
}

/// Calls `source.acquire<T>(extents...)` for a source of dependent type.
template <class T, class Source, class... Extents>
[[nodiscard]] auto acquire_from(Source& source, Extents... extents) {
  return source.template acquire<T>(extents...);
}

/// One of each type that a workspace knows by number only.
template <int Number>
struct numbered {
  int values[1 + Number % 7];
};

}  // namespace tidemark::test
