// SPDX-License-Identifier: Apache-2.0
/// @file
/// `chain_stack`: whole lists of free blocks of one size, the one that was left last on top. Owns no memory.
#pragma once

#include <cstddef>

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

}  // namespace tidemark::detail
