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

template <class List>
kept_block* kept_blocks::take_pending(List& among, bool also_not_done) noexcept {
  kept_block& first = *among.front();
  if (!also_not_done && !first.fence.done()) {
    among.rotate();
    return nullptr;
  }
  pending_.remove(first);
  first.of_size->pending.remove(first);
  pending_bytes_ -= first.bytes;
  return &first;
}

kept_block* kept_blocks::take(std::size_t bytes, std::size_t align) noexcept {
  const auto found = sizes_.find({bytes, align});
  if (found == sizes_.end()) return nullptr;
  blocks_of_size& of_size = found->second;
  if (kept_block* const next = settings_.oldest_first ? of_size.ready.front() : of_size.ready.back()) {
    remove_ready(*next);
    return next;
  }
  for (std::size_t looks = std::min(max_looks, of_size.pending.size()); looks > 0; --looks) {
    if (kept_block* const done = take_pending(of_size.pending)) return done;
  }
  return nullptr;
}

bool kept_blocks::keep(void* block, std::size_t bytes, std::size_t align, reuse_fence& fence,
                       kept_chain& leaving) noexcept {
  blocks_of_size* of_size = nullptr;
  try {
    of_size = &size_entry({bytes, align});
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
    pending_.push_back(record);
    of_size->pending.push_back(record);
    pending_bytes_ += bytes;
  }
  return true;
}

void kept_blocks::look(std::span<reuse_fence> fences, kept_chain& leaving) noexcept {
  for (reuse_fence& fence : fences.first(std::min(fences.size(), pending_.size()))) {
    if (kept_block* const done = take_pending(pending_)) {
      fence = std::move(done->fence);
      add_ready(*done, leaving);
    }
  }
}

void kept_blocks::take_out(bool also_not_done, kept_chain& leaving) noexcept {
  while (!ready_.empty()) evict(*ready_.front(), leaving);
  for (std::size_t left = pending_.size(); left > 0; --left) {
    if (kept_block* const taken = take_pending(pending_, also_not_done)) leaving.push_back(*taken);
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
  for (kept_block const* block = pending_.front(); block != nullptr; block = kept_chain::after(*block)) {
    if (block->fence.empty()) return "a pending block has a fence";
    pending_bytes += block->bytes;
  }
  std::size_t ready = 0, pending = 0, indexed = 0;
  for (auto const& [size, of_size] : sizes_) {
    using list_of_size = kept_list<&kept_block::in_size>;
    for (list_of_size const* list : {&of_size.ready, &of_size.pending}) {
      for (kept_block const* block = list->front(); block != nullptr; block = list_of_size::after(*block)) {
        if (kept_size{block->bytes, block->align} != size || block->of_size != &of_size)
          return "the lists of a size have blocks of that size and alignment";
      }
    }
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
