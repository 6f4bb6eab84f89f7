// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::exported_memory`: what another process needs to map a device's memory. Owns the file descriptors,
/// and none of the memory.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <tidemark/core/file_descriptor.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu {

/// One allocation of physical memory (a handle) of an `exported_memory`.
struct exported_handle {
  std::size_t offset = 0;              ///< bytes of the handles before it
  std::size_t size = 0;                ///< bytes, a multiple of the device's granularity
  file_descriptor descriptor{};        ///< if it is exported as a file descriptor
  std::array<std::byte, 64> fabric{};  ///< if it is exported as fabric, as `CUmemFabricHandle`
};

/// The memory behind a range of addresses, for `gpu::imported_memory` in another process.
///
/// ```cpp
/// gpu::exported_memory shared = space.export_memory(range);
/// for (auto const& each : shared.handles) send(socket, each.offset, each.size, each.descriptor.get());
/// ```
/// The driver exports whole handles, so the range may begin behind the first byte of the first one and end
/// before the last byte of the last one. An importer can map, and so read and write, all of these bytes: also
/// those of neighbouring blocks.
///
/// How the numbers and the descriptors get to the other process is the program's matter (see
/// `file_descriptor`); the receiver makes the same object of them. A fabric handle is 64 bytes, for
/// which nothing has to be closed.
///
/// The physical memory lives while it is mapped anywhere, or a file descriptor of it is open. Move-only. A
/// value: thread-safety as of a vector.
struct exported_memory {
  handle_type exported_as = handle_type::none;  ///< file descriptors or fabric handles
  std::size_t offset = 0;                       ///< bytes of the first handle before the range
  std::size_t size = 0;                         ///< bytes of the range
  std::vector<exported_handle> handles{};       ///< behind the range, in the order of the addresses
};

}  // namespace tidemark::gpu
