// SPDX-License-Identifier: Apache-2.0
#include <tidemark/detail/kept_blocks.hpp>

#include <algorithm>
#include <utility>

namespace tidemark::detail {

kept_blocks::kept_blocks(reuse_cache_options const& options)
    : cached_bytes_max_{options.cached_bytes_max},
      bucket_blocks_max_{options.bucket_blocks_max},
      oldest_first_{options.reuse == reuse_order::oldest},
      largest_first_{options.eviction == eviction_order::largest},
      records_{options.bookkeeping},
      buckets_{options.bookkeeping},
      index_{options.bookkeeping} {}

// Twice as many as were left are let in before the next sweep, so that sweeps cost O(1) for each new size.
kept_bucket& kept_blocks::bucket_of(kept_size wanted) {
  const auto found = buckets_.find(wanted);
  if (found != buckets_.end()) return found->second;
  if (buckets_.size() >= buckets_max_) {
    std::erase_if(buckets_, [this](buckets::value_type const& entry) {
      if (!entry.second.empty()) return false;
      index_.erase(entry.first);
      return true;
    });
    buckets_max_ = std::max(empty_buckets_max, 2 * buckets_.size());
  }
  const auto made = buckets_.try_emplace(wanted).first;
  if (largest_first_) {
    try {
      index_.emplace(wanted, &made->second);
    } catch (...) {
      buckets_.erase(made);
      throw;
    }
  }
  return made->second;
}

kept_block* kept_blocks::take(std::size_t bytes, std::size_t align) noexcept {
  const auto found = buckets_.find({bytes, align});
  if (found == buckets_.end()) return nullptr;
  kept_bucket& bucket = found->second;
  if (kept_block* const next = oldest_first_ ? bucket.ready.front() : bucket.ready.back()) {
    remove_ready(*next);
    return next;
  }
  for (std::size_t looks = std::min(looks_max, bucket.pending.size()); looks > 0; --looks) {
    kept_block& first = *bucket.pending.front();
    if (first.fence.done()) {
      remove_pending(first);
      return &first;
    }
    bucket.pending.rotate();
  }
  return nullptr;
}

bool kept_blocks::keep(void* block, std::size_t bytes, std::size_t align, reuse_fence& fence,
                       kept_chain& leaving) noexcept {
  kept_bucket* bucket = nullptr;
  try {
    bucket = &bucket_of({bytes, align});
    if (spare_.empty()) spare_.push_back(records_.emplace_back());
  } catch (...) {  // whatever the bookkeeping resource throws
    return false;
  }
  kept_block& record = *spare_.front();
  spare_.remove(record);
  record.block = block;
  record.bytes = bytes;
  record.align = align;
  record.bucket = bucket;
  if (fence.empty()) {
    add_ready(record, leaving);
  } else {
    record.fence = std::move(fence);
    pending_.push_back(record);
    bucket->pending.push_back(record);
    pending_bytes_ += bytes;
  }
  return true;
}

void kept_blocks::look(std::span<reuse_fence> fences, kept_chain& leaving) noexcept {
  for (reuse_fence& fence : fences.first(std::min(fences.size(), pending_.size()))) {
    kept_block& first = *pending_.front();
    if (first.fence.done()) {
      fence = std::move(first.fence);
      remove_pending(first);
      add_ready(first, leaving);
    } else {
      pending_.rotate();
    }
  }
}

void kept_blocks::take_out(bool also_not_done, kept_chain& leaving) noexcept {
  while (!ready_.empty()) evict(*ready_.front(), leaving);
  for (std::size_t left = pending_.size(); left > 0; --left) {
    kept_block& first = *pending_.front();
    if (also_not_done || first.fence.done()) {
      remove_pending(first);
      leaving.push_back(first);
    } else {
      pending_.rotate();
    }
  }
}

// A block that alone is more than may be kept goes itself: to drive out all others first would keep nothing.
void kept_blocks::add_ready(kept_block& block, kept_chain& leaving) noexcept {
  if (cached_bytes_max_ != 0 && block.bytes > cached_bytes_max_) {
    leaving.push_back(block);
    return;
  }
  kept_bucket& bucket = *block.bucket;
  if (!bucket.unlisted.empty()) index_.insert(std::move(bucket.unlisted));
  ready_.push_back(block);
  bucket.ready.push_back(block);
  ready_bytes_ += block.bytes;
  if (bucket_blocks_max_ != 0 && bucket.ready.size() > bucket_blocks_max_)
    evict(*bucket.ready.front(), leaving);
  while (cached_bytes_max_ != 0 && ready_bytes_ > cached_bytes_max_) evict(next_to_leave(), leaving);
  peak_ready_bytes_ = std::max(peak_ready_bytes_, ready_bytes_);
}

void kept_blocks::remove_ready(kept_block& block) noexcept {
  ready_.remove(block);
  block.bucket->ready.remove(block);
  ready_bytes_ -= block.bytes;
}

void kept_blocks::remove_pending(kept_block& block) noexcept {
  pending_.remove(block);
  block.bucket->pending.remove(block);
  pending_bytes_ -= block.bytes;
}

void kept_blocks::evict(kept_block& block, kept_chain& leaving) noexcept {
  remove_ready(block);
  leaving.push_back(block);
}

// Buckets that hits have emptied are taken out of the index only here, so that hits need not look there. Each
// pays for this once, when a block of it becomes ready again.
kept_block& kept_blocks::next_to_leave() noexcept {
  if (!largest_first_) return *ready_.front();
  while (index_.begin()->second->ready.empty()) {
    kept_bucket& emptied = *index_.begin()->second;
    emptied.unlisted = index_.extract(index_.begin());
  }
  return *index_.begin()->second->ready.front();
}

char const* kept_blocks::broken_index() const noexcept {
  std::size_t unlisted = 0;
  for (auto const& [size, bucket] : buckets_) {
    unlisted += bucket.unlisted.empty() ? 0 : 1;
    if (!bucket.unlisted.empty() && !bucket.ready.empty())
      return "a bucket with a ready block is in the index";
  }
  for (auto const& [size, bucket] : index_) {
    const auto found = buckets_.find(size);
    if (found == buckets_.end() || &found->second != bucket) return "the index knows the bucket of each size";
  }
  if (unlisted + index_.size() != (largest_first_ ? buckets_.size() : 0))
    return "each bucket is in the index or has its entry";
  return nullptr;
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
  std::size_t ready = 0, pending = 0;
  for (auto const& [size, bucket] : buckets_) {
    using list_of_bucket = kept_list<&kept_block::in_bucket>;
    for (list_of_bucket const* list : {&bucket.ready, &bucket.pending}) {
      for (kept_block const* block = list->front(); block != nullptr; block = list_of_bucket::after(*block)) {
        if (kept_size{block->bytes, block->align} != size || block->bucket != &bucket)
          return "a bucket lists blocks of its size and alignment";
      }
    }
    if (bucket_blocks_max_ != 0 && bucket.ready.size() > bucket_blocks_max_)
      return "blocks of a bucket <= bucket_blocks_max";
    ready += bucket.ready.size();
    pending += bucket.pending.size();
  }
  if (ready_bytes != ready_bytes_) return "bytes_cached == sum over ready blocks";
  if (pending_bytes != pending_bytes_) return "bytes_pending == sum over pending blocks";
  if (ready != ready_.size() || pending != pending_.size()) return "each kept block is in its bucket";
  if (ready + pending + spare_.size() > records_.size()) return "a record is in one list";
  if (cached_bytes_max_ != 0 && ready_bytes_ > cached_bytes_max_) return "bytes_cached <= cached_bytes_max";
  if (ready_bytes_ > peak_ready_bytes_) return "bytes_cached <= peak_cached_bytes";
  return broken_index();
}

}  // namespace tidemark::detail
