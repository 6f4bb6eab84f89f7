// SPDX-License-Identifier: Apache-2.0
/// @file `table`: a file of rows of comma-separated fields below a header, read row by row. For the readers
/// of traces and plans; no part of the library.
#pragma once

#include <cstddef>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tidemark::tools {

/// Text of a file, safe to be printed in a message: as tidemark-report prints it, but that each byte of a
/// character beyond ASCII is a question mark.
[[nodiscard]] std::string printable(std::string_view text, std::size_t max_length = 40);

/// The whole number that a text is: 1 to 20 decimal digits.
/// @param reason is set if it is not a number: "not a whole number", "more than 2^64 - 1".
[[nodiscard]] std::size_t whole_number(std::string_view text, char const*& reason);

/// What a line may have before its LF, so that a file without line ends, such as /dev/zero, is no endless
/// row.
inline constexpr std::size_t max_line_bytes = std::size_t{1} << 20;

/// A file of rows of comma-separated fields below a header. Errors name file and line.
class table {
 public:
  /// @param header that the file must have; empty: any, which `line_text` then gives, without the byte order
  /// mark of UTF-8 that spreadsheets put before it.
  /// @throws std::runtime_error whose text is `FILE: reason` or `FILE:LINE: reason`, as all members do.
  table(std::string const& path, std::string_view header);

  /// The text of the line that was read last, without its end: the header, before any row was read.
  [[nodiscard]] std::string const& line_text() const { return text_; }
  /// Its number, from 1.
  [[nodiscard]] std::size_t line() const { return line_; }
  /// Its fields, good until the next line is read.
  [[nodiscard]] std::vector<std::string_view> fields() const;

  /// The fields of the next row, as many as there is room for, good until the one after it is read.
  /// @return false at the end.
  bool next_row(std::span<std::string_view> fields);

  /// Reads the next line, whatever is in it. @return false at the end.
  bool next_line();

  [[noreturn]] void fail(std::string const& reason) const { fail_at(line_, reason); }
  /// The same for a line that was read before.
  [[noreturn]] void fail_at(std::size_t line, std::string const& reason) const;
  /// The number in a field, which `what` names in the error.
  [[nodiscard]] std::size_t number(char const* what, std::string_view text) const;

 private:
  [[noreturn]] void fail_to_read() const;

  std::string path_;
  std::ifstream file_;
  std::vector<char> buffer_;  // for a line and a NUL
  std::size_t line_ = 0;
  std::string text_;  // of the line
};

}  // namespace tidemark::tools
