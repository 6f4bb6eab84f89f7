// SPDX-License-Identifier: Apache-2.0
/// @file
/// A text file that is written piece by piece and whose errors are kept. Owns its buffer and the open file.
#pragma once

#include <cstddef>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

namespace tidemark::detail {

/// One of a trace's files, written where nothing may be thrown or allocated.
///
/// What was appended in one call reaches the file in one piece, so that what is there of it at any time, also
/// when the program was killed, ends with a whole piece. After an error nothing is written any more. One
/// thread at a time.
class trace_file {
 public:
  /// No file: takes nothing, and has no error.
  trace_file() = default;
  /// Makes the file, or empties it. @throws std::system_error with a sentence that names the file.
  explicit trace_file(std::string path);

  /// Whether pieces are still taken.
  [[nodiscard]] bool is_open() const noexcept { return file_ != nullptr && !error_; }
  /// Appends the parts as one piece. Allocates nothing. O(bytes).
  void append(std::initializer_list<std::string_view> parts) noexcept;
  /// Hands what is buffered to the operating system.
  void flush() noexcept;
  /// Flushes and closes. Nothing can be appended then.
  void close() noexcept;
  /// From now on as if writing had failed for this reason, if it has not failed before.
  void fail(std::errc reason) noexcept;

  /// The first error; none while all is well.
  [[nodiscard]] std::error_code error() const noexcept { return error_; }
  [[nodiscard]] std::string const& path() const noexcept { return path_; }

 private:
  static constexpr std::size_t buffer_bytes = std::size_t{1} << 16;

  struct closes {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };

  void write(char const* text, std::size_t bytes) noexcept;

  std::string path_;
  std::unique_ptr<std::FILE, closes> file_;  // null: there is none, or it was closed
  std::unique_ptr<char[]> buffer_;
  std::size_t used_ = 0;  // bytes in the buffer, <= buffer_bytes
  std::error_code error_;
};

}  // namespace tidemark::detail
