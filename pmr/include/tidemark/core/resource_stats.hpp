// SPDX-License-Identifier: Apache-2.0
/// @file
/// `resource_stats`: allocation statistics of a resource; and the counters behind it, exact with any number
/// of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <tidemark/core/detail/std_atomics.hpp>

namespace tidemark {

/// A snapshot. Other `stats()` use the same field names with the same meaning; docs/design.md lists them.
///
/// Invariants: `allocations - deallocations == used_blocks <= peak_blocks`, and `used_bytes <= peak_bytes <=
/// total_bytes`.
struct resource_stats {
  char const* name = "";            ///< the resource's name
  std::uint64_t allocations = 0;    ///< blocks allocated so far
  std::uint64_t deallocations = 0;  ///< blocks deallocated so far
  std::uint64_t refused = 0;        ///< allocations that failed so far
  std::size_t used_blocks = 0;      ///< currently allocated
  std::size_t peak_blocks = 0;      ///< largest `used_blocks` so far
  std::size_t used_bytes = 0;       ///< currently allocated
  std::size_t peak_bytes = 0;       ///< largest `used_bytes` so far
  std::uint64_t total_bytes = 0;    ///< allocated so far, including deallocated bytes
};

}  // namespace tidemark

namespace tidemark::detail {

/// Counts the allocations and deallocations of a resource.
///
/// Five counts and two peaks yield all of `resource_stats`: `allocations == deallocations + used_blocks` and
/// `total_bytes == freed_bytes + used_bytes`. This choice needs the fewest steps per call. Used bytes and
/// used blocks are counters, not differences of two counters. Each sum is then the result of one atomic step
/// and is compared with its peak, so the peaks are exact. The two peaks may see overlapping calls in
/// different orders.
///
/// Thread-safe. Exact once the counted calls have returned. Until then each field is correct for some moment,
/// and the invariants of `resource_stats` hold.
template <class Sync>
class basic_usage_counter {
 public:
  /// Records an allocation. O(1).
  void on_allocate(std::size_t bytes) noexcept {
    with_steps<Sync>([&](auto steps) {
      steps.raise(peak_bytes_, steps.add(used_bytes_, bytes));
      steps.raise(peak_blocks_, steps.add(used_blocks_, std::size_t{1}));
    });
  }
  /// Records the deallocation of a block, or of several blocks with this many bytes in total. O(1).
  void on_deallocate(std::size_t bytes, std::size_t blocks = 1) noexcept {
    with_steps<Sync>([&](auto steps) {
      steps.add(freed_bytes_, std::uint64_t{bytes});
      steps.add(deallocations_, std::uint64_t{blocks});
      steps.add(used_bytes_, std::size_t{0} - bytes);
      steps.add(used_blocks_, std::size_t{0} - blocks);
    });
  }
  /// Records a failed allocation.
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

  /// A snapshot of the counters.
  [[nodiscard]] resource_stats stats(char const* name) const noexcept {
    resource_stats now{.name = name};
    // Reads the peaks first and clamps them, because another thread may be between two steps of a call.
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

  /// Resets all counts. @pre no block is allocated, and no other thread counts.
  void restart() noexcept {
    for (auto* const count : {&peak_bytes_, &peak_blocks_}) count->store(0, std::memory_order_relaxed);
    for (auto* const count : {&freed_bytes_, &deallocations_, &refused_})
      count->store(0, std::memory_order_relaxed);
  }

  /// Resets the peaks to the current use of memory. @return the previous peaks; other fields are 0.
  resource_stats restart_peaks() noexcept {
    const resource_stats before{.peak_blocks = peak_blocks_.exchange(used_blocks()),
                                .peak_bytes = peak_bytes_.exchange(used_bytes())};
    raise_peaks(used_bytes(), used_blocks());  // an allocation may have come before the exchange
    return before;
  }
  /// Raises the peaks to at least these values.
  void raise_peaks(std::size_t bytes, std::size_t blocks) noexcept {
    steps<true>::raise(peak_bytes_, bytes);
    steps<true>::raise(peak_blocks_, blocks);
  }

 private:
  template <class Number>
  using count = Sync::template atomic<Number>;

  count<std::size_t> used_bytes_{0};       // currently allocated
  count<std::size_t> used_blocks_{0};      // currently allocated
  count<std::size_t> peak_bytes_{0};       // largest since the start or restart_peaks
  count<std::size_t> peak_blocks_{0};      // largest since the start or restart_peaks
  count<std::uint64_t> freed_bytes_{0};    // deallocated so far
  count<std::uint64_t> deallocations_{0};  // deallocated so far
  count<std::uint64_t> refused_{0};        // failed so far
};
using usage_counter = basic_usage_counter<std_atomics>;

}  // namespace tidemark::detail
