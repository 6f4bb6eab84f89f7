// SPDX-License-Identifier: Apache-2.0
/// @file `pending_file`: a file that appears under its name when it is complete.
#pragma once

#include <filesystem>
#include <string>

namespace tidemark::tools {

/// A file that appears under its name when it is complete and `appear` is called; what was there until then
/// stays. A device or a pipe is written to when `appear` is called. That cannot be undone, so let
/// these come before the other files, which can then fail only by being renamed.
class pending_file {
 public:
  /// Writes a text under another name in the same folder.
  /// @throws std::runtime_error, `FILE: reason`, as `appear` does; nothing is left then.
  pending_file(std::string const& path, std::string text);
  pending_file(pending_file const&) = delete;
  pending_file& operator=(pending_file const&) = delete;
  ~pending_file();

  void appear();
  /// Whether it is a device or a pipe.
  [[nodiscard]] bool is_special() const { return is_special_; }

  /// Throws what the constructor would, as far as can be known before there is a text.
  static void require_writable(std::string const& path);

 private:
  std::string path_;
  std::filesystem::path target_;   // of a link
  std::filesystem::path partial_;  // empty: there is none
  bool is_special_ = false;
  std::string text_;  // for a device or a pipe
};

}  // namespace tidemark::tools
