// SPDX-License-Identifier: Apache-2.0
/// @file
/// `chain_stack`: whole lists of free blocks of one size, the one that was left last on top. Owns no memory.
#pragma once

#include <cstddef>
#include <utility>

#include <tidemark/detail/block_cache.hpp>
#include <tidemark/detail/sanitizers.hpp>

namespace tidemark::detail {

/// Chains are linked through their first blocks, so that one comes and goes in O(1) whatever its length: the
/// magazines of Bonwick and Adams ("Magazines and Vmem", 2001), without the magazines.
///
/// Invariant: `blocks()` is the sum of the lengths of the chains. One thread at a time.
class chain_stack {
 public:
  /// All blocks in it.
  [[nodiscard]] std::size_t blocks() const noexcept { return blocks_; }

  /// Puts a chain on top. O(1).
  void push(block_chain chain) noexcept {
    if (chain.blocks == 0) return;
    const opened first{chain.first};
    first->next_chain = newest_;
    first->chain_blocks = chain.blocks;
    newest_ = chain.first;
    blocks_ += chain.blocks;
  }

  /// Takes the chain on top; an empty one if there is none. O(1).
  [[nodiscard]] block_chain pop() noexcept {
    if (newest_ == nullptr) return {};
    const opened first{newest_};
    const block_chain chain{newest_, first->chain_blocks};
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

  /// Calls `visit(chain)` for each chain. O(chains), besides the visits.
  template <class Visit>
  void for_each(Visit visit) const {
    for (free_block* first = newest_; first != nullptr;) {
      const opened block{first};
      const block_chain chain{first, block->chain_blocks};
      first = block->next_chain;
      visit(chain);
    }
  }

 private:
  // The first block of a chain may be touched while it is looked at.
  class opened {
   public:
    explicit opened(free_block* block) noexcept : block_{block} {
      hand_out(reinterpret_cast<std::uintptr_t>(block), sizeof *block);
      mark_defined(reinterpret_cast<std::uintptr_t>(block), sizeof *block);
    }
    opened(opened const&) = delete;
    opened& operator=(opened const&) = delete;
    ~opened() { withhold(reinterpret_cast<std::uintptr_t>(block_), sizeof *block_); }
    free_block* operator->() const noexcept { return block_; }

   private:
    free_block* block_;
  };

  free_block* newest_ = nullptr;  // first block of the chain on top
  std::size_t blocks_ = 0;
};

}  // namespace tidemark::detail
