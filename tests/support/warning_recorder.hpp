// SPDX-License-Identifier: Apache-2.0
// Records warnings as long as it lives.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <tidemark/warning.hpp>

namespace tidemark::test {

class warning_recorder {
 public:
  warning_recorder() : before_{set_warning_handler(&record)} { reports().clear(); }
  warning_recorder(warning_recorder const&) = delete;
  warning_recorder& operator=(warning_recorder const&) = delete;
  ~warning_recorder() { set_warning_handler(before_); }

  struct entry {
    warning_kind kind;
    std::string resource;
    std::string message;
  };
  /// The warnings so far. One recorder at a time.
  static std::vector<entry>& reports() {
    static std::vector<entry> entries;
    return entries;
  }
  /// Number of warnings of one kind so far.
  static std::size_t count(warning_kind kind) {
    std::size_t n = 0;
    for (entry const& report : reports()) n += report.kind == kind ? 1 : 0;
    return n;
  }

 private:
  static void record(warning const& report) {
    reports().push_back({report.kind, report.resource, report.message});
  }

  warning_handler before_;
};

}  // namespace tidemark::test
