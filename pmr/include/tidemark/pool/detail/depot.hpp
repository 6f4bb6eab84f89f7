// SPDX-License-Identifier: Apache-2.0
/// @file
/// `chain_stack`: a stack of lists of free blocks of one size; `depot_bin`: a `chain_stack` behind a lock;
/// `depot`: bins of all size classes, through which threads exchange blocks. Own no memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <type_traits>

#include <tidemark/core/detail/brief_lock.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/size_classes.hpp>
#include <tidemark/core/detail/std_atomics.hpp>
#include <tidemark/pool/detail/block_cache.hpp>

namespace tidemark::detail {

/// A stack of chains, each linked through the second word of its first block. A chain of any length is pushed
/// and popped in O(1), as the magazines of Bonwick and Adams ("Magazines and Vmem", 2001), but without
/// magazines. The second word of the second block, if there is one, stores the length of the chain.
///
/// A copy has the same chains, and may be emptied with `pop` to read them.
///
/// Invariant: `blocks() == sum of the lengths of the chains`. One thread at a time.
class chain_stack {
 public:
  /// Minimum block size: two words.
  static constexpr std::size_t min_block_bytes = 2 * sizeof(void*);

  /// Number of blocks in all chains.
  [[nodiscard]] std::size_t blocks() const noexcept { return blocks_; }

  /// Pushes a chain. O(1).
  void push(block_chain chain) noexcept {
    if (chain.blocks == 0) return;
    const opened_block first{static_cast<two_words*>(chain.first)};
    first->second = reinterpret_cast<std::uintptr_t>(newest_);
    if (chain.blocks > 1) opened_block{static_cast<two_words*>(first->next)}->second = chain.blocks;
    newest_ = chain.first;
    blocks_ += chain.blocks;
  }

  /// Pops the top chain; empty if there is no chain. O(1).
  [[nodiscard]] block_chain pop() noexcept {
    if (newest_ == nullptr) return {};
    const opened_block first{static_cast<two_words*>(newest_)};
    auto* const second = static_cast<two_words*>(first->next);
    const block_chain chain{newest_, second == nullptr ? 1 : opened_block{second}->second};
    newest_ = reinterpret_cast<free_block*>(first->second);
    blocks_ -= chain.blocks;
    return chain;
  }

 private:
  // Contents of the first two blocks of a chain. `second`: address of the next chain, or length of the chain.
  struct two_words : free_block {
    std::uintptr_t second;
  };
  static_assert(sizeof(two_words) == min_block_bytes);

  free_block* newest_ = nullptr;  // first block of the top chain
  std::size_t blocks_ = 0;
};

/// A `chain_stack` behind a lock, which is held for a few instructions only. The number of blocks is readable
/// without the lock.
///
/// Invariant: `blocks() == chains_.blocks()` while the lock is free. Any thread.
template <class Sync>
class alignas(64) basic_depot_bin {  // one cache line each, so that bins share no cache line
 public:
  /// Adds a chain. O(1).
  void push_chain(block_chain chain) noexcept {
    const std::scoped_lock lock{mutex_};
    chains_.push(chain);
    publish();
  }
  /// Takes the chain that was added last; empty if the bin is empty. O(1). An empty bin takes no lock, so a
  /// chain being added may be missed.
  [[nodiscard]] block_chain pop_chain() noexcept {
    if (blocks() == 0) return {};
    const std::scoped_lock lock{mutex_};
    const block_chain taken = chains_.pop();
    publish();
    return taken;
  }
  /// Number of blocks.
  [[nodiscard]] std::size_t blocks() const noexcept { return blocks_.load(std::memory_order_relaxed); }
  /// The lock, for a fork.
  [[nodiscard]] auto& mutex() noexcept { return mutex_; }

 private:
  void publish() noexcept { blocks_.store(chains_.blocks(), std::memory_order_relaxed); }

  Sync::mutex mutex_;
  chain_stack chains_;
  Sync::template atomic<std::size_t> blocks_{0};  // chains_.blocks()
};

struct depot_sync : std_atomics {
  // ThreadSanitizer aborts if a thread holds very many mutexes at once, as a forking thread does.
  using mutex = std::conditional_t<thread_sanitizer_is_on, brief_lock, std::mutex>;
};
using depot_bin = basic_depot_bin<depot_sync>;

/// A `depot_bin` for each size class, and the count of bytes cached outside the threads' caches. Thread-safe.
class depot : fork_participant {
 public:
  explicit depot(size_classes const& classes) noexcept : classes_{classes} { join(); }
  ~depot() { deregister(); }

  /// Adds a chain. The caller counts its bytes, here and below. O(1).
  void push_chain(std::size_t index, block_chain chain) noexcept { bins_[index].push_chain(chain); }
  /// Takes the chain that was added last; empty if the bin is empty. O(1).
  [[nodiscard]] block_chain pop_chain(std::size_t index) noexcept { return bins_[index].pop_chain(); }
  /// Takes all blocks of a class as one chain. O(blocks).
  [[nodiscard]] block_chain pop_all(std::size_t index) noexcept;
  /// Moves the first blocks of a list into chains that suit a thread's cache. O(blocks).
  void push_front(std::size_t index, block_chain& list, std::size_t blocks) noexcept;
  void push_all(std::size_t index, block_chain all) noexcept { push_front(index, all, all.blocks); }

  /// Number of blocks of a class. `listed_bytes` is the sum of bytes over all classes.
  [[nodiscard]] std::size_t blocks(std::size_t index) const noexcept { return bins_[index].blocks(); }
  [[nodiscard]] std::size_t listed_bytes() const noexcept;

  /// Bytes cached outside the threads' caches: listed here, uncarved, or in free chunks of the heap.
  [[nodiscard]] std::size_t cached_bytes() const noexcept { return cached_bytes_; }
  void add_cached(std::size_t bytes) noexcept { cached_bytes_ += bytes; }
  void subtract_cached(std::size_t bytes) noexcept { cached_bytes_ -= bytes; }

  /// Maximum bytes of one thread's cache.
  [[nodiscard]] std::atomic<std::size_t> const& share_bytes() const noexcept { return share_bytes_; }
  /// @return the previous value
  std::size_t set_share_bytes(std::size_t bytes) noexcept { return share_bytes_.exchange(bytes); }

 private:
  // Takes the locks of all bins, one after the other, while holding the previous locks.
  bool lock_for_fork(fork_clock::time_point deadline) noexcept override;
  void unlock_after_fork(bool is_child) noexcept override;

  size_classes const& classes_;
  std::array<depot_bin, size_classes::max_count> bins_;
  std::atomic<std::size_t> cached_bytes_{0};
  std::atomic<std::size_t> share_bytes_{0};
};

}  // namespace tidemark::detail
