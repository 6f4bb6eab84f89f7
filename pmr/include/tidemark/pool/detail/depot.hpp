// SPDX-License-Identifier: Apache-2.0
/// @file
/// `depot`: lists of free blocks that threads leave for each other. Owns no memory.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <type_traits>

#include <tidemark/core/detail/brief_lock.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/sanitizers.hpp>
#include <tidemark/core/detail/size_classes.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/pool/detail/block_cache.hpp>
#include <tidemark/pool/detail/chain_stack.hpp>

namespace tidemark::detail {

/// A `chain_stack` for each size class, each behind a lock of its own, which is held for a few instructions
/// only; and the count of what is cached in no thread's cache. Thread-safe.
class depot : fork_participant {
 public:
  explicit depot(size_classes const& classes) noexcept : classes_{classes} { join(); }
  ~depot() { leave(); }

  /// Leaves a chain. Its bytes are the caller's to count, here and below. O(1).
  void put(std::size_t index, block_chain chain) noexcept {
    bin& into = bins_[index];
    const std::scoped_lock lock{into.mutex};
    into.chains.push(chain);
    into.blocks.store(into.chains.blocks(), std::memory_order_relaxed);
  }
  /// Takes the chain that was left last; an empty one if there is none. O(1).
  [[nodiscard]] block_chain take(std::size_t index) noexcept {
    if (blocks(index) == 0) return {};  // at most misses: without the lock
    return take(bins_[index], &chain_stack::pop);
  }
  /// Takes all blocks of a class as one chain. O(blocks).
  [[nodiscard]] block_chain take_all(std::size_t index) noexcept {
    return take(bins_[index], &chain_stack::pop_all);
  }
  /// Leaves a chain in pieces of at most `max_chain_bytes()`. O(blocks).
  void put_all(std::size_t index, block_chain chain) noexcept;

  /// Blocks of a class in it, and bytes of all.
  [[nodiscard]] std::size_t blocks(std::size_t index) const noexcept {
    return bins_[index].blocks.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::size_t listed_bytes() const noexcept;

  /// Bytes that are cached in no thread's cache: here, uncarved, or free ranges of the heap.
  [[nodiscard]] std::size_t cached_bytes() const noexcept { return cached_bytes_; }
  void add_cached(std::size_t bytes) noexcept { cached_bytes_ += bytes; }
  void subtract_cached(std::size_t bytes) noexcept { cached_bytes_ -= bytes; }

  /// What a thread's cache may hold.
  [[nodiscard]] std::size_t share_bytes() const noexcept { return share_bytes_; }
  /// @return what it was.
  std::size_t set_share_bytes(std::size_t bytes) noexcept { return share_bytes_.exchange(bytes); }
  /// What a chain should be: little enough to stay in a core's cache on its way from thread to thread.
  [[nodiscard]] std::size_t max_chain_bytes() const noexcept {
    return std::min<std::size_t>(share_bytes_ / 4, 256 * KiB);
  }

 private:
  // ThreadSanitizer ends programs in which a thread has very many mutexes at once, as one has that forks.
  using bin_lock = std::conditional_t<thread_sanitizer_is_on, brief_lock, std::mutex>;
  struct alignas(64) bin {  // a cache line each, so that threads that use other classes do not meet
    bin_lock mutex;
    chain_stack chains;
    std::atomic<std::size_t> blocks{0};  // chains.blocks(), to be read without the lock
  };
  [[nodiscard]] bool lock_for_fork(fork_attempt& attempt) noexcept override;
  void unlock_after_fork(fork_side side) noexcept override;
  [[nodiscard]] static block_chain take(bin& from, block_chain (chain_stack::*how)() noexcept) noexcept {
    const std::scoped_lock lock{from.mutex};
    const block_chain taken = (from.chains.*how)();
    from.blocks.store(from.chains.blocks(), std::memory_order_relaxed);
    return taken;
  }

  size_classes const& classes_;
  std::array<bin, size_classes::max_count> bins_;
  std::atomic<std::size_t> cached_bytes_{0};
  std::atomic<std::size_t> share_bytes_{0};
};

}  // namespace tidemark::detail
