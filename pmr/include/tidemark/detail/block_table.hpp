// SPDX-License-Identifier: Apache-2.0
/// @file
/// `block_table`: finds the record of an address. Owns the records.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <mutex>

#include <tidemark/detail/tracked_block.hpp>
#include <tidemark/macros.hpp>

namespace tidemark::detail {

/// A hash table of addresses with linear probing that only ever grows: finding takes no lock, and adding
/// takes one only for an address that was never seen before.
///
/// A record is 48 bytes and up to 64 more in tables, former ones included, for each address ever tracked. An
/// upstream that uses its memory again hands out about as many addresses as it ever had blocks at once.
///
/// Most blocks of a program are none that an epoch ever had, or none any more. So that these need not be
/// looked up, records that matter are *noted*, that is counted by address in a small field: where the count
/// is 0, no record there is held by a group, reclaimed, or kept with handles that lead to it. A record stays
/// noted when it goes early in an epoch, because its address mostly comes again in one; who finds it later
/// takes the note away.
///
/// Invariants: at most half of the places are taken; a record stays at its address; between the home of an
/// address and its record no place is free; `notes_[i] >= noted records whose addresses hash to i`, but for
/// 255, which is any number.
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
  [[nodiscard]] tracked_block* find(void const* block) const noexcept {
    return find(reinterpret_cast<std::uintptr_t>(block));
  }

  /// False if what is known of an address can be left aside: it has no record, or none that is noted. O(1).
  [[nodiscard]] bool may_be_noted(void const* block) const noexcept {
    return notes_[note_of(reinterpret_cast<std::uintptr_t>(block))].load(std::memory_order_relaxed) != 0;
  }
  /// Notes an address, before its record says so.
  void note(std::uintptr_t address) noexcept { change_note(address, 1); }
  /// Takes the note away, once its record says that it is not noted.
  void take_note_away(std::uintptr_t address) noexcept { change_note(address, -1); }

  /// As `find`, and a new record if there is none. O(1) expected, amortised. @throws what the bookkeeping
  /// memory throws; nothing has changed then.
  [[nodiscard]] tracked_block& find_or_add(void const* block) {
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    tracked_block* const found = find(address);
    return found != nullptr ? *found : add(address);
  }

 private:
  struct index {
    // Multiplicative hashing by the golden ratio, of whose product the upper bits are taken (Knuth, "The Art
    // of Computer Programming" 3, 6.4). Without the lower bits of an address, which are 0 in nearly all
    // blocks: with them, blocks in a row have more than twice as many steps to take from their homes.
    [[nodiscard]] std::size_t home(std::uintptr_t address) const noexcept {
      return static_cast<std::size_t>((std::uint64_t{address >> 4} * 0x9E37'79B9'7F4A'7C15U) >> shift);
    }
    std::atomic<tracked_block*>* places;
    std::size_t mask;
    int shift;  // 64 less the binary logarithm of the number of places
  };
  // The upper bits of a product, as above. With the lower bits of an address, which cost nothing here.
  static constexpr int note_bits = 12;
  [[nodiscard]] static std::size_t note_of(std::uintptr_t address) noexcept {
    return static_cast<std::size_t>((std::uint64_t{address} * 0x9E37'79B9'7F4A'7C15U) >> (64 - note_bits));
  }
  void change_note(std::uintptr_t address, int by) noexcept;
  TIDEMARK_COLD tracked_block& add(std::uintptr_t address);
  void grow();
  static void put(index const& in, tracked_block* record) noexcept;

  std::atomic<tracked_block*> no_place_[2] = {};
  index empty_index_{no_place_, 1, 63};
  std::atomic<index const*> index_{&empty_index_};
  std::mutex mutex_;  // for what follows
  // Also of indices that were too small: whoever is still looking into one finds what it is looking for.
  std::pmr::monotonic_buffer_resource memory_;
  std::size_t count_ = 0;
  std::array<std::atomic<std::uint8_t>, std::size_t{1} << note_bits> notes_{};
};

}  // namespace tidemark::detail
