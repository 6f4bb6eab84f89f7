// SPDX-License-Identifier: Apache-2.0
#include <tidemark/warning.hpp>

#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace tidemark {
namespace {
std::atomic<warning_handler> warning_handler_in_force{nullptr};
}  // namespace

warning_handler set_warning_handler(warning_handler handler) noexcept {
  return warning_handler_in_force.exchange(handler);
}

warning_handler get_warning_handler() noexcept { return warning_handler_in_force.load(); }

namespace detail {

void report_warning(warning_kind kind, char const* resource, char const* format, ...) noexcept {
  warning_handler const handler = get_warning_handler();
  if (handler == nullptr) return;
  char message[512];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  handler({kind, resource, message});
}

}  // namespace detail
}  // namespace tidemark
