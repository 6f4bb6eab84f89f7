// SPDX-License-Identifier: Apache-2.0
/// @file
/// `depot_bin`: the lists of free blocks of one size class that threads leave for each other. Owns no memory.
#pragma once

#include <cstddef>
#include <mutex>
#include <type_traits>

#include <tidemark/core/detail/brief_lock.hpp>
#include <tidemark/core/detail/std_atomics.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/pool/detail/block_cache.hpp>
#include <tidemark/pool/detail/chain_stack.hpp>

namespace tidemark::detail {

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

}  // namespace tidemark::detail
