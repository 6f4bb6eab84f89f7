// SPDX-License-Identifier: Apache-2.0
// The kernel's data about this process's memory and files (Linux; memory also on Windows).
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace tidemark::test {

/// Bytes of `[first, first + bytes)` that are backed by pages now.
inline std::size_t resident_bytes(void* first, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(first) / page * page;
  const std::size_t pages = (reinterpret_cast<std::uintptr_t>(first) + bytes - begin + page - 1) / page;
  std::vector<unsigned char> resident(pages);
  if (mincore(reinterpret_cast<void*>(begin), pages * page, resident.data()) != 0) return 0;
  std::size_t n = 0;
  for (unsigned char flags : resident) n += flags & 1u;
  return n * page;
}

/// True if huge pages were requested behind the mapping of an address.
inline bool has_huge_page_advice(void const* address) {
  std::ifstream mappings{"/proc/self/smaps"};
  bool is_found = false;
  for (std::string line; std::getline(mappings, line);) {
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    if (std::istringstream range{line}; range >> std::hex >> begin >> dash >> end && dash == '-') {
      const auto place = reinterpret_cast<std::uintptr_t>(address);
      is_found = begin <= place && place < end;
    } else if (is_found && line.starts_with("VmFlags:")) {
      return line.find(" hg") != line.npos;
    }
  }
  return false;
}

/// Resident set of the process, in bytes.
inline std::size_t resident_set_bytes() {
  std::size_t total_pages = 0, resident_pages = 0;
  std::ifstream{"/proc/self/statm"} >> total_pages >> resident_pages;
  return resident_pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// File descriptors that are open in this process.
inline int open_files() {
  int n = 0;
  for (int number = 0; number < 1024; ++number) n += ::fcntl(number, F_GETFD) >= 0 ? 1 : 0;
  return n;
}

/// Mappings of files in memory that this process has.
inline int mapped_files() {
  int n = 0;
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; std::getline(maps, line);) n += line.find("/memfd:") != std::string::npos ? 1 : 0;
  return n;
}

}  // namespace tidemark::test
