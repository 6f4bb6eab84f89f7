// SPDX-License-Identifier: Apache-2.0
#include "pending_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

namespace tidemark::tools {
namespace {

[[noreturn]] void fail(std::string const& path, int error) {
  throw std::runtime_error(path + ": " + std::generic_category().message(error));
}

/// @return the error number, or 0
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

/// Returns the permissions of the existing file, or the default permissions of a new file.
mode_t mode_of(std::filesystem::path const& path) {
  struct ::stat there{};
  if (::stat(path.c_str(), &there) == 0) return there.st_mode & 07777;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

std::filesystem::path folder_of(std::filesystem::path const& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path{"."};
}

bool is_special(std::filesystem::path const& path) {
  std::error_code none;  // a path that cannot be read cannot be opened either
  const std::filesystem::file_status there = std::filesystem::status(path, none);
  return exists(there) && !is_regular_file(there);
}

}  // namespace

void pending_file::require_writable(std::string const& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) fail(path, EISDIR);
  if (path.empty() || path.ends_with('/')) fail(path, ENOENT);
  if (tools::is_special(path)) return;
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  if (error) fail(path, error.value());
  if (::access(folder_of(target).c_str(), W_OK | X_OK) != 0) fail(path, errno);
}

pending_file::pending_file(std::string const& path, std::string text)
    : path_{path}, is_special_{tools::is_special(path)} {
  require_writable(path);
  if (is_special_) {
    target_ = path;
    text_ = std::move(text);
    return;
  }
  target_ = std::filesystem::weakly_canonical(path);
  std::string partial = folder_of(target_) / ".tidemark-plan-XXXXXX";
  const int descriptor = ::mkstemp(partial.data());
  if (descriptor < 0) fail(path_, errno);
  int error = write_all(descriptor, text);
  if (error == 0 && ::fchmod(descriptor, mode_of(target_)) != 0) error = errno;
  if (::close(descriptor) != 0 && error == 0) error = errno;
  if (error != 0) {
    ::unlink(partial.c_str());
    fail(path_, error);
  }
  partial_ = std::move(partial);
}

pending_file::~pending_file() {
  if (!partial_.empty()) ::unlink(partial_.c_str());
}

void pending_file::appear() {
  if (!partial_.empty()) {
    if (::rename(partial_.c_str(), target_.c_str()) != 0) fail(path_, errno);
    partial_.clear();
    return;
  }
  const int descriptor = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) fail(path_, errno);
  int error = write_all(descriptor, text_);
  if (::close(descriptor) != 0 && error == 0) error = errno;
  if (error != 0) fail(path_, error);
}

}  // namespace tidemark::tools
