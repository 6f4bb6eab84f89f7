// SPDX-License-Identifier: Apache-2.0
#include <tidemark/core/out_of_memory.hpp>

#include <cstdio>

#include <tidemark/core/detail/request.hpp>

namespace tidemark {

out_of_memory::out_of_memory(exhaustion_report const& report) noexcept : report_{report} {
  report_.resource = detail::name_or(report_.resource, "");
  report_.because = detail::name_or(report_.because, "");
  char largest[64] = "";
  if (report.largest_bytes != exhaustion_report::unknown_bytes) {
    std::snprintf(largest, sizeof largest, "; the largest that would fit is %zu bytes", report.largest_bytes);
  }
  std::snprintf(message_, sizeof message_,
                "%s: out of memory: %zu bytes aligned to %zu requested, %zu used of %zu committed and %zu "
                "reserved%s%s%s",
                report_.resource, report.requested_bytes, report.alignment, report.used_bytes,
                report.committed_bytes, report.reserved_bytes, largest,
                report_.because[0] != '\0' ? "; " : "", report_.because);
}

}  // namespace tidemark
