// SPDX-License-Identifier: Apache-2.0
/// @file
/// `shared_memory_view`: read-only access to a `shared_memory` of another process. Owns the mapping.
#pragma once

#include <cstdint>
#include <string>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/file_descriptor.hpp>

namespace tidemark {

/// Maps the memory of another process's `shared_memory` read-only, at the writer's address.
///
/// ```cpp
/// shared_memory_view prices{open_shared_memory("/dev/shm/prices").get(), address};
/// auto const* newest = reinterpret_cast<price const*>(prices.range().begin);
/// ```
/// The view shows the writer's writes as they happen; use `process_arena` and `process_view` to see only
/// complete data. The memory stays while a view exists, whatever happens to the writer.
/// `shared_memory::try_exclude_views` fails while a view exists. A process's views end with the process,
/// however it ends.
///
/// A forked child also has the mapping; the view ends when both are gone. Linux only, with /proc.
///
/// Move-only; a moved-from object has an empty range. Thread-safety: one thread at a time for the object; any
/// thread may read the memory.
class shared_memory_view {
 public:
  /// Maps the whole file.
  /// @param file a descriptor of the file, which stays the caller's and may be closed afterwards
  /// @param address the writer's address of the memory; 0: any address, for memory without pointers
  /// @param name used in messages
  /// @throws shared_memory_error if the address is taken (`addresses_taken`), the file could be shrunk
  /// (`not_sealed`), or its writer rejects views at this moment (`busy`); std::system_error if a call fails.
  /// Nothing is mapped then.
  shared_memory_view(int file, std::uintptr_t address, std::string const& name = "shared_memory_view");
  shared_memory_view(shared_memory_view&& other) noexcept;
  shared_memory_view& operator=(shared_memory_view&& other) noexcept;
  /// Unmaps the memory, and lets the writer free it if this was the last view.
  ~shared_memory_view();

  /// Range of the memory.
  [[nodiscard]] byte_range range() const noexcept { return range_; }
  /// True if the process that made the memory, or a forked child of it, still has it. One system call.
  [[nodiscard]] bool writer_is_alive() const noexcept;

 private:
  file_descriptor file_;  // its own open file description, which owns the lock
  byte_range range_;
};

/// Opens the file that `shared_memory::link` has linked, as a descriptor for a view.
/// @throws std::system_error on failure, for example if the writer has ended.
[[nodiscard]] file_descriptor open_shared_memory(std::string const& path);

}  // namespace tidemark
