// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::exported_memory`: the handles that another process needs to map a device's memory. Owns the file
/// descriptors, but no memory.
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
  file_descriptor descriptor{};        ///< set if exported as a file descriptor
  std::array<std::byte, 64> fabric{};  ///< set if exported as fabric, as `CUmemFabricHandle`
};

/// The memory behind a range of addresses, for `gpu::imported_memory` in another process.
///
/// ```cpp
/// gpu::exported_memory shared = space.export_memory(range);
/// for (auto const& each : shared.handles) send(socket, each.offset, each.size, each.descriptor.get());
/// ```
/// The driver exports whole handles. The range may therefore begin after the start of the first handle, and
/// end before the end of the last. An importer can read and write all bytes of the handles, including
/// neighbouring blocks.
///
/// The program sends the numbers and the descriptors to the other process (see `file_descriptor`), and the
/// receiver makes the same object from them. A fabric handle is 64 bytes, and nothing has to be closed.
///
/// The physical memory exists while any process maps it or has an open file descriptor of it. Move-only.
/// Thread-safety: as a vector.
struct exported_memory {
  handle_type exported_as = handle_type::none;  ///< file descriptors or fabric handles
  std::size_t offset = 0;                       ///< bytes of the first handle before the range
  std::size_t size = 0;                         ///< bytes of the range
  std::vector<exported_handle> handles{};       ///< handles of the range, in the order of the addresses
};

}  // namespace tidemark::gpu
