// SPDX-License-Identifier: Apache-2.0
// Records reports of misuse instead of aborting, as long as it lives.
#pragma once

#include <string>
#include <vector>

#include <tidemark/violation.hpp>

namespace tidemark::test {

class violation_recorder {
 public:
  violation_recorder() : before_{set_violation_handler(&record)} { reports().clear(); }
  violation_recorder(violation_recorder const&) = delete;
  violation_recorder& operator=(violation_recorder const&) = delete;
  ~violation_recorder() { set_violation_handler(before_); }

  struct entry {
    violation_kind kind;
    std::string message;
  };
  /// The reports so far. One recorder at a time.
  static std::vector<entry>& reports() {
    static std::vector<entry> entries;
    return entries;
  }
  /// Number of reports of one kind so far.
  static std::size_t count(violation_kind kind) {
    std::size_t n = 0;
    for (entry const& report : reports()) n += report.kind == kind ? 1 : 0;
    return n;
  }

 private:
  static void record(violation const& report) { reports().push_back({report.kind, report.message}); }

  violation_handler before_;
};

}  // namespace tidemark::test
