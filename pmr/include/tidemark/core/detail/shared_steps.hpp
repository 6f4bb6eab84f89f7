// SPDX-License-Identifier: Apache-2.0
/// @file
/// Steps on counts that threads share, which cost nothing while there is one thread. Owns nothing.
#pragma once

#include <atomic>
#include <cstddef>

#include <tidemark/core/detail/std_atomics.hpp>

namespace tidemark::detail {

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

}  // namespace tidemark::detail
