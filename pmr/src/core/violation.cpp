// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/violation.hpp>

#include <unistd.h>
#if TIDEMARK_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string_view>

namespace tidemark {
namespace {

// Runs in a signal handler, which then continues with the signal's earlier action.
void print_in_signal_handler(violation const& report) noexcept {
  for (std::string_view part :
       {std::string_view{"tidemark: "}, std::string_view{report.message}, std::string_view{"\n"}})
    if (::write(STDERR_FILENO, part.data(), part.size()) < 0) return;
}

// Also prints the call stack if a sanitizer can.
void print(violation const& report) {
  std::fprintf(stderr, "tidemark: %s\n", report.message);
#if TIDEMARK_ASAN
  __sanitizer_print_stack_trace();
#endif
}

void print_and_abort(violation const& report) {
  if (report.kind == violation_kind::use_after_rewind) return print_in_signal_handler(report);
  print(report);
  std::abort();
}

std::atomic<violation_handler> violation_handler_in_force{print_and_abort};
std::atomic<warning_handler> warning_handler_in_force{nullptr};

}  // namespace

violation_handler set_violation_handler(violation_handler handler) noexcept {
  return violation_handler_in_force.exchange(handler != nullptr ? handler : print_and_abort);
}

violation_handler get_violation_handler() noexcept { return violation_handler_in_force.load(); }

warning_handler set_warning_handler(warning_handler handler) noexcept {
  return warning_handler_in_force.exchange(handler);
}

warning_handler get_warning_handler() noexcept { return warning_handler_in_force.load(); }

namespace detail {
namespace {

template <class Report, class Kind>
void report(void (*handler)(Report const&), Kind kind, char const* resource, char const* format,
            std::va_list arguments) noexcept {
  char message[512];
  std::vsnprintf(message, sizeof message, format, arguments);
  handler({kind, resource, message});
}

}  // namespace

void report_violation(violation_kind kind, char const* resource, char const* format, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, format);
  report(get_violation_handler(), kind, resource, format, arguments);
  va_end(arguments);
}

void report_violation(by_default then, violation_kind kind, char const* resource, char const* format,
                      ...) noexcept {
  violation_handler handler = get_violation_handler();
  if (handler == print_and_abort) {
    if (then == by_default::is_not_called) return;
    if (then == by_default::goes_on) handler = print;
  }
  std::va_list arguments;
  va_start(arguments, format);
  report(handler, kind, resource, format, arguments);
  va_end(arguments);
}

void report_warning(warning_kind kind, char const* resource, char const* format, ...) noexcept {
  warning_handler const handler = get_warning_handler();
  if (handler == nullptr) return;
  std::va_list arguments;
  va_start(arguments, format);
  report(late_warnings::handler_or(handler), kind, resource, format, arguments);
  va_end(arguments);
}

}  // namespace detail
}  // namespace tidemark

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

constinit thread_local late_warnings* outermost_warnings = nullptr;  // outermost object of this thread

}  // namespace

late_warnings::late_warnings() noexcept {
  if (outermost_warnings == nullptr) outermost_warnings = this;
}

late_warnings::~late_warnings() {
  if (outermost_warnings != this) return;
  outermost_warnings = nullptr;
  for (entry const& each : deferred_warnings_)
    report_warning(each.kind, each.resource.c_str(), "%s", each.message.c_str());
}

warning_handler late_warnings::handler_or(warning_handler in_force) noexcept {
  return outermost_warnings != nullptr ? &defer : in_force;
}

void late_warnings::defer(warning const& found) noexcept {
  try {
    outermost_warnings->deferred_warnings_.push_back({found.kind, found.resource, found.message});
  } catch (std::bad_alloc const&) {
    if (warning_handler const handler = get_warning_handler()) handler(found);
  }
}

}  // namespace tidemark::detail
