// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/allocation_site.hpp>

#include <stdexcept>

#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/violation.hpp>

namespace tidemark {
namespace {

thread_local allocation_site* innermost_site = nullptr;

}  // namespace

allocation_site::allocation_site(char const* label, std::source_location where) noexcept
    : label_{detail::name_or(label, "")}, where_{where}, outer_{innermost_site} {
  innermost_site = this;
}

// Usually the innermost site; sites on the heap may end in another order.
allocation_site::~allocation_site() {
  allocation_site** link = &innermost_site;
  while (*link != nullptr && *link != this) link = &(*link)->outer_;
  if (*link == this) *link = outer_;
}

allocation_site const* allocation_site::innermost() noexcept { return innermost_site; }

}  // namespace tidemark

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
