// SPDX-License-Identifier: Apache-2.0
/// @file
/// `std_atomics`: what code without locks that threads run together synchronises with; `steps`, `add_shared`,
/// `add_shared_within`: counts that threads share; `single_writer`: a number that one thread writes.
#pragma once

#include <atomic>
#include <cstddef>
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

  /// Whether no second thread was ever started, as far as the C library tells (glibc >= 2.32). It is true
  /// again at most after all others were joined, so that a reader of true needs no lock prefix.
  [[nodiscard]] static bool is_single_threaded() noexcept {
#if __has_include(<sys/single_threaded.h>)
    return __libc_single_threaded != 0;
#else
    return false;
#endif
  }
};

/// Steps on counts. Relaxed: a count orders nothing but itself.
/// @tparam Shared false while there is one thread: two plain moves in place of a locked instruction. Still
/// atomic loads and stores, so that threads that start later read them without a race.
template <bool Shared>
struct steps {
  /// Adds `n`; unsigned, so that adding `0 - n` takes `n` away. @return the sum.
  template <class Count>
  static Count::value_type add(Count& count, typename Count::value_type n) noexcept {
    if constexpr (Shared) return count.fetch_add(n, std::memory_order_relaxed) + n;
    const typename Count::value_type sum = count.load(std::memory_order_relaxed) + n;
    count.store(sum, std::memory_order_relaxed);
    return sum;
  }
  /// The peak is at least `value` afterwards.
  template <class Count>
  static void raise(Count& peak, std::size_t value) noexcept {
    std::size_t seen = peak.load(std::memory_order_relaxed);
    while (value > seen && !replace(peak, seen, value)) {
    }
  }
  /// Adds `n`, unless the sum would exceed `limit`: then nothing changes. @return whether it was added.
  template <class Count>
  static bool add_within(Count& count, std::size_t n, std::size_t limit) noexcept {
    std::size_t seen = count.load(std::memory_order_relaxed);
    do {
      if (seen > limit || n > limit - seen) return false;
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

/// `count(steps)` with the steps for as many threads as there are.
template <class Sync = std_atomics, class Count>
auto with_steps(Count count) noexcept {
  return Sync::is_single_threaded() ? count(steps<false>{}) : count(steps<true>{});
}

/// `steps::add`.
template <class Number>
Number add_shared(std::atomic<Number>& count, Number n) noexcept {
  return with_steps([&](auto steps) { return steps.add(count, n); });
}

/// `steps::add_within`.
inline bool add_shared_within(std::atomic<std::size_t>& count, std::size_t n, std::size_t limit) noexcept {
  return with_steps([&](auto steps) { return steps.add_within(count, n, limit); });
}

/// A number that one thread writes and any may read. Costs that thread what a plain number does.
///
/// Who reads a number knows what its writer knew when it wrote it: of numbers that go up one after the other,
/// read in the reverse order, none is behind a later one.
template <class T, class Sync = std_atomics>
class single_writer {  // NOLINT(performance-trivially-destructible): it is, but not through a module
 public:
  [[nodiscard]] T value() const noexcept { return value_.load(std::memory_order_acquire); }
  void set(T value) noexcept { value_.store(value, std::memory_order_release); }
  /// Adds, and returns the sum. Unsigned numbers may wrap.
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
