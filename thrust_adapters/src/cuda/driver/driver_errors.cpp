// SPDX-License-Identifier: Apache-2.0
#include "driver_errors.hpp"

#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>

namespace tidemark::cuda::detail {

void require_memory(driver& driver, char const* call, status result, exhaustion_report const& report) {
  if (result == status::out_of_memory) throw out_of_memory{report};
  require(driver, call, result);
}

void require_memory(driver& driver, char const* call, status result, char const* resource) {
  require_memory(driver, call, result,
                 {.resource = resource, .largest_bytes = exhaustion_report::unknown_bytes});
}

device_number device_or_current(driver& driver, device_number device, char const* resource) {
  if (device < 0) require_memory(driver, "cuCtxGetDevice", driver.current_device(device), resource);
  return device;
}

std::size_t free_bytes(driver& driver) noexcept {
  memory_info info;
  return driver.memory(info) == status::success ? info.free_bytes : exhaustion_report::unknown_bytes;
}

void report_lost(driver& driver, char const* resource, char const* call, status result,
                 std::size_t bytes) noexcept {
  if (result == status::deinitialized) return;
  tidemark::detail::report_warning(
      warning_kind::refused_return, resource,
      "%s: %zu bytes are lost, because the driver did not free them: %s: %s (%s)", resource, bytes, call,
      driver.error_name(result), driver.error_string(result));
}

}  // namespace tidemark::cuda::detail
