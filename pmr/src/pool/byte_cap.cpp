// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/byte_cap.hpp>

#include <charconv>
#include <cstdlib>
#include <limits>
#include <system_error>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/core/violation.hpp>

namespace tidemark {
namespace {

using parse_cap = std::optional<std::size_t>(std::string_view) noexcept;

std::size_t cap_from_environment(char const* name, std::size_t fallback_bytes, parse_cap* parse,
                                 char const* allowed) {
  char const* const text =
      name != nullptr ? std::getenv(name) : nullptr;  // NOLINT(concurrency-mt-unsafe): as documented
  if (text == nullptr || *text == '\0') return fallback_bytes;
  if (const std::optional<std::size_t> bytes = parse(text)) return *bytes;
  if (fallback_bytes == 0) {
    detail::report_variable(name, "%s is '%s', which is not %s; no limit is set", name, text, allowed);
  } else {
    detail::report_variable(name, "%s is '%s', which is not %s; the limit stays %zu bytes", name, text,
                            allowed, fallback_bytes);
  }
  return fallback_bytes;
}

}  // namespace

std::optional<std::size_t> parse_byte_cap(std::string_view text) noexcept {
  std::size_t bytes = 0;
  char const* const first = text.data();
  char const* const end = first + text.size();
  const std::from_chars_result parsed = std::from_chars(first, end, bytes);
  if (parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  return bytes;
}

std::optional<std::size_t> parse_mib_cap(std::string_view text) noexcept {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  // A number with too many digits counts as the maximum.
  constexpr std::size_t largest = std::numeric_limits<std::size_t>::max();
  return detail::multiply_saturating(parse_byte_cap(text).value_or(largest), MiB);
}

std::size_t byte_cap_from_environment(char const* name, std::size_t fallback_bytes) {
  return cap_from_environment(name, fallback_bytes, parse_byte_cap,
                              "a number of bytes (digits only, below the maximum)");
}

std::size_t mib_cap_from_environment(char const* name, std::size_t fallback_bytes) {
  return cap_from_environment(name, fallback_bytes, parse_mib_cap, "a number of MiB (digits only)");
}

}  // namespace tidemark
