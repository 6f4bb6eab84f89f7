// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/detail/depot.hpp>

#include <algorithm>

#include <tidemark/pool/detail/thread_cache.hpp>

namespace tidemark::detail {

void depot::push_front(std::size_t index, block_chain& list, std::size_t blocks) noexcept {
  const std::size_t max_blocks = cache_share{share_bytes_}.chain_bytes() / classes_.bytes(index);
  list.blocks -= blocks;
  while (blocks > 0) {
    const block_chain chain = cut_front(list.first, std::min(blocks, max_blocks));
    push_chain(index, chain);
    blocks -= chain.blocks;
  }
}

block_chain depot::pop_all(std::size_t index) noexcept {
  block_chain all;
  for (block_chain chain = pop_chain(index); chain.blocks > 0; chain = pop_chain(index)) {
    link(last_of(chain.first), all.first);
    all = {chain.first, all.blocks + chain.blocks};
  }
  return all;
}

std::size_t depot::listed_bytes() const noexcept {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < classes_.count(); ++i) sum += blocks(i) * classes_.bytes(i);
  return sum;
}

bool depot::lock_for_fork(fork_clock::time_point deadline) noexcept {
  for (std::size_t i = 0; i < bins_.size(); ++i) {
    if (lock_until(deadline, bins_[i].mutex())) continue;
    while (i-- > 0) bins_[i].mutex().unlock();
    return false;
  }
  return true;
}

void depot::unlock_after_fork(bool /*is_child*/) noexcept {
  for (depot_bin& each : bins_) each.mutex().unlock();
}

}  // namespace tidemark::detail
