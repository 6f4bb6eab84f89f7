// SPDX-License-Identifier: Apache-2.0
/// @file
/// `shared_memory_view`: a `shared_memory` of another process, read-only. Owns the mapping.
#pragma once

#include <cstdint>
#include <string>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/file_descriptor.hpp>

namespace tidemark {

/// The memory of another process's `shared_memory`, mapped read-only at the address that it has there.
///
/// ```cpp
/// shared_memory_view prices{open_shared_memory("/dev/shm/prices").get(), address};
/// auto const* newest = reinterpret_cast<price const*>(prices.range().begin);
/// ```
/// It sees what the writer writes, when the writer writes it: `process_arena` and `process_view` know what is
/// complete. The memory stays while there is a view of it, whatever becomes of the writer. While there is a
/// view, `shared_memory::try_exclude_views` fails; when a process ends, in whatever way, its views end too.
///
/// A forked child has the mapping as well, and the view ends with the last of the two. Linux only, with
/// /proc.
///
/// Move-only; a moved-from object has an empty range. Thread-safety: one thread at a time for the object; the
/// memory can be read by any.
class shared_memory_view {
 public:
  /// Maps the whole file.
  /// @param file a descriptor of it, which stays the caller's and may be closed afterwards
  /// @param address where its writer has it; 0: anywhere, for memory without pointers
  /// @param name in messages
  /// @throws shared_memory_error if something lies at the address (`addresses_taken`), if the file could be
  /// made smaller (`not_sealed`), or while its writer keeps views out (`busy`); std::system_error if a call
  /// fails. Nothing is mapped then.
  shared_memory_view(int file, std::uintptr_t address, std::string const& name = "shared_memory_view");
  shared_memory_view(shared_memory_view&& other) noexcept;
  shared_memory_view& operator=(shared_memory_view&& other) noexcept;
  /// Unmaps the memory, and lets the writer free it if this was the last view.
  ~shared_memory_view();

  /// Where it lies.
  [[nodiscard]] byte_range range() const noexcept { return range_; }
  /// Whether the process that made the memory still has it, or a forked child of that. One system call.
  [[nodiscard]] bool writer_is_alive() const noexcept;

 private:
  file_descriptor file_;  // an open file description of its own: the lock is that one's
  byte_range range_;
};

/// Opens the file that `shared_memory::link` has given a name, as a descriptor for a view.
/// @throws std::system_error if that fails, as it does if the writer has ended.
[[nodiscard]] file_descriptor open_shared_memory(std::string const& path);

}  // namespace tidemark
