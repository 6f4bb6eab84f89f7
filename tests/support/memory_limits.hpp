// SPDX-License-Identifier: Apache-2.0
// The system's limits on a process's memory, set in a child, so that they hold for one test only.
//   EXPECT_EQ(under_limits({.address_bytes = 300 * MiB}, [] { arena a; ... return std::string{}; }), "");
#pragma once

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <fstream>
#include <string>

#include "peer_process.hpp"

namespace tidemark::test {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
inline constexpr bool sanitizers_need_addresses = true;
#else
inline constexpr bool sanitizers_need_addresses = false;
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitizers_need_addresses = true;
#else
inline constexpr bool sanitizers_need_addresses = false;
#endif

/// Bytes; 0: as it is.
struct memory_limits {
  std::size_t address_bytes =
      0;  ///< RLIMIT_AS; if the process has mapped more than 30 MiB, in addition to its mappings
  std::size_t data_bytes = 0;    ///< RLIMIT_DATA, in addition to the data of the process
  std::size_t locked_bytes = 0;  ///< RLIMIT_MEMLOCK, and new memory is locked
};

/// Removes the right of a child to lock more than the limit, even if tests run as root.
inline bool drop_right_to_lock() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  for (__user_cap_data_struct& each : data) each.effective &= ~(1U << CAP_IPC_LOCK);
  return ::syscall(SYS_capset, &header, data) == 0;
}

inline bool set_limit(decltype(RLIMIT_AS) which, std::size_t bytes) {
  const rlimit limit{bytes, bytes};
  return ::setrlimit(which, &limit) == 0;
}

/// Returns the result of `body`, which is its finding, or the exception that left it.
template <class Body>
std::string under_limits(memory_limits limits, Body body) {
  peer_process child{[&](channel&) -> std::string {
    if (limits.address_bytes != 0) {
      std::size_t pages = 0;
      std::ifstream{"/proc/self/statm"} >> pages;
      const std::size_t mapped = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)), usual = 30u << 20;
      if (!set_limit(RLIMIT_AS, limits.address_bytes + std::max(mapped, usual) - usual))
        return "no RLIMIT_AS";
    }
    if (limits.data_bytes != 0) {
      rusage used{};
      ::getrusage(RUSAGE_SELF, &used);
      const auto resident = static_cast<std::size_t>(used.ru_maxrss) * 1024;
      if (!set_limit(RLIMIT_DATA, resident + limits.data_bytes)) return "no RLIMIT_DATA";
    }
    if (limits.locked_bytes != 0) {
      if (!set_limit(RLIMIT_MEMLOCK, limits.locked_bytes) || !drop_right_to_lock())
        return "no RLIMIT_MEMLOCK";
      if (::mlockall(MCL_FUTURE) != 0) return "mlockall failed";
    }
    try {
      return body();
    } catch (std::exception const& error) {
      return error.what();
    }
  }};
  return child.result();
}

}  // namespace tidemark::test
