// SPDX-License-Identifier: Apache-2.0
// Replaces the library's report handler during its lifetime, and records the reports.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <tidemark/core/violation.hpp>

namespace tidemark::test {

/// One recorder of each kind at a time.
template <class Report, auto SetHandler>
class report_recorder {
 public:
  using kind_type = decltype(Report::kind);

  report_recorder() : before_{SetHandler(&record)} { reports().clear(); }
  report_recorder(report_recorder const&) = delete;
  report_recorder& operator=(report_recorder const&) = delete;
  ~report_recorder() { SetHandler(before_); }

  struct entry {
    kind_type kind;
    std::string resource, message;
  };
  /// The reports so far.
  static std::vector<entry>& reports() {
    static std::vector<entry> entries;
    return entries;
  }
  /// Number of reports of one kind so far.
  static std::size_t count(kind_type kind) {
    return static_cast<std::size_t>(std::ranges::count(reports(), kind, &entry::kind));
  }

  /// The message of the only report so far, which must be of this kind.
  static std::string only(kind_type kind) {
    EXPECT_EQ(count(kind), 1u);
    EXPECT_EQ(reports().size(), 1u);
    return reports().empty() ? "" : reports().front().message;
  }

 private:
  static void record(Report const& report) {
    reports().push_back({report.kind, report.resource, report.message});
  }

  void (*before_)(Report const&);
};

}  // namespace tidemark::test
