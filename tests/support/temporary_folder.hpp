// SPDX-License-Identifier: Apache-2.0
// A folder of a test's own.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>

namespace tidemark::test {

/// An empty folder, gone at its end with all that is in it.
class temporary_folder {
 public:
  temporary_folder() {
    if (::mkdtemp(path_.data()) == nullptr) std::abort();
  }
  temporary_folder(temporary_folder const&) = delete;
  temporary_folder& operator=(temporary_folder const&) = delete;
  ~temporary_folder() { std::filesystem::remove_all(path_); }

  [[nodiscard]] std::string const& path() const { return path_; }
  [[nodiscard]] std::string operator/(char const* name) const { return path_ + "/" + name; }
  [[nodiscard]] auto names() const {
    return std::distance(std::filesystem::directory_iterator{path_}, std::filesystem::directory_iterator{});
  }

 private:
  std::string path_ = (std::filesystem::temp_directory_path() / "tidemark_XXXXXX").string();
};

}  // namespace tidemark::test
