// SPDX-License-Identifier: Apache-2.0
/// @file
/// `byte_cap`: a limit in bytes that users set with an environment variable. Owns its warning.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tidemark {

/// A limit, and a warning if the text that sets the limit was rejected.
///
/// ```cpp
/// byte_cap const cap = byte_cap_from_environment("TIDEMARK_CACHE_BYTES_MAX");
/// if (!cap.warning.empty()) std::fprintf(stderr, "%s\n", cap.warning.c_str());
/// reuse_cache tensors{{.max_cached_bytes = cap.bytes}};
/// ```
/// The warning is returned, not printed, because the library prints nothing by itself. It is not a violation,
/// because the default handler aborts and a user's typing error is not a program error.
struct byte_cap {
  std::size_t bytes = 0;  ///< the limit; tidemark's options take 0 as "no limit"
  std::string warning;    ///< a sentence if a text was rejected, otherwise empty
};

/// Parses a number of bytes: decimal digits only, without sign, space or unit.
/// @return the number; empty if the text is empty, has other characters, or is too large. O(length).
/// Thread-safe.
[[nodiscard]] std::optional<std::size_t> parse_byte_cap(std::string_view text) noexcept;

/// Parses the environment variable `name` with `parse_byte_cap`. @return the number, or `fallback_bytes` if
/// the variable is unset, empty or rejected. A rejected variable also gives a warning with its name, its text
/// and the limit in effect.
/// @throws std::bad_alloc if there is no memory for the warning. Thread-safe while no thread changes the
/// environment, as for `std::getenv`.
[[nodiscard]] byte_cap byte_cap_from_environment(char const* name, std::size_t fallback_bytes = 0);

/// Parses a number of MiB, and returns bytes. Same syntax as `parse_byte_cap`; numbers that are too large
/// return SIZE_MAX.
/// @return the bytes; empty if the text is empty or has other characters. O(length). Thread-safe.
[[nodiscard]] std::optional<std::size_t> parse_mib_cap(std::string_view text) noexcept;

/// Like `byte_cap_from_environment`, for a variable in MiB (`parse_mib_cap`).
[[nodiscard]] byte_cap mib_cap_from_environment(char const* name, std::size_t fallback_bytes = 0);

}  // namespace tidemark
