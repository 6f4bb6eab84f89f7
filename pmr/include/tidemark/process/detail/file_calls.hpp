// SPDX-License-Identifier: Apache-2.0
/// @file
/// The system calls behind `shared_memory` (Linux), and where tests make one of them fail. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/file_descriptor.hpp>

namespace tidemark::detail {

/// Called before each system call below, with its name: 0, or the error number that the call fails with,
/// without being made.
using file_call_hook = int (*)(char const* call) noexcept;

/// Null: calls are made. For tests. @return the hook before
file_call_hook set_file_call_hook(file_call_hook hook) noexcept;

/// What a process may do with mapped memory.
enum class page_access { none, read, read_write };

/// The byte of a file whose lock says something. A lock belongs to an open file description, and the kernel
/// releases it with the last descriptor of that, however the process ends.
enum class lock_byte {
  views,   ///< shared: a view looks at the memory; exclusive: the writer frees it
  writer,  ///< exclusive, as long as the writer has the file
};

// Those that return a bool, a size or a descriptor return false, -1 or an empty one if they fail, with errno
// set. Elsewhere than on Linux all fail with ENOSYS.

/// An empty file in memory, closed by exec, that can be sealed and not executed.
[[nodiscard]] file_descriptor create_memory_file(char const* name) noexcept;
/// An open file description of its own. Does not wait for a writer of a pipe.
[[nodiscard]] file_descriptor open_to_read(char const* path) noexcept;
/// The path at which a process opens one of its own descriptors again.
struct descriptor_path {
  /// @param process a process's number; 0: the one that opens it
  descriptor_path(long process, int file) noexcept;
  char text[48];
};
[[nodiscard]] bool resize_file(int file, std::size_t bytes) noexcept;
[[nodiscard]] std::int64_t file_size(int file) noexcept;
/// No process can change the size from now on, or the seals, and only mappings that exist can be written
/// through.
[[nodiscard]] bool seal_file(int file) noexcept;
/// Whether no process can make it smaller.
[[nodiscard]] bool is_sealed(int file) noexcept;
/// @return how many of the first `bytes` bytes were read; fewer if the file ends before.
[[nodiscard]] std::int64_t read_file(int file, void* to, std::size_t bytes) noexcept;
/// Maps the first bytes, shared: at the address, or (0) where the system likes. @return empty if it fails, or
/// with EEXIST if something lies there.
[[nodiscard]] byte_range map_file(int file, std::size_t bytes, std::uintptr_t address,
                                  page_access access) noexcept;
[[nodiscard]] bool protect(byte_range part, page_access access) noexcept;
/// Cannot fail for a whole mapping.
void unmap(byte_range mapping) noexcept;
/// Puts memory behind a part of the file, so that to touch it cannot fail; nothing has changed if it cannot.
[[nodiscard]] bool allocate_file(int file, std::size_t offset, std::size_t bytes) noexcept;
/// Does not wait. False with EAGAIN if another open file description has a lock that excludes it.
[[nodiscard]] bool try_lock(int file, lock_byte byte, bool exclusive) noexcept;
/// Cannot fail: a lock is one whole byte.
void unlock(int file, lock_byte byte) noexcept;
/// Whether another open file description has an exclusive lock.
[[nodiscard]] bool is_locked(int file, lock_byte byte) noexcept;
/// Makes `path` a symbolic link, in one step also where there is one. False with EEXIST if something else is
/// there.
[[nodiscard]] bool replace_link(char const* path, char const* target) noexcept;
/// Removes `path` if it is a symbolic link to `target`.
void remove_link(char const* path, char const* target) noexcept;

/// @throws std::system_error of errno with that sentence; elsewhere than on Linux one that says so.
[[noreturn]] void throw_file_error(std::string const& sentence);
/// @throws shared_memory_error, whose sentence begins with `who`.
[[noreturn]] void throw_addresses_taken(std::string const& who, byte_range range);

}  // namespace tidemark::detail
