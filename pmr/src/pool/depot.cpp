// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/detail/depot.hpp>

#include <tidemark/pool/detail/thread_cache.hpp>

namespace tidemark::detail {

void depot::push_all(std::size_t index, block_chain chain) noexcept {
  const std::size_t max_blocks = cache_share{share_bytes_}.chain_bytes() / classes_.bytes(index);
  while (chain.first != nullptr) push_chain(index, cut_front(chain.first, max_blocks));
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
