// SPDX-License-Identifier: Apache-2.0
#include <tidemark/epoch/detail/block_group.hpp>

#include <algorithm>
#include <mutex>
#include <utility>

#include <tidemark/epoch/epoch_resource.hpp>

namespace tidemark::detail {

constinit thread_local block_group* open_groups = nullptr;

void block_group::forget_resource() noexcept {
  if (!may_be_inconsistent_) {
    std::pmr::vector<tracked_block*>{log_.get_allocator()}.swap(log_);
    std::pmr::vector<frame>{frames_.get_allocator()}.swap(frames_);
    slabs_.forget();
  }
  resource_.store(nullptr, std::memory_order_relaxed);
}

std::span<tracked_block*> block_group::end(epoch_summary& summary) noexcept {
  const std::scoped_lock guard{lock_};
  const frame ending = frames_.back();
  const std::size_t depth = frames_.size();
  kept_end_ = ending.first;
  // Local sums stay in registers, because this loop is most of the cost of an epoch.
  epoch_summary sum;
  const std::span<tracked_block*> log{log_};
  for (std::size_t i = ending.first; i < log.size(); ++i) {
    tracked_block* const block = log[i];
    const block_state now = block == nullptr ? block_state{} : block->load();
    if (!now.is_held() || !is_at(*block, i)) {
      log[i] = nullptr;
      continue;
    }
    const std::size_t bytes = block->bytes.load(std::memory_order_relaxed);
    if (now.status() == block_status::tracked) {
      sum.reclaimed += 1;
      sum.reclaimed_bytes += bytes;
      block->reclaim({ending.name, ending.is_buffer_group ? 0 : depth}, now);
      continue;
    }
    sum.promoted += 1;
    sum.promoted_bytes += bytes;
    if (depth == 1) {
      log[i] = nullptr;
      block->store(now.as(block_status::untracked));
    } else {
      log[i] = std::exchange(log[kept_end_], block);
      block->move_to(kept_end_++);
      block->store(now.as(block_status::tracked));
    }
  }
  summary = sum;
  if (slabs_.has_frame()) slabs_.end(depth, ending.name, summary);
  frames_.pop_back();
  slabs_.set_depth(frames_.size());
  reclaimed_.add(summary.reclaimed);
  promoted_.add(summary.promoted);
  held_bytes_.subtract(summary.reclaimed_bytes);
  if (depth == 1) {
    let_go_.add(summary.promoted);
    held_bytes_.subtract(summary.promoted_bytes);
    requests_chunks_ = true;
  }
  return std::span{log_}.subspan(kept_end_);
}

void block_group::remove(tracked_block& block, block_state then) noexcept {
  const std::size_t position = block.position.load(std::memory_order_relaxed);
  const std::size_t bytes = block.bytes.load(std::memory_order_relaxed);
  log_[position] = nullptr;
  while (!log_.empty() && log_.back() == nullptr && log_.size() > frames_.back().first) log_.pop_back();
  (then.generation() != block.load().generation() ? deallocations_ : let_go_).add(1);
  held_bytes_.subtract(bytes);
  block.store(then);
}

bool block_group::remove_from_outside(tracked_block& block, block_state before, block_state then) noexcept {
  const std::scoped_lock guard{lock_};
  if (!block.is_held_as(this, before)) return false;
  (then.generation() != before.generation() ? deallocations_outside_ : let_go_outside_).add(1);
  removed_outside_bytes_.add(block.bytes.load(std::memory_order_relaxed));
  block.store(then);
  return true;
}

bool block_group::keep(tracked_block& block, std::size_t depth) noexcept {
  const std::scoped_lock guard{lock_};
  const block_state now = block.load();
  if (now.status() != block_status::tracked || !holds(block)) return false;
  const std::size_t position = block.position.load(std::memory_order_relaxed);
  if (position < frames_[depth - 1].first || position >= end_of(depth)) return false;
  block.store(now.as(block_status::kept));
  return true;
}

tracked_block* block_group::find_around(std::uintptr_t address, std::size_t depth) const noexcept {
  for (std::size_t i = frames_[depth - 1].first; i < end_of(depth); ++i) {
    tracked_block* const block = log_[i];
    if (block != nullptr && address - block->address < block->bytes.load(std::memory_order_relaxed) &&
        stands_at(*block, i)) {
      return block;
    }
  }
  return nullptr;
}

// ---- small blocks -----------------------------------------------------------------------------------------

void* block_group::allocate_small_in_free_slab(std::size_t index, std::size_t bytes,
                                               std::size_t block_bytes) {
  const std::size_t depth = frames_.size();
  slabs_.reserve_frame(depth);
  {
    const std::scoped_lock guard{lock_};
    // One deallocation for each slab pays for looking at all slabs.
    if (uncollected_ > slabs_.held_slabs()) {
      slabs_.collect();
      uncollected_ = 0;
    }
    if (slabs_.with_room(index) == nullptr && !slabs_.acquire_free_slab(*this, depth, index, block_bytes))
      return nullptr;
  }
  return try_allocate_small(index, bytes);
}

std::size_t block_group::next_chunk_bytes() const noexcept {
  constexpr std::size_t min_slabs = 3, max_slabs = 63;
  if (!requests_chunks_) return 0;
  return (std::clamp(slabs_.held_slabs(), min_slabs, max_slabs) + 1) * epoch_slab::range_bytes;
}

void block_group::add_chunk(byte_range added) noexcept {
  const std::scoped_lock guard{lock_};
  slabs_.add_chunk(added, *this);
}

byte_range block_group::remove_chunk(bool also_used) noexcept {
  const std::scoped_lock guard{lock_};
  if (slabs_.held_slabs() > 0) return {};  // an open epoch needs the chunks
  return slabs_.remove_chunk(also_used);
}

void block_group::retire_slab(epoch_slab& slab) noexcept {
  const std::scoped_lock guard{lock_};
  slabs_.retire_slab(slab);
}

block_group::small_result block_group::deallocate_small_from_outside(epoch_slab& slab, void* block,
                                                                     std::size_t index) noexcept {
  const std::scoped_lock guard{lock_};
  // The slab may have lost its blocks, or changed its group, since the caller read its holder.
  const auto use = slab.use.load(std::memory_order_acquire);
  const bool has_blocks = use == epoch_slab::range_use::held || use == epoch_slab::range_use::kept;
  if (!has_blocks || slab.holder.load(std::memory_order_relaxed) != this) return small_result::late;
  const std::size_t i = slab.block_at(block);
  if (i == epoch_slab::none || slab.class_index != index) return small_result::of_another_class;
  if (!slab.is_live(i)) return small_result::late;
  if (use == epoch_slab::range_use::kept) {
    if (slabs_.deallocate_in_kept_slab(slab, i)) return small_result::chunk_is_free;
  } else {
    slab.deallocate_from_outside(i);
    slabs_.poison_block(slab, i);
    ++uncollected_;
    deallocations_outside_.add(1);
    removed_outside_bytes_.add(slab.block_bytes);
  }
  return small_result::deallocated;
}

bool block_group::keep_small(epoch_slab& slab, std::uintptr_t address, std::size_t depth) noexcept {
  const std::scoped_lock guard{lock_};
  if (slab.use.load(std::memory_order_acquire) != epoch_slab::range_use::held ||
      slab.holder.load(std::memory_order_relaxed) != this || slab.depth != depth) {
    return false;
  }
  const std::size_t i = slab.block_around(address);
  return i != epoch_slab::none && slab.is_live(i) && slab.keep(i);
}

// First closes the gaps in the innermost frame. A long epoch with many short-lived blocks then needs no more
// room than its live blocks.
void block_group::make_room() {
  constexpr std::size_t min_places = 64;
  {
    const std::scoped_lock guard{lock_};  // a block that leaves meanwhile gets its position in another log
    std::size_t end = frames_.back().first;
    for (std::size_t i = end; i < log_.size(); ++i) {
      tracked_block* const block = log_[i];
      if (block == nullptr || !stands_at(*block, i)) continue;
      block->move_to(end);
      log_[end++] = block;
    }
    log_.resize(end);
  }
  // Without the lock: only this thread reads the log, and the bookkeeping resource runs user code.
  if (2 * log_.size() >= log_.capacity()) log_.reserve(std::max(min_places, 2 * log_.capacity()));
}

std::size_t block_group::size() const noexcept {
  epoch_stats stats;
  add_to(stats);
  return stats.used_blocks;
}

void block_group::add_to(epoch_stats& stats) const noexcept {
  // Read in reverse order of the events, so that no difference is negative.
  const std::uint64_t let_go = let_go_.value() + let_go_outside_.value();
  const std::uint64_t deallocations = deallocations_.value() + deallocations_outside_.value();
  const std::uint64_t reclaimed = reclaimed_.value();
  const std::size_t removed_bytes = removed_outside_bytes_.value();
  const std::uint64_t adopted = adopted_.value();
  const std::uint64_t allocations = allocations_.value();
  stats.allocations += allocations;
  stats.adopted += adopted;
  stats.deallocations += deallocations;
  stats.reclaimed += reclaimed;
  stats.promoted += promoted_.value();
  stats.let_go += let_go;
  stats.used_blocks += allocations + adopted - deallocations - reclaimed - let_go;
  stats.used_bytes += held_bytes_.value() - removed_bytes;
  stats.peak_bytes += peak_bytes_.value();
}

char const* block_group::broken_invariant() const noexcept {
  if (may_be_inconsistent_) return nullptr;
  std::size_t used_blocks = 0, used_bytes = 0;
  for (std::size_t i = 0; i < log_.size(); ++i) {
    if (log_[i] == nullptr || !stands_at(*log_[i], i)) continue;
    ++used_blocks;
    used_bytes += log_[i]->bytes.load(std::memory_order_relaxed);
  }
  slabs_.for_each_held([&](epoch_slab const& slab) {
    used_blocks += slab.live_blocks();
    used_bytes += slab.live_blocks() * slab.block_bytes;
  });
  epoch_stats stats;
  add_to(stats);
  if (stats.used_blocks != used_blocks) return "used_blocks == number of blocks in logs and slabs";
  if (stats.used_bytes != used_bytes) return "used_bytes == sum over blocks in logs and slabs";
  if (stats.used_bytes > stats.peak_bytes) return "used_bytes <= peak_bytes";
  if (!std::ranges::is_sorted(frames_, {}, &frame::first)) return "frames[i].first <= frames[i + 1].first";
  if (!frames_.empty() && frames_.back().first > log_.size()) return "frames.back().first <= log.size()";
  if (frames_.empty() && !log_.empty()) return "no frame, no log";
  return nullptr;
}

}  // namespace tidemark::detail
