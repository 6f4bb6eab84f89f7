// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tracked_block`: what an `epoch_resource` knows of one address. Nothing of it is stored in the block itself.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tidemark::detail {

class block_group;

enum class block_status : std::uint8_t {
  untracked,  ///< nobody's to reclaim: never tracked, given back, or kept at the outermost level
  tracked,    ///< reclaimed when its group ends
  kept,       ///< tracked, and promoted when its group ends
  reclaimed,  ///< its group has ended; until the address is handed out again, whoever gives it back is late
};

/// Status, alignment and number of the life that the block at an address is in, in one word, so that all are
/// read and written at once; and whether the record is noted, as `block_table` says.
class block_state {
 public:
  constexpr block_state() noexcept = default;
  explicit constexpr block_state(std::uint64_t word) noexcept : word_{word} {}
  constexpr block_state(std::uint64_t life, std::size_t align, block_status status) noexcept
      : word_{(life << life_shift) | (static_cast<std::uint64_t>(std::countr_zero(align)) << align_shift) |
              static_cast<std::uint64_t>(status)} {}

  [[nodiscard]] constexpr std::uint64_t word() const noexcept { return word_; }
  [[nodiscard]] constexpr block_status status() const noexcept {
    return static_cast<block_status>(word_ & status_mask);
  }
  [[nodiscard]] constexpr std::size_t align() const noexcept {
    return std::size_t{1} << ((word_ >> align_shift) & align_mask);
  }
  [[nodiscard]] constexpr std::uint64_t life() const noexcept { return word_ >> life_shift; }
  /// Whether it is in a group.
  [[nodiscard]] constexpr bool is_held() const noexcept {
    return status() == block_status::tracked || status() == block_status::kept;
  }

  /// Whether the table has noted it.
  [[nodiscard]] constexpr bool is_noted() const noexcept { return (word_ & noted_bit) != 0; }
  /// The same, noted or not.
  [[nodiscard]] constexpr block_state noted() const noexcept { return block_state{word_ | noted_bit}; }
  [[nodiscard]] constexpr block_state not_noted() const noexcept { return block_state{word_ & ~noted_bit}; }

  /// The same life in another status.
  [[nodiscard]] constexpr block_state as(block_status status) const noexcept {
    return block_state{(word_ & ~status_mask) | static_cast<std::uint64_t>(status)};
  }
  /// The life is over.
  [[nodiscard]] constexpr block_state ended_as(block_status status) const noexcept {
    return block_state{as(status).word_ + (std::uint64_t{1} << life_shift)};
  }

  friend constexpr bool operator==(block_state, block_state) noexcept = default;

 private:
  static constexpr unsigned align_shift = 2, life_shift = 9;
  static constexpr std::uint64_t status_mask = 3, align_mask = 63, noted_bit = 1U << 8;

  std::uint64_t word_ = 0;
};

/// Each address that was ever tracked has one of these, which stays where it is as long as the table.
///
/// A handle on the block at this address is good while the life is the one it was made in: a life ends when
/// the block is given back or reclaimed.
///
/// Who tracks a block writes the other members before the state, and who reads them reads the state first. A
/// state that says that a group holds the block is changed by the group's own thread, or with its lock held.
struct tracked_block {
  explicit tracked_block(std::uintptr_t where) noexcept : address{where} {}

  [[nodiscard]] block_state load() const noexcept {
    return block_state{state.load(std::memory_order_acquire)};
  }
  void store(block_state now) noexcept { state.store(now.word(), std::memory_order_release); }
  static constexpr std::size_t given_back = ~std::size_t{0};
  [[nodiscard]] void* data() const noexcept { return reinterpret_cast<void*>(address); }

  std::uintptr_t const address;
  std::atomic<std::uint64_t> state{0};
  std::atomic<std::size_t> bytes{
      0};  // at level 2 `given_back` where that is known and no life has begun since
  std::atomic<block_group*> holder{nullptr};  // of a held block; always null or a group that is there
  std::atomic<std::size_t> position{0};  // in the holder's log; of a reclaimed block, the epoch's depth, or 0
  std::atomic<char const*> ended_by{nullptr};  // of a reclaimed block: the epoch's or owner's name
};

}  // namespace tidemark::detail
