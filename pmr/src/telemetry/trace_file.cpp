// SPDX-License-Identifier: Apache-2.0
#include <tidemark/telemetry/detail/trace_file.hpp>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tidemark::detail {
namespace {

std::error_code last_error() noexcept { return {errno != 0 ? errno : EIO, std::generic_category()}; }

}  // namespace

trace_file::trace_file(std::string path) : path_{std::move(path)} {
  if (path_.empty()) return;
  buffer_ = std::make_unique_for_overwrite<char[]>(buffer_bytes);
  errno = 0;
  file_.reset(std::fopen(path_.c_str(), "we"));  // "e": child processes do not inherit it
  if (file_ == nullptr) throw std::system_error(last_error(), "trace_log: cannot open " + path_);
  // The C library would write its buffer in the middle of a record.
  std::setvbuf(file_.get(), nullptr, _IONBF, 0);
}

void trace_file::append(std::initializer_list<std::string_view> parts) noexcept {
  std::size_t bytes = 0;
  for (std::string_view part : parts) bytes += part.size();
  if (bytes > buffer_bytes - used_) flush();
  if (!is_open()) return;
  for (std::string_view part : parts) {
    if (bytes > buffer_bytes) {
      write(part.data(), part.size());  // a name longer than the buffer: the record is split
    } else if (!part.empty()) {
      std::memcpy(buffer_.get() + used_, part.data(), part.size());
      used_ += part.size();
    }
  }
}

void trace_file::flush() noexcept { write(buffer_.get(), std::exchange(used_, 0)); }

void trace_file::close() noexcept {
  flush();
  if (file_ == nullptr) return;
  errno = 0;
  if (std::fclose(file_.release()) != 0 && !error_) error_ = last_error();
}

void trace_file::abandon() noexcept {
  used_ = 0;
  file_.reset();
}

void trace_file::fail(std::errc reason) noexcept {
  if (is_open()) error_ = std::make_error_code(reason);
}

void trace_file::write(char const* text, std::size_t bytes) noexcept {
  if (!is_open() || bytes == 0) return;
  errno = 0;
  if (std::fwrite(text, 1, bytes, file_.get()) != bytes) error_ = last_error();
}

}  // namespace tidemark::detail
