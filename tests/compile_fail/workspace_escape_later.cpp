// SPDX-License-Identifier: Apache-2.0
// Memory that leaves the function of its scope through a variable. Clang 22 finds each CASE with its
// experimental analysis of lifetimes (-Wexperimental-lifetime-safety -Xclang -fexperimental-lifetime-safety),
// and does not warn without a case.
#include "workspace_escape.cpp"

namespace later {
#if CASE == 101  // message: stack memory is returned later
std::span<double> escaping(workspace& ws) {
  workspace::scope<> scope{ws};
  std::span<double> values = scope.acquire<double>(3);
  return values;
}
#elif CASE == 102  // message: stack memory is returned later
auto escaping(workspace& ws) {
  workspace::scope<> scope{ws};
  auto values = scope.acquire<double>(3);
  return values;
}
#elif CASE == 103  // message: stack memory is returned later
std::span<double> escaping(workspace& ws) {
  workspace::scope<> scope{ws};
  auto values = scope.acquire<double>(3);
  return values;
}
#elif CASE == 104  // message: stack memory is returned later
auto escaping(workspace& ws) {
  workspace::scope<> scope{ws};
  auto bits = scope.trues(3, 4);
  return bits;
}
#elif CASE == 105  // message: stack memory is returned later
dl_tensor* escaping(workspace& ws) {
  workspace::scope<> scope{ws};
  auto* tensor = acquire_tensor<double>(scope, 3);
  return tensor;
}
#elif CASE == 106  // message: does not live long enough
double escaping(workspace& ws) {
  workspace::view<double> values;
  {
    workspace::scope<> scope{ws};
    values = scope.acquire<double>(3);
  }
  return values[0];
}
#elif CASE == 107  // message: does not live long enough
double escaping(workspace& ws) {
  std::span<double> values;
  {
    workspace::scope<> scope{ws};
    values = scope.acquire<double>(3);
  }
  return values[0];
}
#elif CASE == 108  // message: stack memory is returned later
std::span<double> escaping() {
  workspace ws;
  std::span<double> values = ws.acquire<double>(3);
  return values;
}
#endif
}  // namespace later
