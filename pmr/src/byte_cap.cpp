// SPDX-License-Identifier: Apache-2.0
#include <tidemark/byte_cap.hpp>

#include <charconv>
#include <cstdlib>
#include <system_error>

namespace tidemark {

std::optional<std::size_t> parse_byte_cap(std::string_view text) noexcept {
  std::size_t bytes = 0;
  char const* const first = text.data();
  char const* const end = first + text.size();
  const std::from_chars_result parsed = std::from_chars(first, end, bytes);
  if (parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  return bytes;
}

byte_cap byte_cap_from_environment(char const* name, std::size_t fallback_bytes) {
  char const* const text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): as documented
  if (text == nullptr || *text == '\0') return {.bytes = fallback_bytes, .warning = {}};
  if (const std::optional<std::size_t> bytes = parse_byte_cap(text)) return {.bytes = *bytes, .warning = {}};
  return {.bytes = fallback_bytes,
          .warning = std::string{name} + " is '" + text +
                     "', which is not a number of bytes in digits alone, or too large; " +
                     (fallback_bytes == 0 ? std::string{"no limit is set"}
                                          : "the limit stays " + std::to_string(fallback_bytes) + " bytes")};
}

}  // namespace tidemark
