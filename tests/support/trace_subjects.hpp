// SPDX-License-Identifier: Apache-2.0
// A traced arena as a subject of the conformance suite and of the model test.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <vector>

#include <tidemark/telemetry/trace_resource.hpp>

#include "arena_subjects.hpp"

namespace tidemark::test {

/// The upstream is an arena, because the suite requires reuse of memory. Its chunks come from the supply.
class traced_arena_subject : public subject_traits<upstream_arena_subject::largest> {
 public:
  explicit traced_arena_subject(supply_type& upstream) : below_{upstream} {}

  trace_resource& resource() { return traced_; }
  void recycle() { below_.recycle(); }
  void check() const {
    below_.check();
    traced_.check_invariants();
  }
  // Excludes `refused`, which a failed call must change.
  [[nodiscard]] std::vector<std::size_t> state() const {
    std::vector<std::size_t> all = below_.state();
    for (const std::size_t count : visible(traced_.stats())) all.push_back(count);
    return all;
  }

 private:
  upstream_arena_subject below_;
  trace_log log_{{.csv = "/dev/null", .chrome = "/dev/./null"}};
  trace_resource traced_{&below_.resource(), log_, "traced arena"};
};

}  // namespace tidemark::test
