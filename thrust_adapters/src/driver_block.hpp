// SPDX-License-Identifier: Apache-2.0
// The driver's calls for a block of each kind.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/cuda/block_kind.hpp>
#include <tidemark/cuda/detail/on_device.hpp>
#include <tidemark/cuda/detail/relaxed_mode.hpp>
#include <tidemark/cuda/driver.hpp>

namespace tidemark::cuda::detail {

/// What the blocks are called in messages.
constexpr char const* name_of(block_kind kind) noexcept {
  constexpr char const* names[] = {"device memory", "pinned memory", "managed memory"};
  return names[static_cast<int>(kind)];
}
/// The call that gives one.
constexpr char const* allocating_call(block_kind kind) noexcept {
  constexpr char const* names[] = {"cuMemAlloc", "cuMemHostAlloc", "cuMemAllocManaged"};
  return names[static_cast<int>(kind)];
}
/// The call that takes one back.
constexpr char const* freeing_call(block_kind kind) noexcept {
  return kind == block_kind::pinned ? "cuMemFreeHost" : "cuMemFree";
}

/// A block of a device.
[[nodiscard]] inline status allocate_block(block_kind kind, driver& driver, device_number device,
                                           std::size_t bytes, std::uintptr_t& block) noexcept {
  const on_device here{driver, device};
  if (here.result() != status::success) return here.result();
  switch (kind) {
    case block_kind::pinned:
      return driver.allocate_pinned(bytes, block);
    case block_kind::managed:
      return driver.allocate_managed(bytes, block);
    case block_kind::device:
      break;
  }
  return driver.allocate(bytes, block);
}
/// Takes it back, during a capture too.
[[nodiscard]] inline status free_block(block_kind kind, driver& driver, device_number device,
                                       std::uintptr_t block) noexcept {
  const relaxed_mode freeing{driver};
  // Without its device current the driver knows the block all the same, by its address.
  const on_device here{driver, device};
  return kind == block_kind::pinned ? driver.free_pinned(block) : driver.free(block);
}

}  // namespace tidemark::cuda::detail
