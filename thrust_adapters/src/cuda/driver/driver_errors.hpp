// SPDX-License-Identifier: Apache-2.0
// What becomes of an error of the driver.
#pragma once

#include <cstddef>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu::detail {

/// For calls that need memory. @throws out_of_memory with that report if the driver has no memory;
/// cuda_error of any other error.
void require_memory(driver& driver, char const* call, status result, exhaustion_report const& report);
/// The same without numbers, for objects that are just made.
void require_memory(driver& driver, char const* call, status result, char const* resource);

/// Why there is no memory, where a `device_budget` allows no more.
inline constexpr char const* device_limit_reached = "the limit of its device is reached";
inline constexpr char const* device_memory_exhausted =
    "the device memory is exhausted: free some, or return the part that caches keep (relieve)";
inline constexpr char const* no_mapping_in_captures =
    "a stream is capturing, and the driver maps no memory meanwhile";
inline constexpr char const* no_addresses =
    "the driver has no addresses left: reserve less, or raise RLIMIT_AS (ulimit -v)";

/// Addresses of `most_bytes`, or of half as many each time the driver has no more, down to `least_bytes`,
/// which are multiples of `unit_bytes`; empty if there are none. @throws cuda_error of any other error.
[[nodiscard]] byte_range reserve_addresses(driver& driver, std::size_t least_bytes, std::size_t most_bytes,
                                           std::size_t unit_bytes);

/// `device`, or the current device if it is negative. @throws as `require_memory`.
[[nodiscard]] device_number device_or_current(driver& driver, device_number device, char const* resource);

/// Refuses the default stream of the calling thread for a resource whose memory is for one stream: it is
/// another stream in each thread. @throws std::invalid_argument.
void require_one_stream(char const* kind, char const* name, stream_handle stream);

/// Refuses devices that cannot access the memory of `owner`; `owner` itself may be among them.
/// @throws std::invalid_argument; cuda_error of an error of the driver.
void require_peers(driver& driver, char const* kind, device_number owner, device_set peers);

/// Free bytes of the current device; `exhaustion_report::unknown_bytes` if the driver returns an error.
[[nodiscard]] std::size_t free_bytes(driver& driver) noexcept;

/// Warns that the driver did not free memory. Not if it is shutting down, because that frees everything, and
/// not in a forked child, where the driver does not work and the memory is the parent's.
void report_lost(driver& driver, char const* resource, char const* call, status result,
                 std::size_t bytes) noexcept;

/// Reports (`violation_kind::open_capture`) that memory is lost because its stream is capturing.
void report_lost_in_capture(char const* resource, std::size_t bytes) noexcept;

}  // namespace tidemark::gpu::detail
