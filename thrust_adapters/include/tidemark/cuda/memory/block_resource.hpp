// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::device_resource`, `gpu::pinned_resource`, `gpu::managed_resource`: one driver block for each
/// allocation. Own no memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/memory/block_memory.hpp>
#include <tidemark/cuda/memory/detail/driver_resource.hpp>

namespace tidemark::gpu {

/// Options of a `block_resource`.
struct block_resource_options {
  /// Device; -1: the current device of the thread that makes the resource.
  device_number device = -1;
  /// Name in messages and statistics; null: the default of the kind. Must outlive the resource and its
  /// exceptions.
  char const* name = nullptr;
};

/// A `std::pmr::memory_resource` of driver blocks: the upstream of pools and caches for devices. Each call
/// makes an expensive driver call: put a pool, a cache or an arena on it if the cost matters. A free may or
/// may not wait for the device: deallocate a block only after its work has ended, as `device_pool` and
/// `device_cache` do.
///
/// ```cpp
/// gpu::pinned_resource pinned;
/// std::pmr::vector<float> staged(n, &pinned);           // copies from it are asynchronous
/// gpu::device_resource memory;
/// device_cache tensors{{.stream = stream, .upstream = &memory}};
/// ```
/// Memory is uninitialised. The host must not access device memory: do not put containers there.
///
/// `detail::driver_resource` documents `allocate`, `deallocate`, `stats`, `name` and `device`. Each call
/// makes the device current. From level 1 on, `deallocate` reports wrong deallocations. Level 2 reports
/// blocks that are live at destruction, which can no longer be freed. Thread-safety: any thread.
/// @tparam Kind kind of memory
template <block_kind Kind>
class block_resource final : public detail::driver_resource {
 public:
  /// Makes a resource. @param driver table of driver calls; must outlive this object.
  /// @throws cuda_error or out_of_memory if the driver does not return the current device.
  explicit block_resource(block_resource_options const& options = {}, driver& driver = default_driver());
  /// Makes a resource with the default options.
  explicit block_resource(driver& driver) : block_resource{block_resource_options{}, driver} {}

 private:
  detail::outcome allocate_block(std::size_t bytes, std::uintptr_t& block) noexcept override;
  detail::outcome free_block(std::uintptr_t block, std::size_t bytes) noexcept override;
  [[nodiscard]] std::size_t largest_bytes() const noexcept override;
};

extern template class block_resource<block_kind::device>;
extern template class block_resource<block_kind::pinned>;
extern template class block_resource<block_kind::managed>;

/// Blocks from `cuMemAlloc`.
using device_resource = block_resource<block_kind::device>;
/// Blocks from `cuMemHostAlloc`.
using pinned_resource = block_resource<block_kind::pinned>;
/// Blocks from `cuMemAllocManaged`.
using managed_resource = block_resource<block_kind::managed>;

}  // namespace tidemark::gpu
