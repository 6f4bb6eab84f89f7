// SPDX-License-Identifier: Apache-2.0
#include <tidemark/diagnose/expect_resource.hpp>

#include <exception>
#include <stdexcept>
#include <utility>

#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/diagnose/detail/new_watch.hpp>

#include "missed_blocks.hpp"
#include "watching_resource.hpp"

namespace tidemark {

using detail::innermost_scope;

expect_resource::expect_resource(std::pmr::memory_resource const* expected, char const* name) {
  name = detail::name_or(name, "expect_resource");
  const allowance own_records;
  if (expected == nullptr)
    throw std::invalid_argument(std::string{"expect_resource '"} + name + "': the expected resource is null");
  missed_ = std::make_unique<detail::missed_blocks>(expected, name);
  detail::watch_default_resource();
  missed_->exceptions_at_begin = std::uncaught_exceptions();
  missed_->outer = std::exchange(innermost_scope, missed_.get());
  missed_->operator_new_is_watched = detail::is_operator_new_watched();
}

// Usually the innermost; those on the heap may end in another order.
expect_resource::~expect_resource() {
  const allowance own_records;
  detail::unwatch_default_resource();
  detail::missed_blocks** link = &innermost_scope;
  while (*link != nullptr && *link != missed_.get()) link = &(*link)->outer;
  if (*link == nullptr) {
    // Its thread may be writing to the records.
    detail::missed_blocks const* const left = missed_.release();
    detail::report_violation(violation_kind::wrong_thread, left->name(),
                             "expect_resource '%s': the scope is ended by another thread than began it",
                             left->name());
    return;
  }
  *link = missed_->outer;
  if (missed_->unseen_blocks() != 0 && std::uncaught_exceptions() <= missed_->exceptions_at_begin)
    missed_->report_violation();
}

std::uint64_t expect_resource::missed_blocks() const noexcept {
  missed_->mark_seen();
  return missed_->blocks();
}

std::uint64_t expect_resource::missed_bytes() const noexcept {
  missed_->mark_seen();
  return missed_->bytes();
}

std::string expect_resource::report() const {
  const allowance own_text;
  missed_->mark_seen();
  return missed_->report();
}

}  // namespace tidemark
