// SPDX-License-Identifier: Apache-2.0
/// @file
/// `call_site`: the place of a call, which messages of level 2 name. Owns nothing.
#pragma once

#include <source_location>
#include <string>

#include <tidemark/core/config.hpp>

namespace tidemark::detail {

/// The place of a call: `void rewind(call_site where = std::source_location::current())`. Below level 2 it is
/// empty and costs nothing.
// A class for each level, so that no member is there below it.
#if TIDEMARK_CHECKS >= 2
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
};
#endif

}  // namespace tidemark::detail
