// SPDX-License-Identifier: Apache-2.0
#include <tidemark/detail/block_group.hpp>

#include <algorithm>
#include <mutex>
#include <utility>

namespace tidemark::detail {

constinit thread_local block_group* open_groups = nullptr;

namespace {
constinit std::atomic<block_group*> forgotten_groups{nullptr};
}  // namespace

void block_group::forget_resource() noexcept {
  std::pmr::vector<tracked_block*>{log_.get_allocator()}.swap(log_);
  std::pmr::vector<frame>{frames_.get_allocator()}.swap(frames_);
  resource_.store(nullptr, std::memory_order_relaxed);
  next_forgotten_ = forgotten_groups.exchange(this);
}

std::uint64_t block_group::open(char const* name, bool is_owner) {
  frames_.emplace_back(log_.size(), name, ++frame_numbers_, is_owner, false);
  return frame_numbers_;
}

std::size_t block_group::depth_of(std::uint64_t number) const noexcept {
  const auto found = std::ranges::find(frames_, number, &frame::number);
  return found == frames_.end() ? 0 : static_cast<std::size_t>(found - frames_.begin()) + 1;
}

std::span<tracked_block*> block_group::end(epoch_summary& summary) noexcept {
  const std::scoped_lock guard{lock_};
  const frame ending = frames_.back();
  const std::size_t depth = frames_.size();
  kept_end_ = ending.first;
  // Sums of this loop alone, so that they stay in registers: it is most of what an epoch costs.
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
      block->ended_by.store(ending.name, std::memory_order_relaxed);
      block->position.store(ending.is_owner ? 0 : depth, std::memory_order_relaxed);
      block->store(now.ended_as(block_status::reclaimed));
      continue;
    }
    sum.promoted += 1;
    sum.promoted_bytes += bytes;
    if (depth == 1) {
      log[i] = nullptr;
      block->store(now.as(block_status::untracked));
    } else {
      log[i] = std::exchange(log[kept_end_], block);
      block->position.store(kept_end_++, std::memory_order_relaxed);
      block->store(now.as(block_status::tracked));
    }
  }
  frames_.pop_back();
  reclaimed_.add(sum.reclaimed);
  promoted_.add(sum.promoted);
  held_bytes_.subtract(sum.reclaimed_bytes);
  if (depth == 1) {
    let_go_.add(sum.promoted);
    held_bytes_.subtract(sum.promoted_bytes);
  }
  summary = sum;
  return std::span{log_}.subspan(kept_end_);
}

void block_group::remove(tracked_block& block, block_state then) noexcept {
  const std::size_t position = block.position.load(std::memory_order_relaxed);
  const std::size_t bytes = block.bytes.load(std::memory_order_relaxed);
  log_[position] = nullptr;
  while (!log_.empty() && log_.back() == nullptr && log_.size() > frames_.back().first) log_.pop_back();
  (then.life() != block.load().life() ? deallocations_ : let_go_).add(1);
  held_bytes_.subtract(bytes);
  block.store(then);
}

bool block_group::remove_from_outside(tracked_block& block, block_state before, block_state then) noexcept {
  const std::scoped_lock guard{lock_};
  // Not only the same word: the same in this group.
  if (block.load() != before || !holds(block)) return false;
  (then.life() != before.life() ? gone_outside_ : let_go_outside_).add(1);
  gone_outside_bytes_.add(block.bytes.load(std::memory_order_relaxed));
  block.store(then);
  return true;
}

bool block_group::keep(tracked_block& block, std::uint64_t frame_number) noexcept {
  const std::scoped_lock guard{lock_};
  const block_state now = block.load();
  if (now.status() != block_status::tracked || !holds(block)) return false;
  const std::size_t depth = depth_of(frame_number);
  const std::size_t position = block.position.load(std::memory_order_relaxed);
  if (depth == 0 || position < frames_[depth - 1].first) return false;
  if (depth < frames_.size() && position >= frames_[depth].first) return false;
  block.store(now.as(block_status::kept));
  return true;
}

std::span<tracked_block* const> block_group::blocks_of(std::uint64_t frame_number) const noexcept {
  const std::size_t depth = depth_of(frame_number);
  if (depth == 0) return {};
  const std::size_t end = depth < frames_.size() ? frames_[depth].first : log_.size();
  return std::span{log_}.first(end).subspan(frames_[depth - 1].first);
}

tracked_block* block_group::find_around(std::uintptr_t address, std::uint64_t frame_number) const noexcept {
  for (tracked_block* const block : blocks_of(frame_number)) {
    if (block != nullptr && address - block->address < block->bytes.load(std::memory_order_relaxed) &&
        block->load().is_held() && holds(*block)) {
      return block;
    }
  }
  return nullptr;
}

// Closes the gaps in the innermost frame first, so that a long epoch in which blocks come and go takes no more
// room than the blocks that are there at once.
void block_group::make_room() {
  const std::scoped_lock guard{lock_};  // a block that leaves meanwhile has its place in another log
  constexpr std::size_t places_min = 64;
  std::size_t end = frames_.back().first;
  for (std::size_t i = end; i < log_.size(); ++i) {
    tracked_block* const block = log_[i];
    if (block == nullptr || !stands_at(*block, i)) continue;
    block->position.store(end, std::memory_order_relaxed);
    log_[end++] = block;
  }
  log_.resize(end);
  if (2 * log_.size() >= log_.capacity()) log_.reserve(std::max(places_min, 2 * log_.capacity()));
}

std::size_t block_group::size() const noexcept {
  epoch_stats stats;
  add_to(stats);
  return stats.used_blocks;
}

void block_group::add_to(epoch_stats& stats) const noexcept {
  // Backwards in time, so that no difference falls below 0.
  const std::uint64_t let_go = let_go_.value() + let_go_outside_.value();
  const std::uint64_t deallocations = deallocations_.value() + gone_outside_.value();
  const std::uint64_t reclaimed = reclaimed_.value();
  const std::size_t gone_bytes = gone_outside_bytes_.value();
  const std::uint64_t adopted = adopted_.value();
  const std::uint64_t allocations = allocations_.value();
  stats.allocations += allocations;
  stats.adopted += adopted;
  stats.deallocations += deallocations;
  stats.reclaimed += reclaimed;
  stats.promoted += promoted_.value();
  stats.let_go += let_go;
  stats.used_blocks += allocations + adopted - deallocations - reclaimed - let_go;
  stats.used_bytes += held_bytes_.value() - gone_bytes;
  stats.peak_bytes += peak_bytes_.value();
}

char const* block_group::broken_invariant() const noexcept {
  std::size_t used_blocks = 0, used_bytes = 0;
  for (std::size_t i = 0; i < log_.size(); ++i) {
    if (log_[i] == nullptr || !stands_at(*log_[i], i)) continue;
    ++used_blocks;
    used_bytes += log_[i]->bytes.load(std::memory_order_relaxed);
  }
  epoch_stats stats;
  add_to(stats);
  if (stats.used_blocks != used_blocks) return "used_blocks == number of blocks in logs";
  if (stats.used_bytes != used_bytes) return "used_bytes == sum over blocks in logs";
  if (stats.used_bytes > stats.peak_bytes) return "used_bytes <= peak_bytes";
  if (!std::ranges::is_sorted(frames_, {}, &frame::first)) return "frames[i].first <= frames[i + 1].first";
  if (!frames_.empty() && frames_.back().first > log_.size()) return "frames.back().first <= log.size()";
  if (frames_.empty() && !log_.empty()) return "no frame, no log";
  return nullptr;
}

}  // namespace tidemark::detail
