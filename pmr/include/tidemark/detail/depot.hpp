// SPDX-License-Identifier: Apache-2.0
/// @file
/// `depot`: lists of free blocks that threads leave for each other. Owns no memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>

#include <tidemark/detail/block_cache.hpp>
#include <tidemark/detail/size_classes.hpp>

namespace tidemark::detail {

/// Chains of free blocks by size class, as in Bonwick and Adams' magazines ("Magazines and Vmem", 2001): whole chains come
/// and go, so that a lock is held for a few instructions whatever the length. A lock for each class. Thread-safe.
///
/// Invariant: `blocks(i)` is the sum of the lengths of the chains of class `i`.
class depot {
 public:
  /// Leaves a chain. O(1).
  void put(std::size_t index, block_chain chain) noexcept;
  /// Takes the chain that was left last; an empty one if there is none. O(1).
  [[nodiscard]] block_chain take(std::size_t index) noexcept;
  /// Leaves a chain in pieces of at most `piece_blocks`. O(blocks).
  void put_in_pieces(std::size_t index, block_chain chain, std::size_t piece_blocks) noexcept;
  /// Takes all blocks of a class as one chain. O(blocks).
  [[nodiscard]] block_chain take_all(std::size_t index) noexcept;

  [[nodiscard]] std::size_t blocks(std::size_t index) const noexcept {
    return rooms_[index].blocks.load(std::memory_order_relaxed);
  }

 private:
  struct alignas(64) room {  // a cache line each, so that threads that use other classes do not meet
    std::mutex mutex;
    free_block* newest = nullptr;  // first block of the chain that was left last
    std::atomic<std::size_t> blocks{0};
  };
  [[nodiscard]] static block_chain pop(room& from) noexcept;

  std::array<room, size_classes::count_max> rooms_;
};

}  // namespace tidemark::detail
