// SPDX-License-Identifier: Apache-2.0
// Memory that leaves the function of its scope or workspace. Clang warns of each CASE, because acquisitions
// are lifetimebound and views are pointers; -Werror makes the warning an error. Without a case clang must not
// warn. This file is for clang only, because gcc knows neither attribute.
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include <tidemark/tidemark.hpp>

using namespace tidemark;

template <class Workspace>
struct right_use {
  using scope = typename Workspace::template scope<>;
  using view = typename Workspace::template view<double>;

  static double a_number(Workspace& ws) {
    scope inner{ws};
    const auto values = inner.template zeros<double>(3);
    std::span<double> same = values;
    return same[1] + std::accumulate(values.begin(), values.end(), 0.0);
  }
  static std::vector<double> a_copy(Workspace& ws) {
    scope inner{ws};
    const auto values = inner.template zeros<double>(3);
    return {values.begin(), values.end()};
  }
  static view of_the_callers_scope(scope& outer) { return outer.template acquire<double>(3); }
  static view of_the_callers_workspace(Workspace& ws) { return ws.template acquire<double>(3); }
  static std::span<double> a_span_of_the_callers(scope& outer) {
    const auto values = outer.template acquire<double>(3);
    return values;
  }
  static double* through_a_temporary_view(scope& outer) {
    double* const first = outer.template acquire<double>(3).data();
    *first = 1;
    return first;
  }
  static std::span<double> reshaped(scope& outer) {
    const auto table = outer.template acquire<double>(3, 4).reshape(12);
    tensor_view<double, 1> without_checks = table;
    return without_checks;
  }
  static view from_within(Workspace& ws, scope& outer) {
    const view kept = outer.template acquire<double>(3);
    scope inner{ws};
    (void)inner.template acquire<double>(3);
    return kept;
  }
  static double of_a_body(Workspace& ws) {
    return with_workspace(ws, [](scope& inner) {
      const auto values = inner.template ones<double>(3);
      return inner.returning(values[0]);
    });
  }
  static Workspace& the_workspace(Workspace& ws) {
    const scope inner{ws};
    return inner.workspace();
  }
};
template struct right_use<checked_workspace>;
template struct right_use<basic_workspace<0> >;

#if CASE == 1  // message: address of stack memory
std::span<double> escaping(workspace& ws) {
  workspace::scope<> scope{ws};
  return scope.acquire<double>(3);
}
#elif CASE == 2   // message: address of stack memory
auto escaping(workspace& ws) {
  workspace::scope<> scope{ws};
  return scope.acquire<double>(3);
}
#elif CASE == 3   // message: address of stack memory
auto escaping(workspace& ws) {
  workspace::scope<> scope{ws};
  return scope.zeros<double>(3, 4);
}
#elif CASE == 4   // message: address of stack memory
auto escaping(workspace& ws) {
  workspace::scope<> scope{ws};
  return scope.falses(3);
}
#elif CASE == 5   // message: address of stack memory
dl_tensor* escaping(workspace& ws) {
  workspace::scope<> scope{ws};
  return acquire_tensor<double>(scope, 3);
}
#elif CASE == 6   // message: address of stack memory
auto escaping(workspace& ws, std::vector<double> const& like) {
  workspace::scope<> scope{ws};
  return scope.acquire_like(like);
}
#elif CASE == 7   // message: address of stack memory
std::span<double> escaping() {
  workspace ws;
  return ws.acquire<double>(3);
}
#elif CASE == 8   // message: address of stack memory
struct result {
  std::span<double> values;
};
result escaping(workspace& ws) {
  workspace::scope<> scope{ws};
  return {scope.acquire<double>(3)};
}
#elif CASE == 9   // message: address of stack memory
tensor_view<double const, 1> escaping(workspace& ws) {
  workspace::scope<> scope{ws};
  return scope.acquire<double>(3);
}
#elif CASE == 10  // message: reference to stack memory
workspace& escaping() {
  workspace own;
  return own;
}
#endif
