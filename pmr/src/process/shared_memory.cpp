// SPDX-License-Identifier: Apache-2.0
#include <tidemark/process/shared_memory.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/os_memory.hpp>
#include <tidemark/process/detail/file_calls.hpp>
#include <tidemark/process/shared_memory_view.hpp>

#include "../core/system_limits.hpp"

// Missing in older headers: since Linux 6.3.
#if !defined(MFD_NOEXEC_SEAL)
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace tidemark {
namespace {

using detail::may_call;
using detail::require_call;

// Addresses that processes of a 48-bit system have free. They lie above the program and its heap, which are
// below 0x5656'0000'0000 unless the system moves them further. They lie below libraries and stacks, which
// grow down from the top. AddressSanitizer, ThreadSanitizer (since LLVM 18) and MemorySanitizer leave them to
// the program.
constexpr byte_range usually_free{0x5700'0000'0000u, 0x0300'0000'0000u};
constexpr std::size_t place_alignment = 2 * MiB;
constexpr int max_places_tried = 8;

// Bytes of the file whose locks carry a meaning. A lock belongs to an open file description. The kernel
// releases it with the last descriptor of that description, however the process ends.
constexpr off_t views_byte = 0;   // shared: a view uses the memory; exclusive: the writer frees it
constexpr off_t writer_byte = 1;  // exclusive while the writer has the file

constinit std::atomic<detail::file_call_hook> before_each_call{nullptr};

std::string prefix_of(shared_memory_options const& options) {
  return std::string{"shared_memory '"} + options.name + "': ";
}

[[noreturn]] void throw_addresses_taken(std::string const& who, byte_range range) {
  char addresses[64];
  std::snprintf(addresses, sizeof addresses, "0x%zx to 0x%zx", range.begin, range.end());
  throw shared_memory_error{shared_memory_refusal::addresses_taken,
                            who + "this process already uses its addresses, " + addresses};
}

// The path by which a process reopens a descriptor of its own (0) or of another process.
struct descriptor_path {
  descriptor_path(long process, int file) noexcept {
    if (process == 0) std::snprintf(text, sizeof text, "/proc/self/fd/%d", file);
    else std::snprintf(text, sizeof text, "/proc/%ld/fd/%d", process, file);
  }
  char text[48];
};

// Opens a file with an open file description of its own. Does not wait for a writer of a pipe.
file_descriptor open_to_read(char const* path, std::string const& who, char const* what) {
  file_descriptor file{may_call("open") ? ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1};
  require_call(file.get() >= 0, who, what);
  return file;
}

// Maps the first bytes as shared at the address, or at any address for 0. Returns an empty range on failure,
// with EEXIST if the address is taken.
byte_range map_file(int file, std::size_t bytes, std::uintptr_t address, int protection) noexcept {
  const int flags = MAP_SHARED | (address != 0 ? MAP_FIXED_NOREPLACE : 0);
  void* const mapping = may_call("mmap")
                            ? ::mmap(reinterpret_cast<void*>(address), bytes, protection, flags, file, 0)
                            : MAP_FAILED;
  if (mapping == MAP_FAILED) return {};
  return {detail::address_of(mapping), bytes};
}

struct flock lock_of(off_t byte, int type) noexcept {
  struct flock lock{};
  lock.l_type = static_cast<short>(type);
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

// Does not wait. Returns false with EAGAIN if another open file description holds a conflicting lock.
bool try_lock(int file, off_t byte, int type) noexcept {
  const struct flock lock = lock_of(byte, type);
  return may_call("F_OFD_SETLK") && ::fcntl(file, F_OFD_SETLK, &lock) == 0;
}

// Makes `path` a symbolic link in one step, replacing an existing link. Returns false with EEXIST if something
// else exists there. Creates a link with a fresh name and renames it, because a link cannot be changed.
bool replace_link(std::string const& path, char const* target) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) == 0 && !S_ISLNK(status.st_mode)) {
    errno = EEXIST;
    return false;
  }
  std::uint64_t random = 0;
  if (!system_memory().entropy(&random, sizeof random)) return false;
  const std::string fresh = path + "." + std::to_string(random);
  if (!may_call("symlink") || ::symlink(target, fresh.c_str()) != 0) return false;
  if (may_call("rename") && ::rename(fresh.c_str(), path.c_str()) == 0) return true;
  const int error = errno;
  (void)::unlink(fresh.c_str());
  errno = error;
  return false;
}

}  // namespace

detail::file_call_hook detail::set_file_call_hook(file_call_hook hook) noexcept {
  return before_each_call.exchange(hook);
}

bool detail::may_call(char const* call) noexcept {
  const file_call_hook hook = before_each_call.load(std::memory_order_relaxed);
  const int error = hook != nullptr ? hook(call) : 0;
  if (error != 0) errno = error;
  return error == 0;
}

void detail::require_call(bool succeeded, std::string const& who, char const* what) {
  const int error = errno;
  if (!succeeded) throw std::system_error{error, std::generic_category(), who + what};
}

shared_memory::shared_memory(shared_memory_options options)
    : options_{std::move(options)}, granularity_{system_memory().page_size()} {
  if (options_.name == nullptr) options_.name = "shared memory";
}

byte_range shared_memory::reserve(std::size_t least_bytes, std::size_t wanted_bytes) {
  const std::size_t bytes = std::max(least_bytes, wanted_bytes);
  if (file_.get() >= 0 || bytes >= std::numeric_limits<std::size_t>::max() / 2) return {};
  const std::size_t least = detail::align_up(std::max<std::size_t>(least_bytes, 1), granularity_);
  // The kernel would kill the process for a larger file.
  const std::size_t wanted = std::min(bytes, detail::align_down(detail::max_file_bytes(), granularity_));

  const std::string who = prefix_of(options_);
  const auto create = [&](unsigned seal) {
    return ::memfd_create(options_.name, MFD_CLOEXEC | MFD_ALLOW_SEALING | seal);
  };
  file_descriptor file{may_call("memfd_create") ? create(MFD_NOEXEC_SEAL) : -1};
  if (file.get() < 0 && errno == EINVAL) file = file_descriptor{create(0)};
  require_call(file.get() >= 0, who, "a file in memory cannot be created");
  require_call(try_lock(file.get(), writer_byte, F_WRLCK), who, "its file cannot be locked");
  detail::refused_call refused;
  const auto throw_refused = [&] {
    char const* const limit = detail::limit_behind(refused);
    const std::string with = "its file cannot be mapped, with " + std::to_string(refused.bytes) + " bytes" +
                             (*limit != '\0' ? "; " : "") + limit;
    errno = refused.error;
    require_call(false, who, with.c_str());
  };
  const byte_range range = detail::reserve_by_halves(
      least, wanted,
      [&](std::size_t tried) {
        const std::size_t size = detail::align_up(tried, granularity_);
        const bool has_size = may_call("ftruncate") && ::ftruncate(file.get(), static_cast<off_t>(size)) == 0;
        const byte_range made = has_size ? map(file.get(), size) : byte_range{};
        if (made.empty()) refused = {errno, size, false};
        if (made.empty() && errno != ENOMEM && errno != EAGAIN && errno != EFBIG) throw_refused();
        return made;
      },
      [&] { return detail::fair_share_bytes(refused); });
  if (range.empty()) throw_refused();
  // Then no process can change the size or the seals, and only existing mappings can write. The seals follow
  // the mapping, because a later mapping could not write.
  const int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
  if (!may_call("F_ADD_SEALS") || ::fcntl(file.get(), F_ADD_SEALS, seals) != 0) {
    const int error = errno;
    (void)::munmap(range.data(), range.size);
    errno = error;
    require_call(false, who, "its file cannot be sealed");
  }
  file_ = std::move(file);
  return range_ = range;
}

// Returns an empty range, with errno set, if the system refuses.
byte_range shared_memory::map(int file, std::size_t bytes) const {
  if (options_.address != 0) {
    const byte_range range = map_file(file, bytes, options_.address, PROT_NONE);
    if (!range.empty() || errno != EEXIST) return range;
    throw_addresses_taken(prefix_of(options_), {options_.address, bytes});
  }
  for (int i = 0; i < max_places_tried && bytes < usually_free.size; ++i) {
    std::uint64_t random = 0;
    if (!system_memory().entropy(&random, sizeof random)) break;
    const std::size_t places = (usually_free.size - bytes) / place_alignment + 1;
    const byte_range range =
        map_file(file, bytes, usually_free.begin + random % places * place_alignment, PROT_NONE);
    if (!range.empty()) return range;
  }
  return map_file(file, bytes, 0, PROT_NONE);
}

std::size_t shared_memory::commit(byte_range part, std::size_t least_bytes) noexcept {
  const auto protect = [](byte_range taken, int protection) {
    return may_call("mprotect") && ::mprotect(taken.data(), taken.size, protection) == 0;
  };
  return detail::commit_at_least(part, least_bytes, [&](byte_range taken) {
    if (!protect(taken, PROT_READ | PROT_WRITE)) return false;
    int result = -1;
    if (may_call("fallocate")) {
      do {
        result = ::fallocate(file_.get(), 0, static_cast<off_t>(taken.begin - range_.begin),
                             static_cast<off_t>(taken.size));
      } while (result != 0 && errno == EINTR);  // after a signal the kernel has undone its work
    }
    if (result == 0) return true;
    (void)protect(taken, PROT_NONE);  // harmless if it fails: the pages stay unused
    return false;
  });
}

void shared_memory::release(byte_range range) noexcept {
  if (!options_.path.empty()) {  // removes the link if it still leads to this file
    const descriptor_path own{::getpid(), file_.get()};
    char now[sizeof own.text];
    const ssize_t bytes = ::readlink(options_.path.c_str(), now, sizeof now);
    if (bytes > 0 && std::string_view{now, static_cast<std::size_t>(bytes)} == own.text)
      (void)::unlink(options_.path.c_str());
  }
  (void)::munmap(range.data(), range.size);
  file_ = {};
}

file_descriptor shared_memory::export_file() const {
  return open_to_read(descriptor_path{0, file_.get()}.text, prefix_of(options_),
                      "its file cannot be opened again");
}

void shared_memory::link() const {
  const std::string who = prefix_of(options_);
  if (options_.path.empty()) throw std::logic_error{who + "link without a path in its options"};
  const bool is_linked = replace_link(options_.path, descriptor_path{::getpid(), file_.get()}.text);
  require_call(is_linked, who, ("it cannot be given the name '" + options_.path + "'").c_str());
}

bool shared_memory::try_exclude_views() const noexcept { return try_lock(file_.get(), views_byte, F_WRLCK); }

void shared_memory::admit_views() const noexcept {
  const struct flock lock = lock_of(views_byte, F_UNLCK);
  (void)::fcntl(file_.get(), F_OFD_SETLK, &lock);  // cannot fail: a lock is one whole byte
}

// ---- the view in another process

shared_memory_view::shared_memory_view(int file, std::uintptr_t address, std::string const& name) {
  const std::string who = name + ": ";
  file_descriptor own = open_to_read(descriptor_path{0, file}.text, who, "the file cannot be opened again");
  const int seals = may_call("F_GET_SEALS") ? ::fcntl(own.get(), F_GET_SEALS) : -1;
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw shared_memory_error{shared_memory_refusal::not_sealed,
                              who + "the file is not sealed and could be truncated while it is read"};
  }
  const bool is_locked = try_lock(own.get(), views_byte, F_RDLCK);
  if (!is_locked && (errno == EAGAIN || errno == EACCES)) {
    throw shared_memory_error{shared_memory_refusal::busy,
                              who + "its writer frees the memory at this moment"};
  }
  require_call(is_locked, who, "the file cannot be locked");
  struct stat status{};
  require_call(may_call("fstat") && ::fstat(own.get(), &status) == 0, who,
               "the size of the file cannot be read");
  const byte_range wanted{address, static_cast<std::size_t>(status.st_size)};
  range_ = map_file(own.get(), wanted.size, address, PROT_READ);
  if (range_.empty() && errno == EEXIST) throw_addresses_taken(who, wanted);
  require_call(!range_.empty(), who, "the file cannot be mapped");
  file_ = std::move(own);
}

shared_memory_view::shared_memory_view(shared_memory_view&& other) noexcept
    : file_{std::move(other.file_)}, range_{std::exchange(other.range_, {})} {}

shared_memory_view& shared_memory_view::operator=(shared_memory_view&& other) noexcept {
  shared_memory_view moved{std::move(other)};
  std::swap(file_, moved.file_);
  std::swap(range_, moved.range_);
  return *this;
}

shared_memory_view::~shared_memory_view() {
  if (!range_.empty()) (void)::munmap(range_.data(), range_.size);
}

bool shared_memory_view::writer_is_alive() const noexcept {
  struct flock lock = lock_of(writer_byte, F_RDLCK);
  return ::fcntl(file_.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

file_descriptor open_shared_memory(std::string const& path) {
  return open_to_read(path.c_str(), "open_shared_memory: ", ("'" + path + "' cannot be opened").c_str());
}

}  // namespace tidemark
