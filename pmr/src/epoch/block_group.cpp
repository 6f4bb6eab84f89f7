// SPDX-License-Identifier: Apache-2.0
#include <tidemark/epoch/detail/block_group.hpp>

#include <algorithm>
#include <mutex>
#include <utility>

#include <tidemark/core/detail/frame_table.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/epoch/epoch_resource.hpp>

namespace tidemark::detail {

constinit thread_local block_group* open_groups = nullptr;

void block_group::detach_resource() noexcept {
  if (!may_be_inconsistent_) {
    std::pmr::vector<tracked_block*>{log_.get_allocator()}.swap(log_);
    std::pmr::vector<frame>{frames_.get_allocator()}.swap(frames_);
  }
  resource_.store(nullptr, std::memory_order_relaxed);
}

std::span<tracked_block*> block_group::end(epoch_summary& summary, epoch_slab*& free_chunks) noexcept {
  const std::scoped_lock guard{lock_};
  frame& ending = *innermost_;
  const std::size_t depth = depth_;
  kept_end_ = ending.first;
  // Local variables stay in registers, because this loop is most of the cost of an epoch.
  const struct ending how{ending.name, ending.is_buffer_group ? 0 : depth};
  summary = {};
  std::size_t reclaimed = 0, reclaimed_bytes = 0;
  const auto log = std::span{log_}.first(log_end_);
  for (std::size_t i = ending.first; i < log.size(); ++i) {
    tracked_block* const block = log[i];
    const block_state now = block == nullptr ? block_state{} : block->load();
    if (!now.is_held() || !is_at(*block, i)) {
      log[i] = nullptr;
      continue;
    }
    if (now.status() == block_status::kept) [[unlikely]] {
      summary.promoted += 1;
      summary.promoted_bytes += block->bytes.load(std::memory_order_relaxed);
      if (depth == 1) {
        log[i] = nullptr;
        block->store(now.as(block_status::untracked));
      } else {
        log[i] = std::exchange(log[kept_end_], block);
        block->move_to(kept_end_++);
        block->store(now.as(block_status::tracked));
      }
      continue;
    }
    reclaimed += 1;
    reclaimed_bytes += block->bytes.load(std::memory_order_relaxed);
    block->reclaim(how, now);
  }
  summary.reclaimed = reclaimed;
  summary.reclaimed_bytes = reclaimed_bytes;
  drain_slabs(ending, [&](epoch_slab& slab) { end_slab(slab, ending.name, summary); });
  innermost_ = --depth_ > 0 ? &frames_[depth_ - 1] : nullptr;
  reclaimed_.add(summary.reclaimed);
  promoted_.add(summary.promoted);
  held_bytes_.subtract(summary.reclaimed_bytes);
  if (depth == 1) {
    let_go_.add(summary.promoted);
    held_bytes_.subtract(summary.promoted_bytes);
    requests_chunks_ = true;
    free_chunks = remove_chunks(false, true);
  }
  return log.subspan(kept_end_);
}

bool block_group::remove(tracked_block& block, block_state before, block_state then, bool by_owner) noexcept {
  std::unique_lock guard{lock_, std::defer_lock};
  if (!by_owner) guard.lock();
  if (!by_owner && !block.is_held_as(this, before)) return false;
  const bool is_deallocation = then.generation() != before.generation();
  const std::size_t bytes = block.bytes.load(std::memory_order_relaxed);
  if (by_owner) {
    log_[block.position.load(std::memory_order_relaxed)] = nullptr;
    while (log_end_ > innermost_->first && log_[log_end_ - 1] == nullptr) --log_end_;
    (is_deallocation ? deallocations_ : let_go_).add(1);
    held_bytes_.subtract(bytes);
  } else {
    (is_deallocation ? deallocations_outside_ : let_go_outside_).add(1);
    removed_outside_bytes_.add(bytes);
  }
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
        is_logged_at(*block, i)) {
      return block;
    }
  }
  return nullptr;
}

// ---- small blocks -----------------------------------------------------------------------------------------

bool block_group::find_room(std::size_t index, std::size_t block_bytes) noexcept {
  if (chunks_.load(std::memory_order_relaxed) == nullptr) return false;
  const std::scoped_lock guard{lock_};
  // A deallocation pays for the visit of 64 slabs, because a chunk would be allocated otherwise.
  const std::uint64_t deallocations = deallocations_.value() + deallocations_outside_.value();
  if (free_slabs_ == nullptr && 64 * (deallocations - collected_) > held_slabs_) {
    collect_slabs();
    collected_ = deallocations;
  }
  if (innermost_->with_room[index] == nullptr && free_slabs_ != nullptr) begin_slab(index, block_bytes);
  return innermost_->with_room[index] != nullptr;
}

void block_group::begin_slab(std::size_t index, std::size_t block_bytes) noexcept {
  epoch_slab& slab = *free_slabs_;
  free_slabs_ = slab.next;
  ++held_slabs_;
  slab.begin(index, block_bytes);
  slab.depth = static_cast<std::uint32_t>(depth_);
  slab.use.store(epoch_slab::range_use::held, std::memory_order_release);
  add_slab(slab);
}

void block_group::collect_slabs() noexcept {
  for (frame& in : std::span{frames_}.first(depth_)) {
    drain_slabs(in, [&](epoch_slab& slab) {
      slab.collect();
      if (slab.used() > 0) return add_slab(slab);
      remove_held(slab);
      free_slab(slab);
    });
  }
}

// Slabs with kept blocks move to the outer epoch, or become kept slabs.
void block_group::end_slab(epoch_slab& slab, char const* name, epoch_summary& sum) noexcept {
  const std::size_t reclaimed = slab.reclaim();
  for (std::size_t i = 0; (tools_are_notified || check_level >= 2) && i < slab.blocks; ++i) {
    if (slab.is_live(i)) continue;
    const std::uintptr_t block = slab.address + i * slab.block_bytes;
    if (check_level >= 2) report_frames_in(block, block + slab.block_bytes, "epoch", name);
    poison_block(slab, i);
  }
  sum.reclaimed += reclaimed;
  sum.reclaimed_bytes += reclaimed * slab.block_bytes;
  sum.promoted += slab.used();
  sum.promoted_bytes += std::size_t{slab.used()} * slab.block_bytes.load();
  slab.ended_by.store(name, std::memory_order_relaxed);
  if (slab.used() > 0 && --slab.depth > 0) return add_slab(slab);
  remove_held(slab);
  if (slab.used() == 0) return free_slab(slab);
  slab.use.store(epoch_slab::range_use::kept, std::memory_order_release);
  ++slab.chunk->kept_slabs_of_chunk;
}

std::size_t block_group::next_chunk_bytes() const noexcept {
  constexpr std::size_t min_slabs = 3, max_slabs = 63;
  if (!requests_chunks_) return 0;
  return (std::clamp(held_slabs_, min_slabs, max_slabs) + 1) * epoch_slab::range_bytes;
}

void block_group::add_chunk(byte_range added, counting_filter& ranges, std::size_t index,
                            std::size_t block_bytes) {
  constexpr std::size_t range_bytes = epoch_slab::range_bytes;
  epoch_slab *first = nullptr, **link = &first;
  for (std::uintptr_t range = align_up(added.begin, range_bytes); range + range_bytes <= added.end();
       range += range_bytes) {
    epoch_slab* slab = table_.find(range);
    if (slab == nullptr) {
      slab = &table_.find_or_add(range);
      ranges.insert(range);
    }
    slab->next_in_chunk = nullptr;
    *link = slab;
    link = &slab->next_in_chunk;
  }
  const std::scoped_lock guard{lock_};
  first->chunk_memory = added;
  first->kept_slabs_of_chunk = 0;
  first->next_chunk = chunks_.load(std::memory_order_relaxed);
  chunks_.store(first, std::memory_order_relaxed);
  for (epoch_slab* slab = first; slab != nullptr; slab = slab->next_in_chunk) {
    slab->chunk = first;
    slab->holder.store(this, std::memory_order_relaxed);
    poison(slab->address, range_bytes);
    slab->use.store(epoch_slab::range_use::free, std::memory_order_release);
    slab->next = slab->next_in_chunk != nullptr ? slab->next_in_chunk : free_slabs_;
  }
  free_slabs_ = first;
  begin_slab(index, block_bytes);
}

epoch_slab* block_group::remove_chunks(bool also_used, bool has_lock) noexcept {
  std::unique_lock guard{lock_, std::defer_lock};
  if (!has_lock) guard.lock();
  epoch_slab* left = chunks_.load(std::memory_order_relaxed);
  if (left == nullptr || held_slabs_ > 0) return nullptr;
  free_slabs_ = nullptr;
  epoch_slab *gone = nullptr, **end_of_gone = &gone;
  for (epoch_slab** link = &left; *link != nullptr;) {
    epoch_slab& first = **link;
    const bool stays = !also_used && first.kept_slabs_of_chunk > 0;
    for (epoch_slab* slab = &first; slab != nullptr; slab = slab->next_in_chunk) {
      if (!stays) {
        slab->use.store(epoch_slab::range_use::upstreams, std::memory_order_release);
        unpoison(slab->address, epoch_slab::range_bytes);
      } else if (slab->use.load(std::memory_order_relaxed) == epoch_slab::range_use::free) {
        slab->next = std::exchange(free_slabs_, slab);
      }
    }
    if (stays) {
      link = &first.next_chunk;
    } else {
      *link = std::exchange(first.next_chunk, nullptr);
      *end_of_gone = &first;
      end_of_gone = &first.next_chunk;
    }
  }
  chunks_.store(left, std::memory_order_relaxed);
  return gone;
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
  poison_block(slab, i);
  if (use == epoch_slab::range_use::kept) {
    slab.deallocate(i);
    if (slab.used() > 0) return small_result::deallocated;
    free_slab(slab);
    if (--slab.chunk->kept_slabs_of_chunk == 0) return small_result::chunk_is_free;
  } else {
    slab.deallocate_from_outside(i);
    deallocations_outside_.add(1);
    removed_outside_bytes_.add(slab.block_bytes);
  }
  return small_result::deallocated;
}

bool block_group::promote_small(epoch_slab& slab, std::uintptr_t address, std::size_t depth) noexcept {
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
    std::size_t end = innermost_->first;
    for (std::size_t i = end; i < log_end_; ++i) {
      tracked_block* const block = log_[i];
      if (block == nullptr || !is_logged_at(*block, i)) continue;
      block->move_to(end);
      log_[end++] = block;
    }
    log_end_ = end;
  }
  // Without the lock: only this thread reads the log, and the bookkeeping resource runs user code.
  if (2 * log_end_ >= log_.size()) log_.resize(std::max(min_places, 2 * log_.size()));
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
  for (std::size_t i = 0; i < log_end_; ++i) {
    if (log_[i] == nullptr || !is_logged_at(*log_[i], i)) continue;
    ++used_blocks;
    used_bytes += log_[i]->bytes.load(std::memory_order_relaxed);
  }
  const auto open = std::span{frames_}.first(depth_);
  for (frame const& each : open) {
    for (epoch_slab const* slab = each.slabs; slab != nullptr; slab = slab->next) {
      for (std::size_t i = 0; i < slab->blocks; ++i) {
        if (slab->is_live(i)) ++used_blocks, used_bytes += slab->block_bytes;
      }
    }
    for (epoch_slab const* first : each.with_room) {
      for (epoch_slab const* slab = first; slab != nullptr; slab = slab->next_with_room) {
        if (slab->is_full()) return "slabs in with_room are not full";
      }
    }
  }
  epoch_stats stats;
  add_to(stats);
  if (stats.used_blocks != used_blocks) return "used_blocks == number of blocks in logs and slabs";
  if (stats.used_bytes != used_bytes) return "used_bytes == sum over blocks in logs and slabs";
  if (stats.used_bytes > stats.peak_bytes) return "used_bytes <= peak_bytes";
  if (!std::ranges::is_sorted(open, {}, &frame::first)) return "frames[i].first <= frames[i + 1].first";
  if (depth_ > 0 && innermost_->first > log_end_) return "frames.back().first <= log_end";
  if (depth_ == 0 && log_end_ != 0) return "no frame, no log";
  return nullptr;
}

}  // namespace tidemark::detail
