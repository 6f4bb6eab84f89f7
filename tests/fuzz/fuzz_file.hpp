// SPDX-License-Identifier: Apache-2.0
/// @file Files of a fuzzer's bytes, and the requirements of a refusal.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tidemark::fuzz {

inline void require(bool holds, std::string const& what) {
  if (holds) return;
  std::fprintf(stderr, "not true: %s\n", what.c_str());
  std::abort();
}

/// A file without a disk.
class memory_file {
 public:
  explicit memory_file(std::string_view text)
      : descriptor_{memfd_create("fuzz", 0)}, path_{"/proc/self/fd/" + std::to_string(descriptor_)} {
    require(write(descriptor_, text.data(), text.size()) == static_cast<ssize_t>(text.size()),
            "the input is written");
  }
  memory_file(memory_file const&) = delete;
  memory_file& operator=(memory_file const&) = delete;
  ~memory_file() { close(descriptor_); }
  [[nodiscard]] std::string const& path() const { return path_; }

 private:
  int descriptor_;
  std::string path_;
};

inline void require_one_line(std::string_view sentence) {
  require(!sentence.empty(), "a refusal has a sentence");
  for (const char c : sentence)
    require(static_cast<unsigned char>(c) >= ' ' && c != 127,
            "a sentence has no control characters: '" + std::string{sentence} + "'");
}

/// Reads, and requires of a refusal that it names the file. @return whether it was read
template <class Read>
bool reads(memory_file const& file, Read const& read) {
  try {
    read(file.path());
    return true;
  } catch (std::runtime_error const& error) {
    require_one_line(error.what());
    require(std::string_view{error.what()}.starts_with(file.path() + ":"),
            "'" + std::string{error.what()} + "' names the file");
  } catch (std::bad_alloc const&) {  // a number that is too large
  }
  return false;
}

}  // namespace tidemark::fuzz
