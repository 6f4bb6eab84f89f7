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

namespace {

constinit thread_local late_warnings* keeper = nullptr;  // the outermost one of this thread

}  // namespace

late_warnings::late_warnings() noexcept {
  if (keeper == nullptr) keeper = this;
}

late_warnings::~late_warnings() {
  if (keeper != this) return;
  keeper = nullptr;
  for (entry const& each : kept_)
    report_warning(each.kind, each.resource.c_str(), "%s", each.message.c_str());
}

warning_handler late_warnings::handler_or(warning_handler in_force) noexcept {
  return keeper != nullptr ? &keep : in_force;
}

void late_warnings::keep(warning const& found) noexcept {
  try {
    keeper->kept_.push_back({found.kind, found.resource, found.message});
  } catch (std::bad_alloc const&) {
    if (warning_handler const handler = get_warning_handler()) handler(found);
  }
}

}  // namespace tidemark::detail
