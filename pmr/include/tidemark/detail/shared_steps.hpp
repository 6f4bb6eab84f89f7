// SPDX-License-Identifier: Apache-2.0
/// @file
/// Steps on counts that threads share, which cost nothing while there is one thread. Owns nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <version>

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#endif

namespace tidemark::detail {

/// Whether no second thread was ever started, as far as the C library tells (glibc >= 2.32). It is true again
/// at most after all others were joined, so that whoever reads true may leave the lock prefix away.
[[nodiscard]] inline bool is_single_threaded() noexcept {
#if __has_include(<sys/single_threaded.h>)
  return __libc_single_threaded != 0;
#else
  return false;
#endif
}

/// Steps on shared counts while there is one thread: two plain moves in place of a locked instruction. Still
/// atomic loads and stores, so that threads that start later read them without a race.
struct unshared_steps {
  template <class Number>
  static Number add(std::atomic<Number>& count, Number n) noexcept {
    const Number sum = count.load(std::memory_order_relaxed) + n;
    count.store(sum, std::memory_order_relaxed);
    return sum;
  }
  static void raise(std::atomic<std::size_t>& peak, std::size_t value) noexcept {
    if (value > peak.load(std::memory_order_relaxed)) peak.store(value, std::memory_order_relaxed);
  }
  static bool add_within(std::atomic<std::size_t>& count, std::size_t n, std::size_t limit) noexcept {
    const std::size_t before = count.load(std::memory_order_relaxed);
    if (before > limit || n > limit - before) return false;
    count.store(before + n, std::memory_order_relaxed);
    return true;
  }
};

/// The same steps among threads. Relaxed: a count orders nothing but itself.
struct shared_steps {
  template <class Number>
  static Number add(std::atomic<Number>& count, Number n) noexcept {
    return count.fetch_add(n, std::memory_order_relaxed) + n;
  }
  static void raise(std::atomic<std::size_t>& peak, std::size_t value) noexcept {
    std::size_t seen = peak.load(std::memory_order_relaxed);
    while (value > seen && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
  }
  static bool add_within(std::atomic<std::size_t>& count, std::size_t n, std::size_t limit) noexcept {
    std::size_t seen = count.load(std::memory_order_relaxed);
    do {
      if (seen > limit || n > limit - seen) return false;
    } while (!count.compare_exchange_weak(seen, seen + n, std::memory_order_relaxed));
    return true;
  }
};

/// Adds `n` to a count that threads share; unsigned, so that adding `0 - n` takes `n` away. @return the sum.
template <class Number>
Number add_shared(std::atomic<Number>& count, Number n) noexcept {
  return is_single_threaded() ? unshared_steps::add(count, n) : shared_steps::add(count, n);
}

/// Adds `n`, unless the sum would exceed `limit`: then nothing changes. @return whether it was added.
inline bool add_shared_within(std::atomic<std::size_t>& count, std::size_t n, std::size_t limit) noexcept {
  return is_single_threaded() ? unshared_steps::add_within(count, n, limit)
                              : shared_steps::add_within(count, n, limit);
}

}  // namespace tidemark::detail
