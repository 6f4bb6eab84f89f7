// SPDX-License-Identifier: Apache-2.0
// Each CASE must fail to compile, with a message that matches; without a case the file must compile.
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/tidemark.hpp>

using namespace tidemark;

struct particle {
  int id;
};

void misuse(workspace& ws, workspace::scope<>& scope) {
  (void)ws, (void)scope;
#if CASE == 1  // message: deleted
  workspace::scope<> copy{scope};
#elif CASE == 2   // message: deleted
  workspace::scope<> moved{std::move(scope)};
#elif CASE == 3   // message: (deleted|no viable)
  scope = scope;
#elif CASE == 4   // message: deleted
  workspace copy{ws};
#elif CASE == 5   // message: deleted
  workspace moved{std::move(ws)};
#elif CASE == 6   // message: (lvalue|no matching|rvalue|discards)
  auto late = workspace::scope<>{ws}.acquire<double>(3);  // its scope would have ended at the semicolon
#elif CASE == 7   // message: (lvalue|no matching|rvalue|discards)
  auto late = workspace{}.zeros<double>(3);
#elif CASE == 8   // message: (cannot bind|no matching|no viable|lvalue)
  workspace::scope<> dangling{workspace{}};
#elif CASE == 9   // message: a workspace reuses memory as it is: its elements must be trivially copyable
  auto names = scope.acquire<std::string>(3);
#elif CASE == 10  // message: a workspace reuses memory as it is: its elements must be trivially copyable
  workspace::scope<std::vector<int> > of_vectors{ws};
#elif CASE == 11  // message: memory of a workspace is still to be written: its elements cannot be const
  auto numbers = scope.acquire<double const>(3);
#elif CASE == 12  // message: a tensor header has room for 8 extents
  auto* tensor = acquire_tensor<float>(scope, 1, 2, 3, 4, 5, 6, 7, 8, 9);
#elif CASE == 13  // message: DLPack has codes for bool, integers, float, double
  auto* tensor = acquire_tensor<particle>(scope, 3);
#elif CASE == 14  // message: (no viable|conversion|could not convert|no match)
  std::span<float> numbers = scope.acquire<double>(3);
#elif CASE == 15  // message: (no viable|conversion|could not convert|no match)
  std::span<double> numbers = tensor_view<double const, 1>{};
#elif CASE == 16  // message: (no viable|conversion|could not convert|no match)
  std::span<double> numbers = scope.acquire<double>(3, 4);  // of two dimensions
#elif CASE == 17  // message: (no viable|conversion|could not convert|no match)
  checked_workspace::view<double> knows = tensor_view<double, 1>{};
#elif CASE == 18  // message: an extent is an integer: write acquire<double>\(rows, columns\)
  auto numbers = scope.acquire<double>(3.5);
#elif CASE == 19  // message: (explicit|no viable|could not convert|no match|conversion)
  workspace::scope<> implicit = ws;
#elif CASE == 20  // message: (nodiscard|discard|unused|ignoring)
  scope.acquire<double>(3);
#elif CASE == 21  // message: (no member|has no member)
  scope.acquire<double>(3).resize(4);
#elif CASE == 22  // message: (no member|has no member)
  scope.trues(3).push_back(true);
#elif CASE == 23  // message: (not assignable|read-only|no viable|const)
  scope.acquire<double>(3).extents()[0] = 4;
#elif CASE == 24  // message: (deleted|no matching|no match)
  workspace_binding first{ws};
  workspace_binding copy{first};
#elif CASE == 25  // message: (protected|private|no matching|calling a)
  workspace_acquisition<workspace, false> alone;
#endif
}
