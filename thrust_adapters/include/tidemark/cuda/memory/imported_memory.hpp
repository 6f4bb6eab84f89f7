// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::imported_memory`: memory that another process exported, mapped in this process. Owns the addresses
/// and the mappings.
#pragma once

#include <cstddef>
#include <vector>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/memory/exported_memory.hpp>

namespace tidemark::gpu {

/// Options of a `gpu::imported_memory`.
struct imported_memory_options {
  /// Device whose work uses the memory; it may differ from the memory's device. -1: the current device of the
  /// thread that makes the object.
  device_number device = -1;
  /// Stream whose work uses the memory; null: the device's default stream. Must outlive the object.
  stream_handle stream = nullptr;
  /// Other devices that may read and write the memory.
  device_set accessible_from = {};
};

/// Maps memory of `gpu::virtual_memory::export_memory` to addresses of this process.
///
/// ```cpp
/// gpu::exported_memory received = receive(socket);
/// gpu::imported_memory shared{received, {.stream = stream}};
/// received.handles.clear();  // closes the file descriptors, which are not needed any more
/// kernel<<<blocks, threads, 0, stream>>>(shared.range().data());
/// ```
/// All work of this process that uses the memory is on the stream of the options, or an event orders it
/// before later work there. The program orders the work of the two processes.
///
/// The memory stays the same for any action of the exporter. If the exporter decommits, suspends or ends,
/// only its own addresses lose the memory. The physical memory exists until all importers have unmapped it
/// and all its file descriptors are closed. Memory that the exporter commits or resumes later is not visible
/// here.
///
/// Move-only; a moved-from object has an empty range. Thread-safety: one thread at a time. Complexity: 3
/// driver calls for each handle.
class imported_memory {
 public:
  /// Maps all handles, one after the other, and grants access.
  /// @param from exported memory; the caller keeps its file descriptors and may close them afterwards.
  /// @param driver table of driver calls; must outlive this object.
  /// @throws std::invalid_argument if `from` is not a valid export, or the stream is the thread's default
  /// stream; std::logic_error if the stream is capturing; out_of_memory; cuda_error for another error.
  /// Nothing is mapped or reserved then.
  explicit imported_memory(exported_memory const& from, imported_memory_options const& options = {},
                           driver& driver = default_driver());
  imported_memory(imported_memory&& other) noexcept;
  imported_memory& operator=(imported_memory&& other) noexcept;
  /// Waits for the stream and unmaps the memory. If the stream is capturing or the driver returns an error,
  /// the mapping stays until the process ends, with a violation (`open_capture`) or a warning
  /// (`refused_return`).
  ~imported_memory();

  /// Returns the addresses of the exported range.
  [[nodiscard]] byte_range range() const noexcept { return range_; }
  /// Returns the bytes of mapped physical memory, in whole handles.
  [[nodiscard]] std::size_t mapped_bytes() const noexcept { return reserved_.size; }
  /// Returns the device whose work uses the memory.
  [[nodiscard]] device_number device() const noexcept { return device_; }
  /// Returns the stream whose work uses the memory.
  [[nodiscard]] stream_handle stream() const noexcept { return stream_; }

 private:
  void map(exported_memory const& from, device_set accessible_from);
  [[nodiscard]] detail::outcome unmap() noexcept;
  void free_all() noexcept;

  driver* driver_;
  device_number device_;
  stream_handle stream_;
  byte_range reserved_;               // empty: nothing to free
  byte_range range_;                  // part of `reserved_`
  std::vector<byte_range> mappings_;  // parts of `reserved_`, in order
};

}  // namespace tidemark::gpu
