// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/call_site.hpp>

#include <stdexcept>

#include <tidemark/core/violation.hpp>

namespace tidemark::detail {

std::string opened_text(call_site outer, call_site inner) {
  const std::string first = outer.text(), second = inner.text();
  if (first.empty() || second.empty()) return "";
  return "; they were opened" + first + " and" + second;
}

void throw_not_open(char const* owner, call_site opened) {
  const std::string message = std::string{owner} +
                              ": a scope is used after it was ended or moved from, or before it was opened" +
                              opened.opened();
  report_violation(violation_kind::ended_scope_use, owner, "%s", message.c_str());
  throw std::logic_error{message};
}

}  // namespace tidemark::detail
