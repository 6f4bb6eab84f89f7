// SPDX-License-Identifier: Apache-2.0
/// @file
/// `trace_file`: a buffered text file that keeps its first error. Owns the buffer and the open file.
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
/// The parts of one call are never split, so that the file ends with a whole record at any time, also if
/// the program is killed. After an error nothing more is written. Thread-safety: one thread at a time.
class trace_file {
 public:
  /// Creates or truncates the file. An empty path is no file: all calls are ignored, and there is no error.
  /// @throws std::system_error with a sentence that names the file.
  explicit trace_file(std::string path = {});

  /// Whether records are still written.
  [[nodiscard]] bool is_open() const noexcept { return file_ != nullptr && !error_; }
  /// Appends the parts as one record. Allocates nothing. O(bytes).
  void append(std::initializer_list<std::string_view> parts) noexcept;
  /// Writes the buffer to the operating system.
  void flush() noexcept;
  /// Flushes and closes.
  void close() noexcept;
  /// Closes without writing the buffer: in a child, because the parent writes it.
  void abandon() noexcept;
  /// Sets the error, if there is none yet.
  void fail(std::errc reason) noexcept;

  /// The first error, if there was one.
  [[nodiscard]] std::error_code error() const noexcept { return error_; }
  [[nodiscard]] std::string const& path() const noexcept { return path_; }

 private:
  static constexpr std::size_t buffer_bytes = std::size_t{1} << 16;

  struct closes {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };

  void write(char const* text, std::size_t bytes) noexcept;

  std::string path_;
  std::unique_ptr<std::FILE, closes> file_;  // null: there is no file, or it was closed
  std::unique_ptr<char[]> buffer_;
  std::size_t used_ = 0;  // bytes in the buffer, <= buffer_bytes
  std::error_code error_;
};

}  // namespace tidemark::detail
