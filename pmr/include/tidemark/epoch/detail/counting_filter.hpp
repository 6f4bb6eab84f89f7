// SPDX-License-Identifier: Apache-2.0
/// @file
/// `counting_filter`: a counting Bloom filter of addresses. Owns its counts.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <tidemark/core/detail/align.hpp>

namespace tidemark::detail {

/// A multiset of addresses, in which absent ones may seem present: 4,096 counts of a byte and one hash
/// function (Fan et al., "Summary cache", 2000).
///
/// Invariant: `counts_[i] >= addresses in the filter whose hash is i`, but for 255, which stays.
///
/// O(1). Any thread.
class counting_filter {
 public:
  /// False: the address is not in the filter.
  [[nodiscard]] bool may_contain(std::uintptr_t address) const noexcept {
    return counts_[hash(address)].load(std::memory_order_relaxed) != 0;
  }
  [[nodiscard]] bool may_contain(void const* address) const noexcept {
    return may_contain(address_of(address));
  }
  void insert(std::uintptr_t address) noexcept { add(address, 1); }
  /// @pre the address was inserted more often than erased
  void erase(std::uintptr_t address) noexcept { add(address, -1); }

 private:
  static constexpr int bits = 12;
  [[nodiscard]] static std::size_t hash(std::uintptr_t address) noexcept {
    return static_cast<std::size_t>(fibonacci_hash(address) >> (64 - bits));
  }
  void add(std::uintptr_t address, int by) noexcept {
    constexpr std::uint8_t saturated = 255;
    std::atomic<std::uint8_t>& count = counts_[hash(address)];
    std::uint8_t now = count.load(std::memory_order_relaxed);
    while (now != saturated && !count.compare_exchange_weak(now, static_cast<std::uint8_t>(now + by))) {
    }
  }

  std::array<std::atomic<std::uint8_t>, std::size_t{1} << bits> counts_{};
};

}  // namespace tidemark::detail
