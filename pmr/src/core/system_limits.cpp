// SPDX-License-Identifier: Apache-2.0
#include "system_limits.hpp"

#include <limits>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string_view>

namespace tidemark::detail {

namespace {

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();
// An eighth per range: twenty arenas under a limit of 300 MiB leave a sixth of it to stacks and malloc.
constexpr std::size_t address_shares = 8;
// Half per range: locked memory goes to the first arenas, because few programs lock more than one.
constexpr std::size_t locked_shares = 2;

std::size_t limit_of(decltype(RLIMIT_AS) which) noexcept {
  rlimit limit{};
  return ::getrlimit(which, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur : unlimited;
}

// Calls `read` with each part of a /proc file.
template <class Read>
void read_parts(char const* path, Read read) noexcept {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  char part[4096];
  for (ssize_t n = 0; (n = ::read(file, part, sizeof part)) > 0;)
    if (!read(std::string_view{part, static_cast<std::size_t>(n)})) break;
  (void)::close(file);
}

std::size_t number_in(std::string_view text) noexcept {
  const std::size_t first = text.find_first_of("0123456789");
  std::size_t number = 0;
  if (first != std::string_view::npos)
    (void)std::from_chars(text.data() + first, text.data() + text.size(), number);
  return number;
}

// Value of a line of /proc/self/status in bytes, such as "VmSize:", which counts KiB. All lines lie in the
// file's first part.
std::size_t bytes_in_status(std::string_view line) noexcept {
  std::size_t bytes = 0;
  read_parts("/proc/self/status", [&](std::string_view part) {
    const std::size_t at = part.find(line);
    if (at != std::string_view::npos) bytes = number_in(part.substr(at)) * 1024;
    return false;
  });
  return bytes;
}

std::size_t remaining_bytes_of(decltype(RLIMIT_AS) which, std::string_view line) noexcept {
  const std::size_t limit = limit_of(which);
  if (limit == unlimited) return unlimited;
  const std::size_t used = bytes_in_status(line);
  return limit > used ? limit - used : 0;
}

// True at the limit of mappings. One call may add two mappings if it changes the middle of a mapping.
bool has_all_mappings() noexcept {
  std::size_t most = 0, mappings = 0;
  read_parts("/proc/sys/vm/max_map_count", [&](std::string_view part) {
    most = number_in(part);
    return false;
  });
  if (most == 0) return false;
  read_parts("/proc/self/maps", [&](std::string_view part) {
    for (char each : part) mappings += each == '\n' ? 1 : 0;
    return true;
  });
  return mappings + 2 >= most;
}

}  // namespace

// mmap fails with EAGAIN for locked memory, and with ENOMEM for all other limits.
char const* limit_behind(refused_call const& call) noexcept {
  if (call.error == EAGAIN)
    return "RLIMIT_MEMLOCK is reached, and mlockall(MCL_FUTURE) locks all new memory: raise it (ulimit -l)";
  if (call.error != ENOMEM) return "";
  if (call.is_commit && remaining_bytes_of(RLIMIT_DATA, "VmData:") < call.bytes)
    return "RLIMIT_DATA is reached: raise it (ulimit -d)";
  if (!call.is_commit && remaining_bytes_of(RLIMIT_AS, "VmSize:") < call.bytes)
    return "RLIMIT_AS is reached: raise it (ulimit -v), or reserve less";
  if (has_all_mappings())
    return "vm.max_map_count mappings are reached: raise it (sysctl), or hold fewer arenas";
  return "";
}

std::size_t fair_share_bytes(refused_call const& call) noexcept {
  const bool is_locked = call.error == EAGAIN;
  if (!is_locked && call.error != ENOMEM) return unlimited;
  const std::size_t left =
      is_locked ? remaining_bytes_of(RLIMIT_MEMLOCK, "VmLck:") : remaining_bytes_of(RLIMIT_AS, "VmSize:");
  return left == unlimited ? unlimited : left / (is_locked ? locked_shares : address_shares);
}

std::size_t max_file_bytes() noexcept { return limit_of(RLIMIT_FSIZE); }

}  // namespace tidemark::detail
