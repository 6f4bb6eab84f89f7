// SPDX-License-Identifier: Apache-2.0
#include <tidemark/telemetry/expect_no_upstream.hpp>

#include <tidemark/core/violation.hpp>

namespace tidemark {

void expect_no_upstream::report(std::size_t bytes, std::size_t align) noexcept {
  unexpected_.fetch_add(1, std::memory_order_relaxed);
  detail::report_violation(
      violation_kind::upstream_use, name(),
      "expect_no_upstream '%s': %zu bytes aligned to %zu are allocated from the upstream in "
      "a quiet period",
      name(), bytes, align);
}

}  // namespace tidemark
