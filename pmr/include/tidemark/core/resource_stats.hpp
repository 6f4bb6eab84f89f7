// SPDX-License-Identifier: Apache-2.0
/// @file
/// `resource_stats`: what went through a resource, in numbers, the words that all statistics share, and the
/// counts behind `resource_stats`, exact with any number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <tidemark/core/detail/std_atomics.hpp>

namespace tidemark {

/// A snapshot. What `stats()` of other resources counts of this has the same name there, and a word means the
/// same everywhere: docs/design.md lists them.
///
/// `allocations - deallocations == used_blocks <= peak_blocks`, and `used_bytes <= peak_bytes <=
/// total_bytes`.
struct resource_stats {
  char const* name = "";            ///< the resource's name
  std::uint64_t allocations = 0;    ///< blocks allocated so far
  std::uint64_t deallocations = 0;  ///< blocks deallocated so far
  std::uint64_t refused = 0;        ///< allocations that failed so far
  std::size_t used_blocks = 0;      ///< allocated now
  std::size_t peak_blocks = 0;      ///< most that were allocated at once
  std::size_t used_bytes = 0;       ///< allocated now
  std::size_t peak_bytes = 0;       ///< most that were allocated at once
  std::uint64_t total_bytes = 0;    ///< allocated so far, whether deallocated or not
};

}  // namespace tidemark

namespace tidemark::detail {

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
template <class Sync>
class basic_usage_counter {
 public:
  /// A block was allocated. O(1).
  void on_allocate(std::size_t bytes) noexcept {
    with_steps<Sync>([&](auto steps) {
      steps.raise(peak_bytes_, steps.add(used_bytes_, bytes));
      steps.raise(peak_blocks_, steps.add(used_blocks_, std::size_t{1}));
    });
  }
  /// A block was deallocated, or several blocks of this many bytes in all. O(1).
  void on_deallocate(std::size_t bytes, std::size_t blocks = 1) noexcept {
    with_steps<Sync>([&](auto steps) {
      steps.add(freed_bytes_, std::uint64_t{bytes});
      steps.add(deallocations_, std::uint64_t{blocks});
      steps.add(used_bytes_, std::size_t{0} - bytes);
      steps.add(used_blocks_, std::size_t{0} - blocks);
    });
  }
  /// An allocation failed.
  void refused() noexcept {
    with_steps<Sync>([&](auto steps) { steps.add(refused_, std::uint64_t{1}); });
  }

  /// Bytes in use.
  [[nodiscard]] std::size_t used_bytes() const noexcept {
    return used_bytes_.load(std::memory_order_relaxed);
  }
  /// Blocks in use.
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

  /// All counts begin anew. @pre no block is allocated, and no other thread counts.
  void restart() noexcept {
    for (auto* const count : {&peak_bytes_, &peak_blocks_}) count->store(0, std::memory_order_relaxed);
    for (auto* const count : {&freed_bytes_, &deallocations_, &refused_})
      count->store(0, std::memory_order_relaxed);
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
    steps<true>::raise(peak_bytes_, least.bytes);
    steps<true>::raise(peak_blocks_, least.blocks);
  }

 private:
  template <class Number>
  using count = Sync::template atomic<Number>;

  count<std::size_t> used_bytes_{0};       // allocated now
  count<std::size_t> used_blocks_{0};      // allocated now
  count<std::size_t> peak_bytes_{0};       // most since the start, or since restart_peaks
  count<std::size_t> peak_blocks_{0};      // most since the start, or since restart_peaks
  count<std::uint64_t> freed_bytes_{0};    // deallocated so far
  count<std::uint64_t> deallocations_{0};  // deallocated so far
  count<std::uint64_t> refused_{0};        // failed so far
};
using usage_counter = basic_usage_counter<std_atomics>;

}  // namespace tidemark::detail
