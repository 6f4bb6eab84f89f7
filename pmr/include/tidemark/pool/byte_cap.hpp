// SPDX-License-Identifier: Apache-2.0
/// @file
/// `byte_cap`: a limit in bytes that a user sets by an environment variable. Owns its warning.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tidemark {

/// A limit and what was wrong with the text that was to set it.
///
/// ```cpp
/// byte_cap const cap = byte_cap_from_environment("TIDEMARK_CACHE_BYTES_MAX");
/// if (!cap.warning.empty()) std::fprintf(stderr, "%s\n", cap.warning.c_str());
/// reuse_cache tensors{{.max_cached_bytes = cap.bytes}};
/// ```
/// The warning is returned and not printed, because the library prints nothing on its own; nor is it a
/// violation, because a user's typing error is not the program's, and the default handler aborts.
struct byte_cap {
  std::size_t bytes = 0;  ///< the limit; 0 is "without limit" wherever tidemark takes one of these
  std::string warning;    ///< a sentence, if a text was rejected; else empty
};

/// The number of bytes that `text` says: decimal digits and nothing else, neither sign, space nor unit.
/// @return nothing if it says anything else, nothing at all, or more than fits. O(length). Thread-safe.
[[nodiscard]] std::optional<std::size_t> parse_byte_cap(std::string_view text) noexcept;

/// What the environment variable `name` says, or `fallback_bytes` where it is unset or empty, or is rejected
/// by `parse_byte_cap`: then with a warning that names it, its text and what holds instead.
/// @throws std::bad_alloc if there is no memory for the warning. Thread-safe as `std::getenv` is: as long as
/// no thread changes the environment.
[[nodiscard]] byte_cap byte_cap_from_environment(char const* name, std::size_t fallback_bytes = 0);

/// The number of bytes in so many MiB as `text` says, written as above. More than fits is SIZE_MAX, which is
/// as good.
/// @return nothing if it says anything else, or nothing at all. O(length). Thread-safe.
[[nodiscard]] std::optional<std::size_t> parse_mib_cap(std::string_view text) noexcept;

/// `byte_cap_from_environment` of a variable that says MiB, by `parse_mib_cap`.
[[nodiscard]] byte_cap mib_cap_from_environment(char const* name, std::size_t fallback_bytes = 0);

}  // namespace tidemark
