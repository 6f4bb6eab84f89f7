// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/detail/kept_blocks.hpp>

#include <algorithm>
#include <utility>

namespace tidemark::detail {

// Twice as many as were left are let in before the next sweep, so that sweeps cost O(1) for each new size.
blocks_of_size& kept_blocks::size_entry(kept_size wanted) {
  const auto found = sizes_.find(wanted);
  if (found != sizes_.end()) return found->second;
  if (sizes_.size() >= max_sizes_) {
    std::erase_if(index_, [](auto const& entry) { return entry.second->empty(); });
    std::ranges::make_heap(index_);
    std::erase_if(sizes_, [](auto const& entry) { return entry.second.empty(); });
    max_sizes_ = std::max(max_empty_sizes, 2 * sizes_.size());
  }
  if (settings_.largest_first && index_.capacity() <= sizes_.size()) index_.reserve(2 * sizes_.size() + 1);
  return sizes_[wanted];
}

kept_block* kept_blocks::take_ready(std::size_t bytes, std::size_t align) noexcept {
  const auto found = sizes_.find({bytes, align});
  if (found == sizes_.end()) return nullptr;
  auto& ready = found->second.ready;
  kept_block* const next = settings_.oldest_first ? ready.front() : ready.back();
  if (next != nullptr) remove_ready(*next);
  return next;
}

// The next block of a list whose fence is done, out of that list and not of the other one; null if `left`
// allows no more queries.
template <kept_block::links kept_block::* Links>
kept_block* kept_blocks::take_done(pending_blocks<Links>& from, pending_looks& left,
                                   held_lock& lock) noexcept {
  while (kept_block* const asked = from.begin_query(left)) {
    lock.unlock();
    const bool is_done = asked->fence.done();
    lock.lock();
    from.end_query(*asked, is_done, left);
    if (is_done) return asked;
  }
  return nullptr;
}

kept_block* kept_blocks::take(std::size_t bytes, std::size_t align, held_lock& lock) noexcept {
  if (kept_block* const ready = take_ready(bytes, align)) return ready;
  const auto found = sizes_.find({bytes, align});
  if (found == sizes_.end()) return nullptr;
  auto& pending = found->second.pending;
  pending_looks looks = pending.looks(max_looks);
  kept_block* const done = take_done(pending, looks, lock);
  if (done == nullptr) return nullptr;
  pending_.remove(*done);
  pending_bytes_ -= done->bytes;
  return done;
}

bool kept_blocks::has_pending(std::size_t bytes, std::size_t align) const noexcept {
  const auto found = sizes_.find({bytes, align});
  return found != sizes_.end() && !found->second.pending.empty();
}

bool kept_blocks::keep(void* block, std::size_t bytes, std::size_t align, reuse_fence& fence,
                       void const* order, kept_chain& leaving) noexcept {
  blocks_of_size* of_size = nullptr;
  try {
    of_size = &size_entry({bytes, align});
    if (!fence.empty()) {
      of_size->pending.reserve_one();
      pending_.reserve_one();
    }
    if (spare_.empty()) spare_.push_back(records_.emplace_back());
  } catch (...) {  // whatever the bookkeeping resource throws
    return false;
  }
  kept_block& record = *spare_.front();
  spare_.remove(record);
  record.block = block;
  record.bytes = bytes;
  record.align = align;
  record.of_size = of_size;
  if (fence.empty()) {
    add_ready(record, leaving);
  } else {
    record.fence = std::move(fence);
    record.order = order;
    pending_.push_back(record);
    of_size->pending.push_back(record);
    pending_bytes_ += bytes;
  }
  return true;
}

void kept_blocks::look(std::span<reuse_fence> fences, kept_chain& leaving, held_lock& lock) noexcept {
  pending_looks looks = pending_.looks(fences.size());
  for (reuse_fence& fence : fences) {
    kept_block* const done = take_done(pending_, looks, lock);
    if (done == nullptr) return;
    done->of_size->pending.remove(*done);
    pending_bytes_ -= done->bytes;
    fence = std::move(done->fence);
    add_ready(*done, leaving);
  }
}

void kept_blocks::take_out_ready(kept_chain& leaving) noexcept {
  while (!ready_.empty()) evict(*ready_.front(), leaving);
}

void kept_blocks::take_out_pending(kept_chain& leaving) noexcept {
  while (kept_block* const taken = pending_.take_any()) {
    taken->of_size->pending.remove(*taken);
    pending_bytes_ -= taken->bytes;
    leaving.push_back(*taken);
  }
}

void kept_blocks::take_out_done(kept_chain& leaving, held_lock& lock) noexcept {
  pending_looks looks = pending_.looks(pending_.size());
  while (kept_block* const taken = take_done(pending_, looks, lock)) {
    taken->of_size->pending.remove(*taken);
    pending_bytes_ -= taken->bytes;
    leaving.push_back(*taken);
  }
}

// A block that alone is more than may be kept goes itself: to drive out all others first would keep nothing.
void kept_blocks::add_ready(kept_block& block, kept_chain& leaving) noexcept {
  if (settings_.max_cached_bytes != 0 && block.bytes > settings_.max_cached_bytes) {
    leaving.push_back(block);
    return;
  }
  blocks_of_size& of_size = *block.of_size;
  if (settings_.largest_first && !std::exchange(of_size.is_indexed, true)) {
    index_.emplace_back(kept_size{block.bytes, block.align}, &of_size);
    std::ranges::push_heap(index_);
  }
  ready_.push_back(block);
  of_size.ready.push_back(block);
  ready_bytes_ += block.bytes;
  if (settings_.max_blocks_per_size != 0 && of_size.ready.size() > settings_.max_blocks_per_size)
    evict(*of_size.ready.front(), leaving);
  while (settings_.max_cached_bytes != 0 && ready_bytes_ > settings_.max_cached_bytes)
    evict(next_to_leave(), leaving);
  peak_ready_bytes_ = std::max(peak_ready_bytes_, ready_bytes_);
}

void kept_blocks::remove_ready(kept_block& block) noexcept {
  ready_.remove(block);
  block.of_size->ready.remove(block);
  ready_bytes_ -= block.bytes;
}

void kept_blocks::evict(kept_block& block, kept_chain& leaving) noexcept {
  remove_ready(block);
  leaving.push_back(block);
}

// Sizes that hits have emptied are taken out of the index only here, so that hits need not look there. Each
// pays for this once, when a block of it becomes ready again.
kept_block& kept_blocks::next_to_leave() noexcept {
  if (!settings_.largest_first) return *ready_.front();
  while (index_.front().second->ready.empty()) {
    index_.front().second->is_indexed = false;
    std::ranges::pop_heap(index_);
    index_.pop_back();
  }
  return *index_.front().second->ready.front();
}

char const* kept_blocks::broken_invariant() const noexcept {
  std::size_t ready_bytes = 0, pending_bytes = 0;
  for (kept_block const* block = ready_.front(); block != nullptr; block = kept_chain::after(*block)) {
    if (!block->fence.empty()) return "a ready block has no fence";
    ready_bytes += block->bytes;
  }
  bool each_has_a_fence = true;
  pending_.for_each([&](kept_block const& block) {
    each_has_a_fence = each_has_a_fence && !block.fence.empty();
    pending_bytes += block.bytes;
  });
  if (!each_has_a_fence) return "a pending block has a fence";
  if (!pending_.is_valid()) return "a pending block is in the queue of its fence's order";
  std::size_t ready = 0, pending = 0, indexed = 0;
  for (auto const& [size, of_size] : sizes_) {
    bool belongs = true;
    const auto check = [&](kept_block const& block) {
      belongs = belongs && kept_size{block.bytes, block.align} == size && block.of_size == &of_size;
    };
    using list_of_size = kept_list<&kept_block::in_size>;
    for (kept_block const* block = of_size.ready.front(); block != nullptr;
         block = list_of_size::after(*block))
      check(*block);
    of_size.pending.for_each(check);
    if (!belongs) return "the lists of a size have blocks of that size and alignment";
    if (!of_size.pending.is_valid()) return "a pending block is in its size's queue of its fence's order";
    if (settings_.max_blocks_per_size != 0 && of_size.ready.size() > settings_.max_blocks_per_size)
      return "blocks of a size <= max_blocks_per_size";
    if (settings_.largest_first && !of_size.ready.empty() && !of_size.is_indexed)
      return "a size with a ready block is in the index";
    indexed += of_size.is_indexed ? 1 : 0;
    ready += of_size.ready.size();
    pending += of_size.pending.size();
  }
  if (ready_bytes != ready_bytes_) return "cached_bytes == sum over ready blocks";
  if (pending_bytes != pending_bytes_) return "pending_bytes == sum over pending blocks";
  if (ready != ready_.size() || pending != pending_.size())
    return "each kept block is in the list of its size";
  if (ready + pending + spare_.size() > records_.size()) return "a record is in one list";
  if (settings_.max_cached_bytes != 0 && ready_bytes_ > settings_.max_cached_bytes)
    return "cached_bytes <= max_cached_bytes";
  if (ready_bytes_ > peak_ready_bytes_) return "cached_bytes <= peak_cached_bytes";
  for (auto const& [size, of_size] : index_) {
    const auto found = sizes_.find(size);
    if (found == sizes_.end() || &found->second != of_size) return "the index knows the blocks of each size";
  }
  if (indexed != index_.size()) return "a size is in the index once";
  if (!std::ranges::is_heap(index_)) return "the largest size is the first of the index";
  return nullptr;
}

}  // namespace tidemark::detail
