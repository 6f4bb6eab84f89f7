// SPDX-License-Identifier: Apache-2.0
/// @file
/// The system calls behind `shared_memory` (Linux), and a hook by which tests make them fail. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/core/file_descriptor.hpp>

namespace tidemark::detail {

/// Called before each system call below, with its name. Returns 0, or an error number that replaces the call.
using file_call_hook = int (*)(char const* call) noexcept;

/// Sets the hook; null restores the real calls. For tests. @return the previous hook
file_call_hook set_file_call_hook(file_call_hook hook) noexcept;

/// Access of a process to mapped memory.
enum class page_access { none, read, read_write };

/// The byte of a file whose lock carries a meaning. A lock belongs to an open file description. The kernel
/// releases it with the last descriptor of that description, however the process ends.
enum class lock_byte {
  views,   ///< shared: a view uses the memory; exclusive: the writer frees it
  writer,  ///< exclusive while the writer has the file
};

// Functions that return a bool, a size or a descriptor return false, -1 or an empty one on failure, with
// errno set. On systems other than Linux all fail with ENOSYS.

/// Creates an empty file in memory that exec closes, that can be sealed and cannot be executed.
[[nodiscard]] file_descriptor create_memory_file(char const* name) noexcept;
/// Opens a file with an open file description of its own. Does not wait for a writer of a pipe.
[[nodiscard]] file_descriptor open_to_read(char const* path) noexcept;
/// The path by which a process reopens one of its own descriptors.
struct descriptor_path {
  /// @param process number of a process; 0: the process that opens the path
  descriptor_path(long process, int file) noexcept;
  char text[48];
};
[[nodiscard]] bool resize_file(int file, std::size_t bytes) noexcept;
[[nodiscard]] std::int64_t file_size(int file) noexcept;
/// Seals the file: no process can change its size or its seals, and only existing mappings can write to it.
[[nodiscard]] bool seal_file(int file) noexcept;
/// True if no process can shrink the file.
[[nodiscard]] bool is_sealed(int file) noexcept;
/// @return number of bytes read; less than `bytes` if the file ends before.
[[nodiscard]] std::int64_t read_file(int file, void* to, std::size_t bytes) noexcept;
/// Maps the first bytes as shared at the address, or at any address for 0. @return empty on failure, with
/// EEXIST if the address is taken.
[[nodiscard]] byte_range map_file(int file, std::size_t bytes, std::uintptr_t address,
                                  page_access access) noexcept;
[[nodiscard]] bool protect(byte_range part, page_access access) noexcept;
/// Cannot fail for a whole mapping.
void unmap(byte_range mapping) noexcept;
/// Allocates memory behind a part of the file, so that touching it cannot fail. Nothing has changed on
/// failure.
[[nodiscard]] bool allocate_file(int file, std::size_t offset, std::size_t bytes) noexcept;
/// Does not wait. False with EAGAIN if another open file description holds a conflicting lock.
[[nodiscard]] bool try_lock(int file, lock_byte byte, bool exclusive) noexcept;
/// Cannot fail: a lock is one whole byte.
void unlock(int file, lock_byte byte) noexcept;
/// True if another open file description has an exclusive lock.
[[nodiscard]] bool is_locked(int file, lock_byte byte) noexcept;
/// Makes `path` a symbolic link in one step, replacing an existing link. False with EEXIST if something else
/// exists there.
[[nodiscard]] bool replace_link(char const* path, char const* target) noexcept;
/// Removes `path` if it is a symbolic link to `target`.
void remove_link(char const* path, char const* target) noexcept;

/// @throws std::system_error of errno with that sentence. On systems other than Linux the error says so.
[[noreturn]] void throw_file_error(std::string const& sentence);
/// @throws shared_memory_error, with a sentence that begins with `who`.
[[noreturn]] void throw_addresses_taken(std::string const& who, byte_range range);

}  // namespace tidemark::detail
