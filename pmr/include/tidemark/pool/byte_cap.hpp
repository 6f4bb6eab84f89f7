// SPDX-License-Identifier: Apache-2.0
/// @file
/// `byte_cap_from_environment`: a limit in bytes that users set with an environment variable. Owns nothing.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace tidemark {

/// Parses a number of bytes: decimal digits only, without sign, space or unit.
/// @return the number; empty if the text is empty, has other characters, or is too large. O(length).
/// Thread-safe.
[[nodiscard]] std::optional<std::size_t> parse_byte_cap(std::string_view text) noexcept;

/// Parses the environment variable `name` with `parse_byte_cap`.
///
/// ```cpp
/// reuse_cache tensors{{.max_cached_bytes = byte_cap_from_environment("TIDEMARK_CACHE_BYTES_MAX")}};
/// ```
/// @return the number, or `fallback_bytes` if the variable is unset, empty or rejected. A rejected variable is
/// reported as `warning_kind::refused_setting`, with its name, its text and the limit in effect. tidemark's
/// options take 0 as "no limit".
/// Thread-safe while no thread changes the environment, as for `std::getenv`.
[[nodiscard]] std::size_t byte_cap_from_environment(char const* name, std::size_t fallback_bytes = 0);

/// Parses a number of MiB, and returns bytes. Same syntax as `parse_byte_cap`; numbers that are too large
/// return SIZE_MAX.
/// @return the bytes; empty if the text is empty or has other characters. O(length). Thread-safe.
[[nodiscard]] std::optional<std::size_t> parse_mib_cap(std::string_view text) noexcept;

/// Like `byte_cap_from_environment`, for a variable in MiB (`parse_mib_cap`).
[[nodiscard]] std::size_t mib_cap_from_environment(char const* name, std::size_t fallback_bytes = 0);

}  // namespace tidemark
