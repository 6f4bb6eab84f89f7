// SPDX-License-Identifier: Apache-2.0
/// @file
/// `invariant_check`: reports invariants that do not hold.
#pragma once

#include <tidemark/core/violation.hpp>

namespace tidemark::detail {

/// Checks the invariants of one resource: `require(cursor <= end, "cursor <= end")`.
struct invariant_check {
  char const* kind;  ///< of resource
  char const* name;  ///< the resource's

  /// Reports a violation with the formula, unless it holds.
  void operator()(bool holds, char const* formula) const noexcept {
    if (!holds) report(formula);
  }
  /// Reports a violation if there is a broken invariant. @param broken its formula, or null
  void report(char const* broken) const noexcept {
    if (broken == nullptr) return;
    report_violation(violation_kind::invariant, name, "%s '%s': broken invariant: %s", kind, name, broken);
  }
};

}  // namespace tidemark::detail
