// SPDX-License-Identifier: Apache-2.0
#include "cached_blocks.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tidemark::detail {

// A size keeps its entry while the size is empty, so that a repeating step allocates nothing. The limit
// doubles with the number of sizes in use, which makes erasing O(1) for each new size.
blocks_of_size& cached_blocks::size_entry(cached_size size) {
  constexpr std::size_t min_sizes = 4096;
  if (const auto found = sizes_.find(size); found != sizes_.end()) return found->second;
  if (sizes_.size() >= std::max(max_sizes_, min_sizes)) {
    std::erase_if(sizes_, [](auto const& entry) { return entry.second.empty(); });
    max_sizes_ = 2 * sizes_.size();
  }
  return sizes_.try_emplace(size, new_list()).first->second;
}

cached_blocks::pending_queue& cached_blocks::queue_of(void const* order) {
  pending_queue* unused = nullptr;
  for (pending_queue& queue : queues_) {
    if (queue.order == order) return queue;
    if (queue.blocks.empty() && queue.queried == 0) unused = &queue;
  }
  if (unused == nullptr) return queues_.emplace_back(pending_queue{.order = order, .blocks = new_list()});
  unused->order = order;
  return *unused;
}

void* cached_blocks::pop_ready(cached_size wanted) noexcept {
  const auto found = sizes_.find(wanted);
  if (found == sizes_.end() || found->second.ready.empty()) return nullptr;
  void* const block = found->second.ready.front().block;
  evict(found->second, free_records_);
  return block;
}

bool cached_blocks::add(void* block, cached_size size, reuse_fence& fence, void const* order,
                        cached_list& evicted) noexcept {
  cached_list added = new_list();
  blocks_of_size* of_size = nullptr;
  pending_queue* queue = nullptr;
  try {
    of_size = &size_entry(size);
    if (!fence.empty()) queue = &queue_of(order);
    if (free_records_.empty()) free_records_.emplace_back();
  } catch (...) {  // any exception of the bookkeeping resource
    return false;
  }
  added.splice(added.end(), free_records_, free_records_.begin());
  cached_block& record = added.front();
  record.block = block;
  record.size = size;
  record.fence = std::move(fence);
  record.of_size = of_size;
  if (queue == nullptr) {
    add_ready(added, evicted);
  } else {
    count_pending(record);
    queue->blocks.splice(queue->blocks.end(), added);
  }
  return true;
}

void cached_blocks::count_pending(cached_block const& block) noexcept {
  ++block.of_size->pending;
  ++pending_blocks_;
  counts_.pending_bytes += block.size.bytes;
}

void cached_blocks::uncount_pending(cached_block const& block) noexcept {
  --block.of_size->pending;
  --pending_blocks_;
  counts_.pending_bytes -= block.size.bytes;
}

// Queries the fence at the front of `queue`. If the fence is done, destroys it, moves the record to
// `queried`, and returns true.
bool cached_blocks::query_front(pending_queue& queue, cached_list& queried, cache_lock& lock) noexcept {
  queried.splice(queried.end(), queue.blocks, queue.blocks.begin());
  reuse_fence& fence = queried.front().fence;
  ++queue.queried;
  lock.unlock();
  const bool done = fence.done();
  if (done) fence.reset();
  lock.lock();
  --queue.queried;
  if (!done) queue.blocks.splice(queue.order != nullptr ? queue.blocks.begin() : queue.blocks.end(), queried);
  return done;
}

void* cached_blocks::poll(std::size_t max_unfinished, cached_size const* wanted, cached_list& evicted,
                          cache_lock& lock) noexcept {
  cached_list queried = new_list();
  for (std::size_t queues = queues_.size(); queues > 0 && max_unfinished > 0; --queues) {
    const auto queue = queues_.begin();
    const bool is_ordered = queue->order != nullptr;
    std::size_t left = queue->blocks.size();  // other threads may add blocks without end
    for (; left > 0 && max_unfinished > 0 && !queue->blocks.empty(); --left) {
      if (!query_front(*queue, queried, lock)) {
        --max_unfinished;
        if (is_ordered) break;
        continue;
      }
      cached_block const& done = queried.front();
      uncount_pending(done);
      if (wanted != nullptr && done.size == *wanted) {
        free_records_.splice(free_records_.end(), queried);
        return free_records_.back().block;
      }
      add_ready(queried, evicted);
    }
    queues_.splice(queues_.end(), queues_, queue);
  }
  return nullptr;
}

void cached_blocks::remove_all_ready(cached_list& evicted) noexcept {
  for (auto& [size, of_size] : sizes_) evicted.splice(evicted.end(), of_size.ready);
  counts_.cached_bytes = 0;
}

void cached_blocks::remove_all_pending(cached_list& evicted) noexcept {
  for (pending_queue& queue : queues_) {
    for (cached_block const& block : queue.blocks) uncount_pending(block);
    evicted.splice(evicted.end(), queue.blocks);
  }
}

void cached_blocks::recount_pending() noexcept {
  for (auto& [size, of_size] : sizes_) of_size.pending = 0;
  counts_.pending_bytes = pending_blocks_ = 0;
  for (pending_queue& queue : queues_) {
    queue.queried = 0;
    for (cached_block const& block : queue.blocks) count_pending(block);
  }
}

// A block above the limit leaves alone: evicting all other blocks first would keep nothing.
void cached_blocks::add_ready(cached_list& block, cached_list& evicted) noexcept {
  const std::size_t bytes = block.front().size.bytes;
  if (options_.max_cached_bytes != 0 && bytes > options_.max_cached_bytes)
    return evicted.splice(evicted.end(), block);
  blocks_of_size& of_size = *block.front().of_size;
  of_size.ready.splice(of_size.ready.end(), block);
  counts_.cached_bytes += bytes;
  if (options_.max_blocks_per_size != 0 && of_size.ready.size() > options_.max_blocks_per_size)
    evict(of_size, evicted);
  while (options_.max_cached_bytes != 0 && counts_.cached_bytes > options_.max_cached_bytes)
    evict(largest_ready(), evicted);
  counts_.peak_cached_bytes = std::max(counts_.peak_cached_bytes, counts_.cached_bytes);
}

void cached_blocks::evict(blocks_of_size& from, cached_list& evicted) noexcept {
  counts_.cached_bytes -= from.ready.front().size.bytes;
  evicted.splice(evicted.end(), from.ready, from.ready.begin());
}

// Erases empty sizes above the largest ready size, so that the next search does not visit them. @pre a block
// is ready
blocks_of_size& cached_blocks::largest_ready() noexcept {
  auto largest = std::prev(sizes_.end());
  while (largest->second.ready.empty())
    largest = std::prev(largest->second.pending == 0 ? sizes_.erase(largest) : largest);
  return largest->second;
}

char const* cached_blocks::broken_invariant() const noexcept {
  std::size_t ready_bytes = 0, pending_bytes = 0, pending_blocks = 0, pending_of_sizes = 0;
  bool sizes_fit = true, fences_fit = true, counts_fit = true;
  for (auto const& [size, of_size] : sizes_) {
    for (cached_block const& block : of_size.ready) {
      sizes_fit = sizes_fit && block.size == size && block.of_size == &of_size;
      fences_fit = fences_fit && block.fence.empty();
      ready_bytes += block.size.bytes;
    }
    counts_fit = counts_fit &&
                 (options_.max_blocks_per_size == 0 || of_size.ready.size() <= options_.max_blocks_per_size);
    pending_of_sizes += of_size.pending;
  }
  for (pending_queue const& queue : queues_) {
    for (cached_block const& block : queue.blocks) {
      const auto found = sizes_.find(block.size);
      sizes_fit = sizes_fit && found != sizes_.end() && block.of_size == &found->second;
      fences_fit = fences_fit && !block.fence.empty();
      pending_bytes += block.size.bytes;
    }
    pending_blocks += queue.blocks.size();
  }
  if (!sizes_fit) return "a block belongs to the entry of its size and alignment";
  if (!fences_fit) return "a ready block has no fence, and a pending block has a fence";
  if (!counts_fit) return "blocks of a size <= max_blocks_per_size";
  if (ready_bytes != counts_.cached_bytes) return "cached_bytes == sum over ready blocks";
  if (pending_bytes != counts_.pending_bytes) return "pending_bytes == sum over pending blocks";
  if (pending_blocks != pending_blocks_ || pending_of_sizes != pending_blocks_)
    return "pending blocks == sum over sizes == sum over queues";
  if (options_.max_cached_bytes != 0 && counts_.cached_bytes > options_.max_cached_bytes)
    return "cached_bytes <= max_cached_bytes";
  if (counts_.cached_bytes > counts_.peak_cached_bytes) return "cached_bytes <= peak_cached_bytes";
  return nullptr;
}

}  // namespace tidemark::detail
