// SPDX-License-Identifier: Apache-2.0
#include "driver_errors.hpp"

#include <stdexcept>
#include <string>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>

namespace tidemark::gpu::detail {

void require_memory(driver& driver, char const* call, status result, exhaustion_report const& report) {
  if (result == status::out_of_memory) throw out_of_memory{report};
  require_success(driver, call, result);
}

void require_memory(driver& driver, char const* call, status result, char const* resource) {
  require_memory(driver, call, result,
                 {.resource = resource, .largest_bytes = exhaustion_report::unknown_bytes});
}

device_number device_or_current(driver& driver, device_number device, char const* resource) {
  if (device < 0) require_memory(driver, "cuCtxGetDevice", driver.current_device(device), resource);
  return device;
}

void require_one_stream(char const* kind, char const* name, stream_handle stream) {
  if (stream != per_thread_stream) return;
  throw std::invalid_argument(std::string{kind} + " '" + name +
                              "': cudaStreamPerThread is another stream in each thread; make a gpu::stream");
}

void require_peers(driver& driver, char const* kind, device_number owner, device_set peers) {
  for (device_number peer = 0; peer < device_set::max_devices; ++peer) {
    if (peer == owner || !peers.contains(peer)) continue;
    bool can = false;
    require_success(driver, "cuDeviceCanAccessPeer", driver.can_access_peer(peer, owner, can));
    if (can) continue;
    throw std::invalid_argument(std::string{kind} + ": device " + std::to_string(peer) +
                                " cannot access the memory of device " + std::to_string(owner));
  }
}

std::size_t free_bytes(driver& driver) noexcept {
  memory_info info;
  return driver.memory(info) == status::success ? info.free_bytes : exhaustion_report::unknown_bytes;
}

void report_lost(driver& driver, char const* resource, char const* call, status result,
                 std::size_t bytes) noexcept {
  // Not initialized: a forked child, whose parent owns the memory.
  if (result == status::deinitialized || shows_that_nothing_runs(result)) return;
  tidemark::detail::report_warning(
      warning_kind::refused_return, resource,
      "%s: %zu bytes are lost, because the driver did not free them: %s: %s (%s)", resource, bytes, call,
      driver.error_name(result), driver.error_string(result));
}

void report_lost_in_capture(char const* resource, std::size_t bytes) noexcept {
  tidemark::detail::report_violation(violation_kind::open_capture, resource,
                                     "%s: destroyed while its stream is capturing: %zu bytes are lost, "
                                     "because a wait for their work would invalidate the capture",
                                     resource, bytes);
}

byte_range reserve_addresses(driver& driver, std::size_t least_bytes, std::size_t most_bytes,
                             std::size_t unit_bytes) {
  return tidemark::detail::reserve_by_halves(least_bytes, most_bytes, [&](std::size_t bytes) -> byte_range {
    byte_range reserved;
    const status result = driver.reserve(tidemark::detail::align_up(bytes, unit_bytes), unit_bytes, reserved);
    if (result == status::out_of_memory) return {};
    require_success(driver, "cuMemAddressReserve", result);
    return reserved;
  });
}

}  // namespace tidemark::gpu::detail
