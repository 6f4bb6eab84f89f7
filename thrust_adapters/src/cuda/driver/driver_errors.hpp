// SPDX-License-Identifier: Apache-2.0
// Handling of errors of the driver.
#pragma once

#include <cstddef>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu::detail {

/// Checks a call that needs memory. @throws out_of_memory with the report if the driver has no memory;
/// cuda_error for any other error.
void require_memory(driver& driver, char const* call, status result, exhaustion_report const& report);
/// Checks a call that needs memory, without numbers, for an object under construction.
void require_memory(driver& driver, char const* call, status result, char const* resource);

/// Reason in `out_of_memory` if a `device_budget` refuses the memory.
inline constexpr char const* device_limit_reached = "the limit of its device is reached";
inline constexpr char const* device_memory_exhausted =
    "the device memory is exhausted: free some, or return the part that caches keep (relieve)";
inline constexpr char const* no_mapping_in_captures =
    "the driver cannot map memory while a stream is capturing";
inline constexpr char const* no_addresses =
    "the driver has no addresses left: reserve less, or raise RLIMIT_AS (ulimit -v)";

/// Reserves addresses of `most_bytes`, or of half as many after each refusal, down to `least_bytes`. Both are
/// multiples of `unit_bytes`. @return empty if there are no addresses. @throws cuda_error for any other
/// error.
[[nodiscard]] byte_range reserve_addresses(driver& driver, std::size_t least_bytes, std::size_t most_bytes,
                                           std::size_t unit_bytes);

/// Returns `device`, or the current device if `device` is negative. @throws as `require_memory`.
[[nodiscard]] device_number device_or_current(driver& driver, device_number device, char const* resource);

/// Refuses the calling thread's default stream for a resource whose memory is for one stream, because the
/// handle means another stream in each thread. @throws std::invalid_argument.
void require_one_stream(char const* kind, char const* name, stream_handle stream);

/// Refuses devices that cannot access the memory of `owner`; `owner` itself is permitted.
/// @throws std::invalid_argument; cuda_error for an error of the driver.
void require_peers(driver& driver, char const* kind, device_number owner, device_set peers);

/// Returns the free bytes of the current device; `exhaustion_report::unknown_bytes` if the driver returns an
/// error.
[[nodiscard]] std::size_t free_bytes(driver& driver) noexcept;

/// Warns that the driver did not free memory. Does not warn during the driver's shutdown, which frees all
/// memory, or in a forked child, whose parent owns the memory.
void report_lost(driver& driver, char const* resource, char const* call, status result,
                 std::size_t bytes) noexcept;

/// Reports (`violation_kind::open_capture`) that memory is lost because its stream is capturing.
void report_lost_in_capture(char const* resource, std::size_t bytes) noexcept;

}  // namespace tidemark::gpu::detail
