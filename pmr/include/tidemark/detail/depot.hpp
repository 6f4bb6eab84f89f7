// SPDX-License-Identifier: Apache-2.0
/// @file
/// `depot`: lists of free blocks that threads leave for each other. Owns no memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>

#include <tidemark/detail/block_cache.hpp>
#include <tidemark/detail/chain_stack.hpp>
#include <tidemark/detail/size_classes.hpp>

namespace tidemark::detail {

/// A `chain_stack` for each size class, each behind a lock of its own, which is held for a few instructions
/// only. Thread-safe.
class depot {
 public:
  /// Leaves a chain. O(1).
  void put(std::size_t index, block_chain chain) noexcept {
    room& into = rooms_[index];
    const std::scoped_lock lock{into.mutex};
    into.chains.push(chain);
    into.blocks.store(into.chains.blocks(), std::memory_order_relaxed);
  }
  /// Takes the chain that was left last; an empty one if there is none. O(1).
  [[nodiscard]] block_chain take(std::size_t index) noexcept {
    if (blocks(index) == 0) return {};  // mostly so at a miss: without the lock
    return take(rooms_[index], &chain_stack::pop);
  }
  /// Takes all blocks of a class as one chain. O(blocks).
  [[nodiscard]] block_chain take_all(std::size_t index) noexcept {
    return take(rooms_[index], &chain_stack::pop_all);
  }
  /// Leaves a chain in pieces of at most `piece_blocks`. O(blocks).
  void put_in_pieces(std::size_t index, block_chain chain, std::size_t piece_blocks) noexcept;

  /// Blocks of a class in it.
  [[nodiscard]] std::size_t blocks(std::size_t index) const noexcept {
    return rooms_[index].blocks.load(std::memory_order_relaxed);
  }

 private:
  struct alignas(64) room {  // a cache line each, so that threads that use other classes do not meet
    std::mutex mutex;
    chain_stack chains;
    std::atomic<std::size_t> blocks{0};  // chains.blocks(), to be read without the lock
  };
  [[nodiscard]] static block_chain take(room& from, block_chain (chain_stack::*how)() noexcept) noexcept {
    const std::scoped_lock lock{from.mutex};
    const block_chain taken = (from.chains.*how)();
    from.blocks.store(from.chains.blocks(), std::memory_order_relaxed);
    return taken;
  }

  std::array<room, size_classes::count_max> rooms_;
};

}  // namespace tidemark::detail
