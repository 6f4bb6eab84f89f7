// SPDX-License-Identifier: Apache-2.0
/// @file
/// `std_atomics`: what code without locks that threads run together synchronises with.
#pragma once

#include <atomic>
#include <version>

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#endif

namespace tidemark::detail {

/// The atomics of production. Such code is a template over this policy, so that tests pass one that tries
/// every schedule instead (`tests/support/interleavings.hpp`, decision 44).
struct std_atomics {
  template <class T>
  using atomic = std::atomic<T>;

  /// Whether no second thread was ever started, as far as the C library tells (glibc >= 2.32). It is true again
  /// at most after all others were joined, so that a reader of true needs no lock prefix.
  [[nodiscard]] static bool is_single_threaded() noexcept {
#if __has_include(<sys/single_threaded.h>)
    return __libc_single_threaded != 0;
#else
    return false;
#endif
  }
};

}  // namespace tidemark::detail
