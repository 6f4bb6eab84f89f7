// SPDX-License-Identifier: Apache-2.0
#include <tidemark/detail/depot.hpp>

namespace tidemark::detail {
namespace {

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

}  // namespace

void depot::put(std::size_t index, block_chain chain) noexcept {
  if (chain.blocks == 0) return;
  room& into = rooms_[index];
  const std::scoped_lock lock{into.mutex};
  const opened first{chain.first};
  first->next_chain = into.newest;
  first->chain_blocks = chain.blocks;
  into.newest = chain.first;
  into.blocks.store(into.blocks.load(std::memory_order_relaxed) + chain.blocks, std::memory_order_relaxed);
}

void depot::put_in_pieces(std::size_t index, block_chain chain, std::size_t piece_blocks) noexcept {
  while (chain.blocks > piece_blocks) {
    free_block* last = chain.first;
    for (std::size_t i = 1; i < piece_blocks; ++i) last = next_of(last);
    free_block* const rest = next_of(last);
    link(last, nullptr);
    put(index, {chain.first, piece_blocks});
    chain = {rest, chain.blocks - piece_blocks};
  }
  put(index, chain);
}

block_chain depot::pop(room& from) noexcept {
  if (from.newest == nullptr) return {};
  const opened first{from.newest};
  const block_chain chain{from.newest, first->chain_blocks};
  from.newest = first->next_chain;
  from.blocks.store(from.blocks.load(std::memory_order_relaxed) - chain.blocks, std::memory_order_relaxed);
  return chain;
}

block_chain depot::take(std::size_t index) noexcept {
  room& from = rooms_[index];
  if (from.blocks.load(std::memory_order_relaxed) == 0) return {};  // mostly so at a miss: without the lock
  const std::scoped_lock lock{from.mutex};
  return pop(from);
}

block_chain depot::take_all(std::size_t index) noexcept {
  room& from = rooms_[index];
  const std::scoped_lock lock{from.mutex};
  block_chain all;
  for (block_chain chain = pop(from); chain.blocks > 0; chain = pop(from)) {
    free_block* last = chain.first;
    while (free_block* next = next_of(last)) last = next;
    link(last, all.first);
    all = {chain.first, all.blocks + chain.blocks};
  }
  return all;
}

}  // namespace tidemark::detail
