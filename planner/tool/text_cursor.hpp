// SPDX-License-Identifier: Apache-2.0
/// @file `text_cursor`: reads a line of another program's output from left to right.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "table.hpp"

namespace tidemark::tools {

/// Reads a line from left to right. A mismatch throws an error with the file and line.
class text_cursor {
 public:
  /// @param rows the table whose current line is read.
  explicit text_cursor(table const& rows) : rows_{&rows}, rest_{rows.line_text()} {}

  [[nodiscard]] std::string_view rest() const { return rest_; }

  /// Skips a text if it comes next.
  bool skip_if(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  /// Skips a text. Fails if the text does not come next.
  void skip(std::string_view text) {
    if (!skip_if(text)) fail(text);
  }
  /// Returns the text before the next `text`, or before its last occurrence if `last` is set. Skips both.
  std::string_view until(std::string_view text, bool last = false) {
    const std::size_t end = last ? rest_.rfind(text) : rest_.find(text);
    if (end == std::string_view::npos) fail(text);
    const std::string_view before = rest_.substr(0, end);
    rest_.remove_prefix(end + text.size());
    return before;
  }
  /// Reads the number that comes next.
  /// @param what the number's name in an error.
  std::size_t number(char const* what) {
    const std::size_t digits = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    const std::string_view text = rest_.substr(0, digits);
    rest_.remove_prefix(digits);
    return rows_->number(what, text);
  }

 private:
  [[noreturn]] void fail(std::string_view text) const {
    rows_->fail("'" + std::string{text} + "' is missing before '" + printable(rest_) + "'");
  }

  table const* rows_;
  std::string_view rest_;
};

}  // namespace tidemark::tools
