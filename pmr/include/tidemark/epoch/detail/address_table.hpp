// SPDX-License-Identifier: Apache-2.0
/// @file
/// `address_table` owns records and finds the record of an address; `counting_filter` tests if an address may
/// have a record.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <new>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/std_atomics.hpp>
#include <tidemark/core/macros.hpp>

namespace tidemark::detail {

/// A hash table of addresses with linear probing. The table only grows. Finding takes no lock; adding a new
/// address takes a lock.
///
/// @tparam Record is constructed from an address and stores it as `address`
/// @tparam AlignLog2 log2 of the alignment of nearly all addresses. Dropping the low bits more than halves
/// the probe distance of consecutive addresses.
///
/// Tables, including replaced ones, take up to 64 bytes for each address ever added. Records take further
/// memory. If the upstream reuses its memory, the number of different addresses is about its peak number of
/// blocks.
///
/// Invariants: `2 * records <= places`; a record never moves; no place is free between the home of an address
/// and its record.
///
/// Thread-safety: any thread.
template <class Record, unsigned AlignLog2, class Sync = std_sync>
class address_table {
 public:
  explicit address_table(std::pmr::memory_resource* bookkeeping) : memory_{bookkeeping} {}
  address_table(address_table const&) = delete;
  address_table& operator=(address_table const&) = delete;

  /// Returns the record of an address; null if the address was never added. O(1) expected, no lock.
  [[nodiscard]] Record* find(std::uintptr_t address) const noexcept {
    index const& in = *index_.load(std::memory_order_acquire);
    for (std::size_t i = in.home(address);; ++i) {
      Record* const found = in.places[i & in.mask].load(std::memory_order_acquire);
      if (found == nullptr || found->address == address) return found;
    }
  }

  /// Returns the record of an address, and adds a missing record. O(1) expected, amortised. @throws
  /// whatever the bookkeeping memory throws; the table is unchanged then
  [[nodiscard]] Record& find_or_add(std::uintptr_t address) {
    Record* const found = find(address);
    return found != nullptr ? *found : add(address);
  }

 private:
  using place = Sync::template atomic<Record*>;
  struct index {
    [[nodiscard]] std::size_t home(std::uintptr_t address) const noexcept {
      return static_cast<std::size_t>(fibonacci_hash(address >> AlignLog2) >> shift);
    }
    place* places;
    std::size_t mask;
    int shift;  // 64 - log2(number of places)
  };

  TIDEMARK_COLD Record& add(std::uintptr_t address) {
    const std::scoped_lock lock{mutex_};
    if (Record* const found = find(address)) return *found;
    if (2 * (count_ + 1) > index_.load(std::memory_order_relaxed)->mask + 1) grow();
    auto* const record = ::new (memory_.allocate(sizeof(Record), alignof(Record))) Record{address};
    store(*index_.load(std::memory_order_relaxed), record);
    ++count_;
    return *record;
  }
  static void store(index const& in, Record* record) noexcept {
    std::size_t i = in.home(record->address);
    while (in.places[i & in.mask].load(std::memory_order_relaxed) != nullptr) ++i;
    in.places[i & in.mask].store(record, std::memory_order_release);
  }
  void grow() {
    constexpr std::size_t min_places = 64;
    index const& before = *index_.load(std::memory_order_relaxed);
    const std::size_t places = (std::max)(min_places, 2 * (before.mask + 1));
    auto* const first = static_cast<place*>(memory_.allocate(places * sizeof(place), alignof(place)));
    std::uninitialized_value_construct_n(first, places);
    auto* const after = ::new (memory_.allocate(sizeof(index), alignof(index)))
        index{first, places - 1, 64 - std::countr_zero(std::uint64_t{places})};
    for (std::size_t i = 0; i <= before.mask; ++i) {
      if (Record* const record = before.places[i].load(std::memory_order_relaxed)) store(*after, record);
    }
    index_.store(after, std::memory_order_release);
  }

  place first_places_[2] = {};
  index first_index_{first_places_, 1, 63};
  typename Sync::template atomic<index const*> index_{&first_index_};
  typename Sync::mutex mutex_;  // guards the members below
  // Also keeps replaced indices, because another thread may still read them.
  std::pmr::monotonic_buffer_resource memory_;
  std::size_t count_ = 0;
};

/// A multiset of addresses with false positives but no false negatives: byte counters and one hash function
/// (Fan et al., "Summary cache", 2000).
///
/// Invariants: `counts_[i] >= addresses in the filter whose hash is i`, or `counts_[i] == 255`, which is
/// final; `sum_ == sum of counts_` while no call changes the filter.
///
/// O(1). Thread-safety: any thread.
/// @tparam Bits log2 of the number of counters
template <class Sync, int Bits>
class basic_counting_filter {
 public:
  /// Returns true only if the filter has no address that the caller may ask for.
  // Relaxed: the insertion of an address happens before the question of its owner, and precedes its erasure
  // in the order of changes to `sum_`. Each sum between these two changes is therefore at least 1.
  [[nodiscard]] bool is_empty() const noexcept { return sum_.load(std::memory_order_relaxed) == 0; }
  /// Returns 0 only if the address is not in the filter.
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
    do {
      if (now == saturated) return;
    } while (!count.compare_exchange_weak(now, static_cast<std::uint8_t>(now + by)));
    sum_.fetch_add(static_cast<std::size_t>(by), std::memory_order_relaxed);
  }

  typename Sync::template atomic<std::size_t> sum_{0};
  std::array<count_type, std::size_t{1} << Bits> counts_{};
};
using counting_filter = basic_counting_filter<std_atomics, 12>;

}  // namespace tidemark::detail
