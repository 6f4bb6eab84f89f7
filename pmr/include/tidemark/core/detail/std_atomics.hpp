// SPDX-License-Identifier: Apache-2.0
/// @file
/// `std_atomics`: the atomics of lock-free code. `steps`, `with_steps`: counts that threads share.
/// `single_writer`: a number that one thread writes.
#pragma once

#include <atomic>
#include <cstddef>

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#endif

namespace tidemark::detail {

/// The production atomics. Lock-free code is a template over this policy. Tests pass a policy that tries
/// every schedule (`tests/support/interleavings.hpp`).
struct std_atomics {
  template <class T>
  using atomic = std::atomic<T>;

  /// True if no second thread was ever started, as far as the C library tells (glibc >= 2.32). Becomes true
  /// again only after all other threads were joined, so a caller that reads true needs no lock prefix.
  [[nodiscard]] static bool is_single_threaded() noexcept {
#if __has_include(<sys/single_threaded.h>)
    return __libc_single_threaded != 0;
#else
    return false;
#endif
  }
};

/// Operations on counts. Relaxed: a count orders no other memory.
/// @tparam Shared false while there is one thread: two plain moves replace a locked instruction. They are
/// atomic loads and stores, so that later threads read the counts without a race.
template <bool Shared>
struct steps {
  /// Adds `n`. Unsigned: adding `0 - n` subtracts `n`. @return the sum.
  template <class Count>
  static Count::value_type add(Count& count, typename Count::value_type n) noexcept {
    if constexpr (Shared) return count.fetch_add(n, std::memory_order_relaxed) + n;
    const typename Count::value_type sum = count.load(std::memory_order_relaxed) + n;
    count.store(sum, std::memory_order_relaxed);
    return sum;
  }
  /// Raises the peak to at least `value`.
  template <class Count>
  static void raise(Count& peak, std::size_t value) noexcept {
    std::size_t seen = peak.load(std::memory_order_relaxed);
    while (value > seen && !replace(peak, seen, value)) {
    }
  }
  /// Adds `n` unless the sum would exceed `limit`; nothing changes then. @return true if added.
  template <class Count>
  static bool add_within(Count& count, std::size_t n, std::size_t limit) noexcept {
    std::size_t seen = count.load(std::memory_order_relaxed);
    do {
      if (seen + n < n || seen + n > limit) return false;  // the sum may wrap
    } while (!replace(count, seen, seen + n));
    return true;
  }

 private:
  template <class Count>
  static bool replace(Count& count, std::size_t& seen, std::size_t value) noexcept {
    if constexpr (Shared) return count.compare_exchange_weak(seen, value, std::memory_order_relaxed);
    count.store(value, std::memory_order_relaxed);
    return true;
  }
};

/// Calls `count(steps)` with the steps for one thread or for several.
template <class Sync = std_atomics, class Count>
auto with_steps(Count count) noexcept {
  return Sync::is_single_threaded() ? count(steps<false>{}) : count(steps<true>{});
}

/// A number that one thread writes and any thread may read. Costs the writer as little as a plain number.
///
/// A reader sees everything that the writer did before the write. Numbers that are incremented in order and
/// read in reverse order are therefore never inconsistent.
template <class T, class Sync = std_atomics>
class single_writer {  // NOLINT(performance-trivially-destructible): it is, but not through a module
 public:
  [[nodiscard]] T value() const noexcept { return value_.load(std::memory_order_acquire); }
  void set(T value) noexcept { value_.store(value, std::memory_order_release); }
  /// Adds `more` and returns the sum. Unsigned numbers may wrap.
  T add(T more) noexcept {
    const T sum = value_.load(std::memory_order_relaxed) + more;
    set(sum);
    return sum;
  }
  T subtract(T less) noexcept { return add(T{0} - less); }

 private:
  typename Sync::template atomic<T> value_{0};
};

}  // namespace tidemark::detail
