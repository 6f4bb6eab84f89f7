// SPDX-License-Identifier: Apache-2.0
/// @file
/// `call_site`: the place of a call, which messages of level 2 name. Owns nothing.
#pragma once

#include <source_location>
#include <string>

#include <tidemark/core/config.hpp>
#include <tidemark/core/macros.hpp>

namespace tidemark::detail {

/// The place of a call: `void rewind(call_site where = std::source_location::current())`. Below level 2 it
/// is empty and costs nothing, unless AddressSanitizer looks on.
// A class for each, so that no member is there where it is empty.
#if TIDEMARK_CHECKS >= 2 || TIDEMARK_ASAN
class call_site {
 public:
  constexpr call_site() noexcept = default;
  constexpr call_site(std::source_location where) noexcept : where_{where} {}

  /// The place; line 0: not known.
  [[nodiscard]] std::source_location location() const noexcept { return where_; }
  /// " at main.cpp:12", for a message.
  [[nodiscard]] std::string text() const {
    if (where_.line() == 0) return "";
    return std::string(" at ") + where_.file_name() + ':' + std::to_string(where_.line());
  }
  /// ", opened at main.cpp:12", for a message about a scope; empty if the place is not known.
  [[nodiscard]] std::string opened() const {
    const std::string at = text();
    return at.empty() ? at : ", opened" + at;
  }

 private:
  std::source_location where_;
};
#else
class call_site {
 public:
  constexpr call_site() noexcept = default;
  constexpr call_site(std::source_location) noexcept {}

  [[nodiscard]] static std::source_location location() noexcept { return {}; }
  [[nodiscard]] static std::string text() { return ""; }
  [[nodiscard]] static std::string opened() { return ""; }
};
#endif

/// "; they were opened at main.cpp:12 and at main.cpp:14", for a message about two scopes; empty if a place
/// is not known.
[[nodiscard]] TIDEMARK_COLD std::string opened_text(call_site outer, call_site inner);

/// Reports the use of a scope that was ended or moved from, or was never opened. @throws std::logic_error
/// with the same message, if the violation handler returns.
[[noreturn]] TIDEMARK_COLD void throw_not_open(char const* owner, call_site opened);

}  // namespace tidemark::detail
