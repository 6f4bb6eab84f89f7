// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tracked_block`: what an `epoch_resource` knows of one address. Nothing of it is stored in the block
/// itself.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tidemark::detail {

class block_group;

enum class block_status : std::uint8_t {
  untracked,  ///< in no group: never tracked, deallocated, or kept at the outermost level
  tracked,    ///< reclaimed when its group ends
  kept,       ///< tracked, and promoted when its group ends
  reclaimed,  ///< its group has ended; until the address is allocated again, a deallocation is late
};

/// Status, alignment and generation of the block at an address, in one word, so that all are read and written
/// at once; and whether the address is in the resource's filter.
class block_state {
 public:
  constexpr block_state() noexcept = default;
  explicit constexpr block_state(std::uint64_t word) noexcept : word_{word} {}
  constexpr block_state(std::uint64_t generation, std::size_t align, block_status status) noexcept
      : word_{(generation << generation_shift) |
              (static_cast<std::uint64_t>(std::countr_zero(align)) << align_shift) |
              static_cast<std::uint64_t>(status)} {}

  [[nodiscard]] constexpr std::uint64_t word() const noexcept { return word_; }
  [[nodiscard]] constexpr block_status status() const noexcept {
    return static_cast<block_status>(word_ & status_mask);
  }
  [[nodiscard]] constexpr std::size_t align() const noexcept {
    return std::size_t{1} << ((word_ >> align_shift) & align_mask);
  }
  [[nodiscard]] constexpr std::uint64_t generation() const noexcept { return word_ >> generation_shift; }
  /// Whether it is in a group.
  [[nodiscard]] constexpr bool is_held() const noexcept {
    return status() == block_status::tracked || status() == block_status::kept;
  }

  /// Whether the address is in the filter.
  [[nodiscard]] constexpr bool is_in_filter() const noexcept { return (word_ & filter_bit) != 0; }
  /// The same, in the filter or not.
  [[nodiscard]] constexpr block_state in_filter() const noexcept { return block_state{word_ | filter_bit}; }
  [[nodiscard]] constexpr block_state not_in_filter() const noexcept {
    return block_state{word_ & ~filter_bit};
  }

  /// The same generation in another status.
  [[nodiscard]] constexpr block_state as(block_status status) const noexcept {
    return block_state{(word_ & ~status_mask) | static_cast<std::uint64_t>(status)};
  }
  /// The next generation: the block was deallocated or reclaimed.
  [[nodiscard]] constexpr block_state ended_as(block_status status) const noexcept {
    return block_state{as(status).word_ + (std::uint64_t{1} << generation_shift)};
  }

  friend constexpr bool operator==(block_state, block_state) noexcept = default;

 private:
  static constexpr unsigned align_shift = 2, generation_shift = 9;
  static constexpr std::uint64_t status_mask = 3, align_mask = 63, filter_bit = 1U << 8;

  std::uint64_t word_ = 0;
};

/// The record of an address that was ever tracked. It stays where it is as long as the table.
///
/// A handle on the block at this address is valid for one generation, which ends when the block is
/// deallocated or reclaimed.
///
/// Writers write the other members before the state, and readers read the state first. A state that says that
/// a group holds the block is changed by the group's own thread, or with the group's lock held.
struct tracked_block {
  explicit tracked_block(std::uintptr_t where) noexcept : address{where} {}

  [[nodiscard]] block_state load() const noexcept {
    return block_state{state.load(std::memory_order_acquire)};
  }
  void store(block_state now) noexcept { state.store(now.word(), std::memory_order_release); }
  static constexpr std::size_t deallocated = ~std::size_t{0};
  [[nodiscard]] void* data() const noexcept { return reinterpret_cast<void*>(address); }

  std::uintptr_t const address;
  std::atomic<std::uint64_t> state{0};
  std::atomic<std::size_t> bytes{
      0};  // at level 2 `deallocated`, if it is known to be since its last generation
  std::atomic<block_group*> holder{nullptr};  // of a held block; always null or a group that exists
  std::atomic<std::size_t> position{0};  // in the holder's log; of a reclaimed block, the epoch's depth, or 0
  std::atomic<char const*> ended_by{nullptr};  // of a reclaimed block: the name of the epoch or buffer group
};

}  // namespace tidemark::detail
