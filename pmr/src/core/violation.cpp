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

constinit thread_local late_reports* outermost_reports = nullptr;  // outermost object of this thread

void send_violation(late_reports::entry const& found) {
  violation_handler handler = get_violation_handler();
  if (handler == print_and_abort) {
    if (found.then == by_default::is_not_called) return;
    if (found.then == by_default::continues) handler = print;
  }
  handler({static_cast<violation_kind>(found.kind), found.resource, found.message});
}

void send_warning(late_reports::entry const& found) {
  if (warning_handler const handler = get_warning_handler())
    handler({static_cast<warning_kind>(found.kind), found.resource, found.message});
}

void send_variable(late_reports::entry const& found) {
  if (get_warning_handler() == nullptr) (void)std::fprintf(stderr, "tidemark: %s\n", found.message);
  else send_warning(found);
}

void report(void (*send)(late_reports::entry const&), int kind, by_default then, char const* resource,
            char const* format, std::va_list arguments) noexcept {
  late_reports::entry found;
  found.send = send;
  found.kind = kind;
  found.then = then;
  found.resource = resource;
  std::vsnprintf(found.message, sizeof found.message, format, arguments);
  const bool is_in_signal_handler =
      found.send == send_violation && found.kind == static_cast<int>(violation_kind::use_after_rewind);
  if (is_in_signal_handler || outermost_reports == nullptr || !outermost_reports->add(found)) send(found);
}

}  // namespace

void report_violation(violation_kind kind, char const* resource, char const* format, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, format);
  report(send_violation, static_cast<int>(kind), by_default::aborts, resource, format, arguments);
  va_end(arguments);
}

void report_violation(by_default then, violation_kind kind, char const* resource, char const* format,
                      ...) noexcept {
  std::va_list arguments;
  va_start(arguments, format);
  report(send_violation, static_cast<int>(kind), then, resource, format, arguments);
  va_end(arguments);
}

void report_warning(warning_kind kind, char const* resource, char const* format, ...) noexcept {
  if (get_warning_handler() == nullptr) return;
  std::va_list arguments;
  va_start(arguments, format);
  report(send_warning, static_cast<int>(kind), by_default::continues, resource, format, arguments);
  va_end(arguments);
}

void report_variable(char const* variable, char const* format, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, format);
  report(send_variable, static_cast<int>(warning_kind::refused_setting), by_default::continues, variable,
         format, arguments);
  va_end(arguments);
}

late_reports::late_reports() noexcept {
  if (outermost_reports == nullptr) outermost_reports = this;
}

late_reports::~late_reports() {
  if (outermost_reports != this) return;
  outermost_reports = nullptr;
  if (first_.send != nullptr) first_.send(first_);
  for (std::unique_ptr<entry> each{first_.next}; each != nullptr; each.reset(each->next)) each->send(*each);
}

bool late_reports::add(entry const& found) noexcept {
  entry* const added = first_.send == nullptr ? &first_ : new (std::nothrow) entry;
  if (added == nullptr) return false;
  added->send = found.send;
  added->kind = found.kind;
  added->then = found.then;
  added->resource = added->name;
  std::snprintf(added->name, sizeof added->name, "%s", found.resource);
  std::snprintf(added->message, sizeof added->message, "%s", found.message);
  if (added != &first_) last_ = last_->next = added;
  return true;
}

}  // namespace detail
}  // namespace tidemark
