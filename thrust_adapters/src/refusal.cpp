// SPDX-License-Identifier: Apache-2.0
#include "refusal.hpp"

#include <tidemark/cuda/cuda_error.hpp>
#include <tidemark/warning.hpp>

namespace tidemark::cuda::detail {

void require_memory(driver& driver, char const* call, status result, exhaustion_report const& report) {
  if (result == status::out_of_memory) throw out_of_memory{report};
  require(driver, call, result);
}

std::size_t free_bytes(driver& driver) noexcept {
  memory_info info;
  return driver.memory(info) == status::success ? info.free_bytes : nobody_knows;
}

void report_lost(driver& driver, char const* resource, char const* call, status result,
                 std::size_t bytes) noexcept {
  if (result == status::deinitialized) return;
  tidemark::detail::report_warning(
      warning_kind::refused_return, resource,
      "%s: %zu bytes are lost, because the driver would not take them back: %s: %s (%s)", resource, bytes,
      call, driver.error_name(result), driver.error_string(result));
}

}  // namespace tidemark::cuda::detail
