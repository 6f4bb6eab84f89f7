// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tracked_block`: the record of one address in an `epoch_resource`. The block itself stores no metadata.
/// `reclaim_log`: the latest reclaimed blocks, for messages.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <tuple>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/std_atomics.hpp>

namespace tidemark::detail {

class block_group;

enum class block_status : std::uint8_t {
  untracked,  ///< in no group: never tracked, deallocated, or kept by an outermost epoch
  reclaimed,  ///< its group has ended; a deallocation is late until the address is allocated again
  tracked,    ///< reclaimed when its group ends
  kept,       ///< tracked, and promoted when its group ends
};

/// Status, alignment and generation of the block at an address, and membership of the address in the
/// resource's filter. One word holds all four, so they are read and written atomically.
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
  /// True if the block is in a group.
  [[nodiscard]] constexpr bool is_held() const noexcept { return status() >= block_status::tracked; }

  /// True if the address is in the filter.
  [[nodiscard]] constexpr bool is_in_filter() const noexcept { return (word_ & filter_bit) != 0; }
  /// Returns the same state, marked as in the filter.
  [[nodiscard]] constexpr block_state in_filter() const noexcept { return block_state{word_ | filter_bit}; }
  [[nodiscard]] constexpr block_state not_in_filter() const noexcept {
    return block_state{word_ & ~filter_bit};
  }

  /// Returns the same generation with another status.
  [[nodiscard]] constexpr block_state as(block_status status) const noexcept {
    return block_state{(word_ & ~status_mask) | static_cast<std::uint64_t>(status)};
  }
  /// Returns the next generation, because the block was deallocated or reclaimed.
  [[nodiscard]] constexpr block_state ended_as(block_status status) const noexcept {
    return block_state{as(status).word_ + (std::uint64_t{1} << generation_shift)};
  }

  friend constexpr bool operator==(block_state, block_state) noexcept = default;

 private:
  static constexpr unsigned align_shift = 2, generation_shift = 9;
  static constexpr std::uint64_t status_mask = 3, align_mask = 63, filter_bit = 1U << 8;

  std::uint64_t word_ = 0;
};

/// The epoch or buffer group that reclaimed a block.
struct ending {
  char const* name;
  std::size_t depth;  // 0: a buffer group
};

/// The record of an address that was ever tracked. The record never moves and lives as long as the table. A
/// handle on the block is valid for one generation, which ends when the block is deallocated or reclaimed.
///
/// Writers write the other members before the state; readers read the state first. A reader of `ended_by` and
/// `position` reads the state again afterwards. The state differs if these members belong to a later
/// generation, because their release stores follow the change of the state. Only the group's own thread, or a
/// thread with the group's lock, changes the state of a held block.
template <class Sync>
struct basic_tracked_block {
  explicit basic_tracked_block(std::uintptr_t where) noexcept : address{where} {}

  [[nodiscard]] block_state load() const noexcept {
    return block_state{state.load(std::memory_order_acquire)};
  }
  void store(block_state now) noexcept { state.store(now.word(), std::memory_order_release); }
  [[nodiscard]] void* data() const noexcept { return reinterpret_cast<void*>(address); }

  /// Begins a generation, or continues it in another group. @param at position in the group's log
  void set_owner(block_group* group, std::size_t at, std::size_t used_bytes, block_state now) noexcept {
    bytes.store(used_bytes, std::memory_order_relaxed);
    holder.store(group, std::memory_order_relaxed);
    move_to(at);
    store(now);
  }
  /// Sets the position in the group's log.
  void move_to(std::size_t at) noexcept { position.store(at, std::memory_order_release); }
  /// Ends a generation, because its epoch ends.
  void reclaim(ending how, block_state before) noexcept {
    ended_by.store(how.name, std::memory_order_release);
    position.store(how.depth, std::memory_order_release);
    store(before.ended_as(block_status::reclaimed));
  }
  /// Returns the epoch or group that reclaimed a generation; empty if the generation was not reclaimed, or
  /// the address was allocated again. Any thread.
  [[nodiscard]] std::optional<ending> how_reclaimed(std::uint64_t generation) const noexcept {
    const block_state before = load();
    if (before.status() != block_status::reclaimed || before.generation() != generation + 1)
      return std::nullopt;
    const ending how = last_ending();
    return load() == before ? std::optional{how} : std::nullopt;
  }
  /// Returns the epoch or group that reclaimed the block last. @pre the block was ever reclaimed
  [[nodiscard]] ending last_ending() const noexcept {
    return {ended_by.load(std::memory_order_acquire), position.load(std::memory_order_acquire)};
  }
  /// True if `group` holds the block in state `now`. Another group may hold the block in the same state. The
  /// result stays true while the group's lock is held.
  [[nodiscard]] bool is_held_as(block_group const* group, block_state now) const noexcept {
    return load() == now && holder.load(std::memory_order_relaxed) == group;
  }

  template <class T>
  using atomic = Sync::template atomic<T>;

  std::uintptr_t const address;
  atomic<std::uint64_t> state{0};
  atomic<std::size_t> bytes{0};           // of a held block
  atomic<block_group*> holder{nullptr};   // of a held block; null or a group that exists
  atomic<std::size_t> position{0};        // in the holder's log; if reclaimed, the epoch's depth or 0
  atomic<char const*> ended_by{nullptr};  // name of the epoch or buffer group that reclaimed the block
};
using tracked_block = basic_tracked_block<std_atomics>;

/// The latest `max_count` reclaimed blocks, for messages of the use-after-epoch detector. Filled while the
/// detector is on. Thread-safety: any thread.
class reclaim_log {
 public:
  static constexpr std::size_t max_count = 65'536;

  /// Records the end of a generation. Drops the record if memory is short. O(1).
  void add(tracked_block const& block, std::uint64_t generation, ending how) noexcept {
    const std::scoped_lock lock{mutex_};
    try {
      records_.emplace_back(&block, generation, how);
    } catch (std::bad_alloc const&) {
      return;
    }
    if (records_.size() > max_count) records_.pop_front();
  }
  /// Returns the end of a generation, if known. O(max_count); called only for messages.
  [[nodiscard]] std::optional<ending> find(tracked_block const& block,
                                           std::uint64_t generation) const noexcept {
    const std::scoped_lock lock{mutex_};
    for (auto const& [of, its_generation, how] : records_) {
      if (of == &block && its_generation == generation) return how;
    }
    return std::nullopt;
  }

 private:
  mutable fork_safe<> mutex_;
  std::deque<std::tuple<tracked_block const*, std::uint64_t, ending>> records_;  // oldest first
};

}  // namespace tidemark::detail
