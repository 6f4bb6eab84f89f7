// SPDX-License-Identifier: Apache-2.0
/// @file
/// `counting_filter`: a counting Bloom filter of addresses. Owns its counts.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/std_atomics.hpp>

namespace tidemark::detail {

/// A multiset of addresses, in which absent ones may seem present: counts of a byte and one hash
/// function (Fan et al., "Summary cache", 2000).
///
/// Invariant: `counts_[i] >= addresses in the filter whose hash is i`, but for 255, which stays.
///
/// O(1). Any thread.
/// @tparam Bits log2 of the number of counts
template <class Sync, int Bits>
class basic_counting_filter {
 public:
  /// 0: the address is not in the filter.
  [[nodiscard]] std::uint8_t count(std::uintptr_t address) const noexcept {
    return counts_[hash(address)].load(std::memory_order_relaxed);
  }
  void insert(std::uintptr_t address) noexcept { add(address, 1); }
  /// @pre the address was inserted more often than erased
  void erase(std::uintptr_t address) noexcept { add(address, -1); }

 private:
  using count_type = Sync::template atomic<std::uint8_t>;
  [[nodiscard]] static std::size_t hash(std::uintptr_t address) noexcept {
    return static_cast<std::size_t>(fibonacci_hash(address) >> (64 - Bits));
  }
  void add(std::uintptr_t address, int by) noexcept {
    constexpr std::uint8_t saturated = 255;
    count_type& count = counts_[hash(address)];
    std::uint8_t now = count.load(std::memory_order_relaxed);
    while (now != saturated && !count.compare_exchange_weak(now, static_cast<std::uint8_t>(now + by))) {
    }
  }

  std::array<count_type, std::size_t{1} << Bits> counts_{};
};
using counting_filter = basic_counting_filter<std_atomics, 12>;

}  // namespace tidemark::detail
