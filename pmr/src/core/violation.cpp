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
#include <string_view>

#include <tidemark/core/detail/late_reports.hpp>

namespace tidemark {
namespace {

// In a signal handler, which goes on to what the signal does.
void print_in_signal_handler(violation const& report) noexcept {
  for (std::string_view part :
       {std::string_view{"tidemark: "}, std::string_view{report.message}, std::string_view{"\n"}})
    if (::write(STDERR_FILENO, part.data(), part.size()) < 0) return;
}

// With the calls that led there, where a sanitizer can print them.
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
