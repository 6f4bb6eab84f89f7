// SPDX-License-Identifier: Apache-2.0
/// @file
/// `chain_stack`: whole lists of free blocks of one size; `depot_bin`: a `chain_stack` behind a lock;
/// `depot`: such lists of all sizes that threads leave for each other. Own no memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <type_traits>

#include <tidemark/core/detail/brief_lock.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/size_classes.hpp>
#include <tidemark/core/detail/std_atomics.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/pool/detail/block_cache.hpp>

namespace tidemark::detail {

/// Chains are linked through the second words of their first blocks, so that one comes and goes in O(1)
/// whatever its length: the magazines of Bonwick and Adams ("Magazines and Vmem", 2001), without the
/// magazines. The second word of the second block, if there is one, says how many there are.
///
/// A copy has the same chains: for a look at them, it may be emptied by `pop`.
///
/// Invariant: `blocks()` is the sum of the lengths of the chains. One thread at a time.
class chain_stack {
 public:
  /// Of each block: two words.
  static constexpr std::size_t min_block_bytes = 2 * sizeof(void*);

  /// All blocks in it.
  [[nodiscard]] std::size_t blocks() const noexcept { return blocks_; }

  /// Puts a chain on top. O(1).
  void push(block_chain chain) noexcept {
    if (chain.blocks == 0) return;
    const opened_block first{static_cast<first_block*>(chain.first)};
    first->next_chain = newest_;
    if (chain.blocks > 1) opened_block{static_cast<second_block*>(first->next)}->chain_blocks = chain.blocks;
    newest_ = chain.first;
    blocks_ += chain.blocks;
  }

  /// Takes the chain on top; an empty one if there is none. O(1).
  [[nodiscard]] block_chain pop() noexcept {
    if (newest_ == nullptr) return {};
    const opened_block first{static_cast<first_block*>(newest_)};
    auto* const second = static_cast<second_block*>(first->next);
    const block_chain chain{newest_, second == nullptr ? 1 : opened_block{second}->chain_blocks};
    newest_ = first->next_chain;
    blocks_ -= chain.blocks;
    return chain;
  }

  /// Takes all blocks as one chain. O(blocks).
  [[nodiscard]] block_chain pop_all() noexcept {
    block_chain all;
    for (block_chain chain = pop(); chain.blocks > 0; chain = pop()) {
      free_block* last = chain.first;
      while (free_block* next = next_of(last)) last = next;
      link(last, all.first);
      all = {chain.first, all.blocks + chain.blocks};
    }
    return all;
  }

 private:
  // What the first two blocks of a chain hold.
  struct first_block : free_block {
    free_block* next_chain;
  };
  struct second_block : free_block {
    std::size_t chain_blocks;
  };
  static_assert(sizeof(first_block) == min_block_bytes && sizeof(second_block) == min_block_bytes);

  free_block* newest_ = nullptr;  // first block of the chain on top
  std::size_t blocks_ = 0;
};

/// A `chain_stack` behind a lock, which is held for a few instructions only, and the number of its blocks,
/// which is read without it.
///
/// Invariant: while the lock is free, the number is that of the blocks. Any thread.
template <class Sync>
class alignas(64) basic_depot_bin {  // a cache line each, so that threads that use other classes do not meet
 public:
  /// Leaves a chain. O(1).
  void put(block_chain chain) noexcept {
    const std::scoped_lock lock{mutex_};
    chains_.push(chain);
    publish();
  }
  /// Takes the chain that was left last; an empty one if there is none. O(1). Where there is none it takes no
  /// lock, so that one that is being left may be missed.
  [[nodiscard]] block_chain take() noexcept {
    if (blocks() == 0) return {};
    return take(&chain_stack::pop);
  }
  /// Takes all blocks as one chain. O(blocks).
  [[nodiscard]] block_chain take_all() noexcept { return take(&chain_stack::pop_all); }
  /// Blocks in it.
  [[nodiscard]] std::size_t blocks() const noexcept { return blocks_.load(std::memory_order_relaxed); }
  /// For a fork.
  [[nodiscard]] auto& mutex() noexcept { return mutex_; }

 private:
  [[nodiscard]] block_chain take(block_chain (chain_stack::*how)() noexcept) noexcept {
    const std::scoped_lock lock{mutex_};
    const block_chain taken = (chains_.*how)();
    publish();
    return taken;
  }
  void publish() noexcept { blocks_.store(chains_.blocks(), std::memory_order_relaxed); }

  Sync::mutex mutex_;
  chain_stack chains_;
  Sync::template atomic<std::size_t> blocks_{0};  // chains_.blocks()
};

struct depot_sync : std_atomics {
  // ThreadSanitizer ends programs in which a thread has very many mutexes at once, as one has that forks.
  using mutex = std::conditional_t<thread_sanitizer_is_on, brief_lock, std::mutex>;
};
using depot_bin = basic_depot_bin<depot_sync>;

/// A `depot_bin` for each size class, and the count of what is cached in no thread's cache. Thread-safe.
class depot : fork_participant {
 public:
  explicit depot(size_classes const& classes) noexcept : classes_{classes} { join(); }
  depot(depot const&) = delete;
  depot& operator=(depot const&) = delete;
  ~depot() { leave(); }

  /// Leaves a chain. Its bytes are the caller's to count, here and below. O(1).
  void put(std::size_t index, block_chain chain) noexcept { bins_[index].put(chain); }
  /// Takes the chain that was left last; an empty one if there is none. O(1).
  [[nodiscard]] block_chain take(std::size_t index) noexcept { return bins_[index].take(); }
  /// Takes all blocks of a class as one chain. O(blocks).
  [[nodiscard]] block_chain take_all(std::size_t index) noexcept { return bins_[index].take_all(); }
  /// Leaves a chain in pieces that suit a thread's cache. O(blocks).
  void put_all(std::size_t index, block_chain chain) noexcept;

  /// Blocks of a class in it, and bytes of all.
  [[nodiscard]] std::size_t blocks(std::size_t index) const noexcept { return bins_[index].blocks(); }
  [[nodiscard]] std::size_t listed_bytes() const noexcept;

  /// Bytes that are cached in no thread's cache: here, uncarved, or free ranges of the heap.
  [[nodiscard]] std::size_t cached_bytes() const noexcept { return cached_bytes_; }
  void add_cached(std::size_t bytes) noexcept { cached_bytes_ += bytes; }
  void subtract_cached(std::size_t bytes) noexcept { cached_bytes_ -= bytes; }

  /// The most that a thread's cache may hold.
  [[nodiscard]] std::atomic<std::size_t> const& share_bytes() const noexcept { return share_bytes_; }
  /// @return what it was.
  std::size_t set_share_bytes(std::size_t bytes) noexcept { return share_bytes_.exchange(bytes); }

 private:
  // The locks of all bins. Waits for each while it holds those before it.
  bool lock_for_fork(fork_clock::time_point deadline) noexcept override;
  void unlock_after_fork(bool is_child) noexcept override;

  size_classes const& classes_;
  std::array<depot_bin, size_classes::max_count> bins_;
  std::atomic<std::size_t> cached_bytes_{0};
  std::atomic<std::size_t> share_bytes_{0};
};

}  // namespace tidemark::detail
