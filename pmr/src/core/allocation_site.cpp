// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/allocation_site.hpp>

#include <tidemark/core/detail/request.hpp>

namespace tidemark {
namespace {

thread_local allocation_site* innermost_site = nullptr;

}  // namespace

allocation_site::allocation_site(char const* label, std::source_location where) noexcept
    : label_{detail::name_or(label, "")}, where_{where}, outer_{innermost_site} {
  innermost_site = this;
}

// Usually the innermost; those on the heap may end in another order.
allocation_site::~allocation_site() {
  allocation_site** link = &innermost_site;
  while (*link != nullptr && *link != this) link = &(*link)->outer_;
  if (*link == this) *link = outer_;
}

allocation_site const* allocation_site::innermost() noexcept { return innermost_site; }

}  // namespace tidemark
