// SPDX-License-Identifier: Apache-2.0
/// @file `pending_file`: a file that appears under its name when it is complete.
#pragma once

#include <filesystem>
#include <string>

namespace tidemark::tools {

/// A file that appears under its name when `appear` is called. An existing file stays unchanged until then.
/// Devices and pipes are written by `appear`, which cannot be undone. Call `appear` for these first: the
/// other files can then fail only when they are renamed.
class pending_file {
 public:
  /// Writes a text under another name in the same folder.
  /// @throws std::runtime_error with `FILE: reason`, as `appear` does; no file is left behind.
  pending_file(std::string const& path, std::string text);
  pending_file(pending_file const&) = delete;
  pending_file& operator=(pending_file const&) = delete;
  ~pending_file();

  void appear();
  /// Returns true for a device or a pipe.
  [[nodiscard]] bool is_special() const { return is_special_; }

  /// Throws the constructor's errors that can be detected without the text.
  static void require_writable(std::string const& path);

 private:
  std::string path_;
  std::filesystem::path target_;   // the target if the path is a link
  std::filesystem::path partial_;  // empty if no partial file exists
  bool is_special_ = false;
  std::string text_;  // for a device or a pipe
};

}  // namespace tidemark::tools
