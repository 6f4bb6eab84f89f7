// SPDX-License-Identifier: Apache-2.0
#include <tidemark/violation.hpp>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace tidemark {
namespace {

void print_and_abort(violation const& report) {
  std::fprintf(stderr, "tidemark: %s\n", report.message);
  std::abort();
}

std::atomic<violation_handler> violation_handler_in_force{print_and_abort};

}  // namespace

violation_handler set_violation_handler(violation_handler handler) noexcept {
  return violation_handler_in_force.exchange(handler != nullptr ? handler : print_and_abort);
}

violation_handler get_violation_handler() noexcept { return violation_handler_in_force.load(); }

namespace detail {

void report_violation(violation_kind kind, char const* resource, char const* format, ...) noexcept {
  char message[512];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  get_violation_handler()({kind, resource, message});
}

}  // namespace detail
}  // namespace tidemark
