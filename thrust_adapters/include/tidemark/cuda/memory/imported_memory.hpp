// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::imported_memory`: memory that another process exported, at addresses of this one. Owns the
/// addresses and the mappings.
#pragma once

#include <cstddef>
#include <vector>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>
#include <tidemark/cuda/memory/exported_memory.hpp>

namespace tidemark::gpu {

/// How a `gpu::imported_memory` is made.
struct imported_memory_options {
  /// The device whose work uses the memory, whichever has it; -1: the current device of the thread that makes
  /// the object.
  device_number device = -1;
  /// The stream whose work uses the memory; null: the device's default stream. It must outlive the object.
  stream_handle stream = nullptr;
  /// Devices that may read and write it as well.
  device_set accessible_from = {};
};

/// Memory that `gpu::virtual_memory::export_memory` exported, mapped at addresses of its own.
///
/// ```cpp
/// gpu::exported_memory received = receive(socket);
/// gpu::imported_memory shared{received, {.stream = stream}};
/// received.handles.clear();  // closes the file descriptors, which are not needed any more
/// kernel<<<blocks, threads, 0, stream>>>(shared.range().data());
/// ```
/// All work of this process that uses the memory is on the stream of the options, or is ordered before later
/// work there by an event; the end waits for that stream, unmaps the memory and frees the addresses. The
/// order of the work of two processes is the program's matter.
///
/// The memory stays what it was, whatever the exporter does: when that decommits, suspends or ends, its
/// addresses lose the memory, and the physical memory lives until all importers have unmapped it and all file
/// descriptors of it are closed. What the exporter commits or resumes later is other memory, which is not
/// seen here.
///
/// Move-only; a moved-from object has an empty range. Thread-safety: one thread at a time.
/// Complexity: calls to the driver, 3 for each handle.
class imported_memory {
 public:
  /// Maps all handles, one behind the other, and grants access.
  /// @param from what was exported; its file descriptors stay the caller's, and may be closed afterwards.
  /// @param driver the calls to use; must outlive this object.
  /// @throws std::invalid_argument if `from` is not what an export gives, or the stream is the thread's
  /// default stream; std::logic_error if the stream is capturing; out_of_memory; cuda_error of another error.
  /// Nothing is mapped or reserved then.
  explicit imported_memory(exported_memory const& from, imported_memory_options const& options = {},
                           driver& driver = default_driver());
  imported_memory(imported_memory&& other) noexcept;
  imported_memory& operator=(imported_memory&& other) noexcept;
  /// Waits for the stream and unmaps the memory. If the stream is capturing, or the driver returns an error,
  /// the mapping stays until the process ends: a violation (`open_capture`), or a warning (`refused_return`).
  ~imported_memory();

  /// The addresses of the range that was exported.
  [[nodiscard]] byte_range range() const noexcept { return range_; }
  /// Bytes of physical memory that are mapped: those of whole handles.
  [[nodiscard]] std::size_t mapped_bytes() const noexcept { return reserved_.size; }
  /// The device whose work uses the memory.
  [[nodiscard]] device_number device() const noexcept { return device_; }
  /// The stream whose work uses the memory.
  [[nodiscard]] stream_handle stream() const noexcept { return stream_; }

 private:
  void map(exported_memory const& from, device_set accessible_from);
  [[nodiscard]] detail::outcome unmap() noexcept;
  void free_all() noexcept;

  driver* driver_;
  device_number device_;
  stream_handle stream_;
  byte_range reserved_;               // empty: there is nothing to give back
  byte_range range_;                  // in it
  std::vector<byte_range> mappings_;  // of `reserved_`, one behind the other
};

}  // namespace tidemark::gpu
