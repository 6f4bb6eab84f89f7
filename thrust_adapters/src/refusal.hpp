// SPDX-License-Identifier: Apache-2.0
// What becomes of a call that the driver refused.
#pragma once

#include <cstddef>
#include <limits>

#include <tidemark/cuda/driver.hpp>
#include <tidemark/out_of_memory.hpp>

namespace tidemark::cuda::detail {

/// For calls that memory is needed for. @throws out_of_memory with that report, if the driver lacks memory;
/// cuda_error if it refuses for another reason.
void require_memory(driver& driver, char const* call, status result, exhaustion_report const& report);

/// In a report, where the driver will not tell a number of bytes.
inline constexpr std::size_t nobody_knows = std::numeric_limits<std::size_t>::max();

/// Bytes of the current device that are not taken; `nobody_knows` if the driver will not tell.
[[nodiscard]] std::size_t free_bytes(driver& driver) noexcept;

/// A warning that the driver would not take memory back; none if it is shutting down, because everything goes
/// then.
void report_lost(driver& driver, char const* resource, char const* call, status result,
                 std::size_t bytes) noexcept;

}  // namespace tidemark::cuda::detail
