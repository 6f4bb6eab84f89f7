// SPDX-License-Identifier: Apache-2.0
// The driver's calls for a block of each kind.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/memory/block_memory.hpp>

namespace tidemark::gpu::detail {

/// A kind's name in messages, and its calls with their names.
struct block_calls {
  char const* name;
  char const* allocating;
  status (driver::*allocate)(std::size_t, std::uintptr_t&) noexcept;
  char const* freeing;
  status (driver::*free)(std::uintptr_t) noexcept;
};

inline constexpr block_calls calls_by_kind[] = {
    {"device memory", "cuMemAlloc", &driver::allocate, "cuMemFree", &driver::free},
    {"pinned memory", "cuMemHostAlloc", &driver::allocate_pinned, "cuMemFreeHost", &driver::free_pinned},
    {"managed memory", "cuMemAllocManaged", &driver::allocate_managed, "cuMemFree", &driver::free}};
template <block_kind Kind>
inline constexpr block_calls calls_of = calls_by_kind[static_cast<int>(Kind)];

/// A block of a device.
[[nodiscard]] inline outcome allocate_block(block_calls const& calls, driver& driver, device_number device,
                                            std::size_t bytes, std::uintptr_t& block) noexcept {
  const on_device here{driver, device};
  if (here.result() != status::success) return {here.result(), calls.allocating};
  return {(driver.*calls.allocate)(bytes, block), calls.allocating};
}
/// Frees it, also during a capture.
[[nodiscard]] inline outcome free_block(block_calls const& calls, driver& driver, device_number device,
                                        std::uintptr_t block) noexcept {
  // The driver knows the block by its address even if its device could not be made current.
  const on_device here{driver, device};
  return {(driver.*calls.free)(block), calls.freeing};
}

}  // namespace tidemark::gpu::detail
