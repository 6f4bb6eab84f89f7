// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tracked_block`: what an `epoch_resource` knows of one address. Nothing of it is stored in the block
/// itself. `reclaim_log`: the latest blocks that ended, for messages.
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

/// The epoch or buffer group that reclaimed a block.
struct ending {
  char const* name;
  std::size_t depth;  // 0: a buffer group
};

/// The record of an address that was ever tracked. It stays where it is as long as the table.
///
/// A handle on the block at this address is valid for one generation, which ends when the block is
/// deallocated or reclaimed.
///
/// Writers write the other members before the state, and readers read the state first. A reader of
/// `ended_by` and `position` reads the state again: it is another if these are of a later generation, because
/// whoever reads what a later one released sees that the state had changed before. A state that says that
/// a group holds the block is changed by the group's own thread, or with the group's lock held.
template <class Sync>
struct basic_tracked_block {
  explicit basic_tracked_block(std::uintptr_t where) noexcept : address{where} {}

  [[nodiscard]] block_state load() const noexcept {
    return block_state{state.load(std::memory_order_acquire)};
  }
  void store(block_state now) noexcept { state.store(now.word(), std::memory_order_release); }
  static constexpr std::size_t deallocated = ~std::size_t{0};
  [[nodiscard]] void* data() const noexcept { return reinterpret_cast<void*>(address); }

  /// A generation begins, or goes on in another group. @param at its position in the group's log
  void hold(block_group* group, std::size_t at, std::size_t used_bytes, block_state now) noexcept {
    bytes.store(used_bytes, std::memory_order_relaxed);
    holder.store(group, std::memory_order_relaxed);
    move_to(at);
    store(now);
  }
  /// It gets another position in its group's log.
  void move_to(std::size_t at) noexcept { position.store(at, std::memory_order_release); }
  /// A generation ends because its epoch does.
  void reclaim(ending how, block_state before) noexcept {
    ended_by.store(how.name, std::memory_order_release);
    position.store(how.depth, std::memory_order_release);
    store(before.ended_as(block_status::reclaimed));
  }
  /// What reclaimed that generation; null if it was not, or the address was allocated again. Any thread.
  [[nodiscard]] std::optional<ending> how_reclaimed(std::uint64_t generation) const noexcept {
    const block_state before = load();
    if (before.status() != block_status::reclaimed || before.generation() != generation + 1)
      return std::nullopt;
    const ending how = last_ending();
    return load() == before ? std::optional{how} : std::nullopt;
  }
  /// What reclaimed the block last. @pre something has, or the result is of no use
  [[nodiscard]] ending last_ending() const noexcept {
    return {ended_by.load(std::memory_order_acquire), position.load(std::memory_order_acquire)};
  }
  /// Whether the group holds it in that state; it could have the same state in another one. With the group's
  /// lock held it remains so.
  [[nodiscard]] bool is_held_as(block_group const* group, block_state now) const noexcept {
    return load() == now && holder.load(std::memory_order_relaxed) == group;
  }

  template <class T>
  using atomic = Sync::template atomic<T>;

  std::uintptr_t const address;
  atomic<std::uint64_t> state{0};
  atomic<std::size_t> bytes{0};  // at level 2 `deallocated`, if it is known to be since its last generation
  atomic<block_group*> holder{nullptr};  // of a held block; always null or a group that exists
  atomic<std::size_t> position{0};       // in the holder's log; of a reclaimed block, the epoch's depth, or 0
  atomic<char const*> ended_by{nullptr};  // of a reclaimed block: the name of the epoch or buffer group
};
using tracked_block = basic_tracked_block<std_atomics>;

/// For the messages of the use-after-epoch detector, while it is on. The latest `max_count` only, so that a
/// long run stays bounded. Any thread.
class reclaim_log {
 public:
  static constexpr std::size_t max_count = 65'536;

  /// Records what ended a generation of a block. If there is no memory for it, a message says less. O(1).
  void add(tracked_block const& block, std::uint64_t generation, ending how) noexcept {
    const std::scoped_lock lock{mutex_};
    try {
      records_.emplace_back(&block, generation, how);
    } catch (std::bad_alloc const&) {
      return;
    }
    if (records_.size() > max_count) records_.pop_front();
  }
  /// O(max_count): called for a message only.
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
  std::deque<std::tuple<tracked_block const*, std::uint64_t, ending>> records_;  // the oldest first
};

}  // namespace tidemark::detail
