// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/detail/late_reports.hpp>

#include <cstdarg>
#include <cstdio>
#include <memory>
#include <new>

namespace tidemark::detail {

void late_reports::add(violation_kind kind, char const* resource, char const* format, ...) noexcept {
  char message[sizeof first_.message];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  entry* const added = first_.resource == nullptr ? &first_ : new (std::nothrow) entry;
  if (added == nullptr) return report_violation(then_, kind, resource, "%s", message);
  added->kind = kind;
  added->resource = resource;
  std::snprintf(added->message, sizeof added->message, "%s", message);
  if (added != &first_) last_ = last_->next = added;
}

void late_reports::report_all() noexcept {
  report_violation(then_, first_.kind, first_.resource, "%s", first_.message);
  for (std::unique_ptr<entry> each{first_.next}; each != nullptr; each.reset(each->next))
    report_violation(then_, each->kind, each->resource, "%s", each->message);
}

}  // namespace tidemark::detail
