// SPDX-License-Identifier: Apache-2.0
/// @file `table`: reads a file of comma-separated rows below a header, row by row. For the readers of traces
/// and plans; not part of the library.
#pragma once

#include <cstddef>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tidemark::tools {

/// Converts a file's text for a message, as tidemark-report does. Each byte of a non-ASCII character becomes
/// a question mark.
[[nodiscard]] std::string printable(std::string_view text, std::size_t max_length = 40);

/// Parses a whole number of 1 to 20 decimal digits.
/// @param reason set if the text is not a number: "not a whole number", "more than 2^64 - 1".
[[nodiscard]] std::size_t whole_number(std::string_view text, char const*& reason);

/// Maximum bytes of a line before its LF. Files without line ends, such as /dev/zero, thus cause an error.
inline constexpr std::size_t max_line_bytes = std::size_t{1} << 20;

/// A file of rows of comma-separated fields below a header. Errors name file and line.
class table {
 public:
  /// @param header the required header; empty: any header, which `line_text` then returns without a UTF-8
  ///   byte order mark. Spreadsheets write this mark.
  /// @throws std::runtime_error with `FILE: reason` or `FILE:LINE: reason`, as all members do.
  table(std::string const& path, std::string_view header);

  /// Returns the text of the current line without its end. Before the first row this is the header.
  [[nodiscard]] std::string const& line_text() const { return text_; }
  /// Returns the number of the current line, from 1.
  [[nodiscard]] std::size_t line() const { return line_; }
  /// Returns the fields of the current line, valid until the next line is read.
  [[nodiscard]] std::vector<std::string_view> fields() const;

  /// Reads the fields of the next row into `fields`, valid until the next line is read. The row must have
  /// this number of fields.
  /// @return false at the end.
  bool next_row(std::span<std::string_view> fields);

  /// Reads the next line with any contents. @return false at the end.
  bool next_line();

  [[noreturn]] void fail(std::string const& reason) const { fail_at(line_, reason); }
  /// Fails with the number of an earlier line.
  [[noreturn]] void fail_at(std::size_t line, std::string const& reason) const;
  /// Parses the number in a field. `what` names the field in the error.
  [[nodiscard]] std::size_t number(char const* what, std::string_view text) const;

 private:
  [[noreturn]] void fail_to_read() const;

  std::string path_;
  std::ifstream file_;
  std::vector<char> buffer_;  // for a line and a NUL
  std::size_t line_ = 0;
  std::string text_;  // of the current line
};

}  // namespace tidemark::tools
