// SPDX-License-Identifier: Apache-2.0
#include <tidemark/process/detail/file_calls.hpp>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include <tidemark/core/os_memory.hpp>
#include <tidemark/process/shared_memory.hpp>

#if defined(__linux__)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// Missing in the headers of some distributions: since Linux 4.17, 5.1 and 6.3.
#if !defined(MAP_FIXED_NOREPLACE)
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#if !defined(F_SEAL_FUTURE_WRITE)
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#if !defined(MFD_NOEXEC_SEAL)
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#endif

namespace tidemark::detail {
namespace {

std::atomic<file_call_hook> before_each_call{nullptr};

}  // namespace

file_call_hook set_file_call_hook(file_call_hook hook) noexcept { return before_each_call.exchange(hook); }

descriptor_path::descriptor_path(long process, int file) noexcept {
  if (process == 0) std::snprintf(text, sizeof text, "/proc/self/fd/%d", file);
  else std::snprintf(text, sizeof text, "/proc/%ld/fd/%d", process, file);
}

void throw_file_error(std::string const& sentence) {
#if defined(__linux__)
  throw std::system_error{errno, std::generic_category(), sentence};
#else
  throw std::system_error{ENOSYS, std::generic_category(), sentence + " (shared memory needs Linux)"};
#endif
}

void throw_addresses_taken(std::string const& who, byte_range range) {
  char addresses[64];
  std::snprintf(addresses, sizeof addresses, "0x%zx to 0x%zx", range.begin, range.end());
  throw shared_memory_error{shared_memory_refusal::addresses_taken,
                            who + "this process already uses its addresses, " + addresses};
}

#if defined(__linux__)
namespace {

// True if the call should be made; otherwise errno has the injected error.
bool may_call(char const* call) noexcept {
  const file_call_hook hook = before_each_call.load(std::memory_order_relaxed);
  const int error = hook != nullptr ? hook(call) : 0;
  if (error != 0) errno = error;
  return error == 0;
}

int protection_of(page_access access) noexcept {
  if (access == page_access::none) return PROT_NONE;
  return access == page_access::read ? PROT_READ : PROT_READ | PROT_WRITE;
}

bool change_lock(int file, lock_byte byte, short type, int command, struct flock& lock) noexcept {
  lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(byte);
  lock.l_len = 1;
  return ::fcntl(file, command, &lock) == 0;
}

}  // namespace

file_descriptor create_memory_file(char const* name) noexcept {
  if (!may_call("memfd_create")) return {};
  const int file = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  if (file >= 0 || errno != EINVAL) return file_descriptor{file};
  return file_descriptor{::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)};
}

file_descriptor open_to_read(char const* path) noexcept {
  if (!may_call("open")) return {};
  return file_descriptor{::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
}

bool resize_file(int file, std::size_t bytes) noexcept {
  return may_call("ftruncate") && ::ftruncate(file, static_cast<off_t>(bytes)) == 0;
}

std::int64_t file_size(int file) noexcept {
  struct stat status{};
  return may_call("fstat") && ::fstat(file, &status) == 0 ? static_cast<std::int64_t>(status.st_size) : -1;
}

bool seal_file(int file) noexcept {
  const int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
  return may_call("F_ADD_SEALS") && ::fcntl(file, F_ADD_SEALS, seals) == 0;
}

bool is_sealed(int file) noexcept {
  if (!may_call("F_GET_SEALS")) return false;
  const int seals = ::fcntl(file, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

std::int64_t read_file(int file, void* to, std::size_t bytes) noexcept {
  return may_call("pread") ? static_cast<std::int64_t>(::pread(file, to, bytes, 0)) : -1;
}

byte_range map_file(int file, std::size_t bytes, std::uintptr_t address, page_access access) noexcept {
  if (!may_call("mmap")) return {};
  const int flags = MAP_SHARED | (address != 0 ? MAP_FIXED_NOREPLACE : 0);
  void* const mapping =
      ::mmap(reinterpret_cast<void*>(address), bytes, protection_of(access), flags, file, 0);
  if (mapping == MAP_FAILED) return {};
  const byte_range range{reinterpret_cast<std::uintptr_t>(mapping), bytes};
  if (address == 0 || range.begin == address) return range;
  unmap(range);  // a kernel before 4.17 treated the address as a hint
  errno = EEXIST;
  return {};
}

bool protect(byte_range part, page_access access) noexcept {
  return may_call("mprotect") && ::mprotect(part.data(), part.size, protection_of(access)) == 0;
}

void unmap(byte_range mapping) noexcept { (void)::munmap(mapping.data(), mapping.size); }

bool allocate_file(int file, std::size_t offset, std::size_t bytes) noexcept {
  if (!may_call("fallocate")) return false;
  int result = 0;
  do {
    result = ::fallocate(file, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);  // after a signal the kernel has undone its work
  return result == 0;
}

bool try_lock(int file, lock_byte byte, bool exclusive) noexcept {
  struct flock lock;
  return may_call("F_OFD_SETLK") && change_lock(file, byte, exclusive ? F_WRLCK : F_RDLCK, F_OFD_SETLK, lock);
}

void unlock(int file, lock_byte byte) noexcept {
  struct flock lock;
  (void)change_lock(file, byte, F_UNLCK, F_OFD_SETLK, lock);
}

bool is_locked(int file, lock_byte byte) noexcept {
  struct flock lock;
  return change_lock(file, byte, F_RDLCK, F_OFD_GETLK, lock) && lock.l_type != F_UNLCK;
}

bool replace_link(char const* path, char const* target) noexcept try {
  struct stat status{};
  if (::lstat(path, &status) == 0 && !S_ISLNK(status.st_mode)) {
    errno = EEXIST;
    return false;
  }
  // Creates a link with a fresh name and renames it, because a link cannot be changed.
  std::uint64_t random = 0;
  if (!system_memory().entropy(&random, sizeof random)) return false;
  const std::string fresh = std::string{path} + "." + std::to_string(random);
  if (!may_call("symlink") || ::symlink(target, fresh.c_str()) != 0) return false;
  if (may_call("rename") && ::rename(fresh.c_str(), path) == 0) return true;
  const int error = errno;
  (void)::unlink(fresh.c_str());
  errno = error;
  return false;
} catch (std::bad_alloc const&) {
  errno = ENOMEM;
  return false;
}

void remove_link(char const* path, char const* target) noexcept {
  char now[sizeof(descriptor_path::text)];
  const ssize_t bytes = ::readlink(path, now, sizeof now);
  if (bytes > 0 && std::string_view{now, static_cast<std::size_t>(bytes)} == target) (void)::unlink(path);
}

#else
namespace {

bool is_missing() noexcept {
  errno = ENOSYS;
  return false;
}

}  // namespace

file_descriptor create_memory_file(char const*) noexcept { return file_descriptor{is_missing() - 1}; }
file_descriptor open_to_read(char const*) noexcept { return file_descriptor{is_missing() - 1}; }
bool resize_file(int, std::size_t) noexcept { return is_missing(); }
std::int64_t file_size(int) noexcept { return is_missing() - 1; }
bool seal_file(int) noexcept { return is_missing(); }
bool is_sealed(int) noexcept { return is_missing(); }
std::int64_t read_file(int, void*, std::size_t) noexcept { return is_missing() - 1; }
byte_range map_file(int, std::size_t, std::uintptr_t, page_access) noexcept {
  (void)is_missing();
  return {};
}
bool protect(byte_range, page_access) noexcept { return is_missing(); }
void unmap(byte_range) noexcept {}
bool allocate_file(int, std::size_t, std::size_t) noexcept { return is_missing(); }
bool try_lock(int, lock_byte, bool) noexcept { return is_missing(); }
void unlock(int, lock_byte) noexcept {}
bool is_locked(int, lock_byte) noexcept { return is_missing(); }
bool replace_link(char const*, char const*) noexcept { return is_missing(); }
void remove_link(char const*, char const*) noexcept {}

#endif

}  // namespace tidemark::detail
