// SPDX-License-Identifier: Apache-2.0
/// @file
/// `block_table`: finds the record of an address. Owns the records.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <mutex>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/epoch/detail/tracked_block.hpp>

namespace tidemark::detail {

/// A hash table of addresses with linear probing that only grows. Finding takes no lock, and adding takes one
/// for an address that was never seen before.
///
/// A record is 48 bytes and up to 64 more in tables, former ones included, for each address ever tracked. An
/// upstream that reuses its memory returns about as many addresses as it ever had blocks at once.
///
/// Invariants: at most half of the places are taken; a record stays at its address; between the home of an
/// address and its record no place is free.
///
/// Any thread.
class block_table {
 public:
  explicit block_table(std::pmr::memory_resource* bookkeeping) : memory_{bookkeeping} {}
  block_table(block_table const&) = delete;
  block_table& operator=(block_table const&) = delete;
  ~block_table() = default;

  /// Whether no address was ever tracked.
  [[nodiscard]] bool empty() const noexcept {
    return index_.load(std::memory_order_relaxed) == &empty_index_;
  }

  /// The record of an address; null if it was never tracked. O(1) expected, no lock.
  [[nodiscard]] tracked_block* find(std::uintptr_t address) const noexcept {
    index const& in = *index_.load(std::memory_order_acquire);
    for (std::size_t i = in.home(address);; ++i) {
      tracked_block* const found = in.places[i & in.mask].load(std::memory_order_acquire);
      if (found == nullptr || found->address == address) return found;
    }
  }
  [[nodiscard]] tracked_block* find(void const* block) const noexcept { return find(address_of(block)); }

  /// As `find`, and a new record if there is none. O(1) expected, amortised. @throws what the bookkeeping
  /// memory throws; nothing has changed then.
  [[nodiscard]] tracked_block& find_or_add(void const* block) {
    tracked_block* const found = find(block);
    return found != nullptr ? *found : add(address_of(block));
  }

 private:
  struct index {
    // Without the lower bits of an address, which are 0 in nearly all blocks: with them, blocks in a row have
    // more than twice as many steps to take from their homes.
    [[nodiscard]] std::size_t home(std::uintptr_t address) const noexcept {
      return static_cast<std::size_t>(fibonacci_hash(address >> 4) >> shift);
    }
    std::atomic<tracked_block*>* places;
    std::size_t mask;
    int shift;  // 64 less the binary logarithm of the number of places
  };
  TIDEMARK_COLD tracked_block& add(std::uintptr_t address);
  void grow();
  static void put(index const& in, tracked_block* record) noexcept;

  std::atomic<tracked_block*> no_place_[2] = {};
  index empty_index_{no_place_, 1, 63};
  std::atomic<index const*> index_{&empty_index_};
  fork_safe<> mutex_;  // for what follows
  // Also of indices that were too small: another thread may still be looking into one.
  std::pmr::monotonic_buffer_resource memory_;
  std::size_t count_ = 0;
};

}  // namespace tidemark::detail
