// SPDX-License-Identifier: Apache-2.0
/// @file
/// The counts behind `resource_stats`, exact with any number of threads. Owns nothing but them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <version>

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#endif

#include <tidemark/resource_stats.hpp>

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

/// Counts what goes through a resource.
///
/// Four counts and two peaks are enough for all of `resource_stats`, chosen so that each way has as few steps
/// as can be: `allocations == deallocations + used_blocks` and `total_bytes == freed_bytes + used_bytes`.
/// What is used now is one count each, and no difference, because only then is a peak exact: every sum that
/// was ever reached is the result of one step, and is compared with the peak. Of calls
/// that overlap in time, the peak of bytes may have seen another order than that of blocks.
///
/// Any thread. Exact once the counted calls have returned; meanwhile each field is right for some moment, and
/// the invariants of `resource_stats` hold all the same.
class usage_counter {
 public:
  /// A block was handed out. O(1).
  void handed_out(std::size_t bytes) noexcept {
    if (is_single_threaded()) count_handed_out<unshared_steps>(bytes);
    else count_handed_out<shared_steps>(bytes);
  }
  /// A block was given back. O(1).
  void given_back(std::size_t bytes) noexcept {
    if (is_single_threaded()) count_given_back<unshared_steps>(bytes);
    else count_given_back<shared_steps>(bytes);
  }
  /// An allocation failed.
  void refused() noexcept { add_shared<std::uint64_t>(refused_, 1); }

  /// Bytes handed out now.
  [[nodiscard]] std::size_t used_bytes() const noexcept {
    return used_bytes_.load(std::memory_order_relaxed);
  }
  /// Blocks handed out now.
  [[nodiscard]] std::size_t used_blocks() const noexcept {
    return used_blocks_.load(std::memory_order_relaxed);
  }

  /// A snapshot.
  [[nodiscard]] resource_stats stats(char const* name) const noexcept {
    resource_stats now{.name = name};
    // Peaks first, and held between their bounds: another thread may be between two steps of one call.
    const std::size_t peak_blocks = peak_blocks_.load(std::memory_order_relaxed);
    const std::size_t peak_bytes = peak_bytes_.load(std::memory_order_relaxed);
    now.used_blocks = used_blocks();
    now.used_bytes = used_bytes();
    now.deallocations = deallocations_.load(std::memory_order_relaxed);
    now.allocations = now.deallocations + now.used_blocks;
    now.refused = refused_.load(std::memory_order_relaxed);
    now.total_bytes = freed_bytes_.load(std::memory_order_relaxed) + now.used_bytes;
    now.peak_blocks = std::clamp<std::size_t>(peak_blocks, now.used_blocks, now.allocations);
    now.peak_bytes = std::clamp<std::size_t>(peak_bytes, now.used_bytes, now.total_bytes);
    return now;
  }

  /// The two peaks, in a type of their own because they are set aside and joined together.
  struct peaks {
    std::size_t bytes, blocks;
  };
  /// Peaks begin again at what is used now. @return those before.
  peaks restart_peaks() noexcept {
    const peaks before{peak_bytes_.exchange(used_bytes()), peak_blocks_.exchange(used_blocks())};
    raise_peaks({used_bytes(), used_blocks()});  // an allocation between the reading and the exchange
    return before;
  }
  /// Peaks are at least these.
  void raise_peaks(peaks least) noexcept {
    shared_steps::raise(peak_bytes_, least.bytes);
    shared_steps::raise(peak_blocks_, least.blocks);
  }

 private:
  template <class Steps>
  void count_handed_out(std::size_t bytes) noexcept {
    Steps::raise(peak_bytes_, Steps::add(used_bytes_, bytes));
    Steps::raise(peak_blocks_, Steps::add(used_blocks_, std::size_t{1}));
  }
  template <class Steps>
  void count_given_back(std::size_t bytes) noexcept {
    Steps::template add<std::uint64_t>(freed_bytes_, bytes);
    Steps::template add<std::uint64_t>(deallocations_, 1);
    Steps::add(used_bytes_, std::size_t{0} - bytes);
    Steps::add(used_blocks_, std::size_t{0} - 1);
  }

  std::atomic<std::size_t> used_bytes_{0};       // handed out now
  std::atomic<std::size_t> used_blocks_{0};      // handed out now
  std::atomic<std::size_t> peak_bytes_{0};       // most since the start, or since restart_peaks
  std::atomic<std::size_t> peak_blocks_{0};      // most since the start, or since restart_peaks
  std::atomic<std::uint64_t> freed_bytes_{0};    // given back so far
  std::atomic<std::uint64_t> deallocations_{0};  // given back so far
  std::atomic<std::uint64_t> refused_{0};        // failed so far
};

}  // namespace tidemark::detail
