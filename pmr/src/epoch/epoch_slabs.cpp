// SPDX-License-Identifier: Apache-2.0
#include <tidemark/epoch/detail/epoch_slabs.hpp>

#include <bit>
#include <utility>

#include <tidemark/core/detail/frame_table.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/epoch/epoch_resource.hpp>

namespace tidemark::detail {

bool epoch_slabs::acquire_free_slab(block_group& holder, std::size_t depth, std::size_t index,
                                    std::size_t block_bytes) noexcept {
  if (free_slabs_ == nullptr) return false;
  epoch_slab& slab = *free_slabs_;
  frame& in = frames_[depth - 1];
  move(slab, free_slabs_, in.with_room[index]);
  in.classes |= std::uint64_t{1} << index;
  --slab.chunk->free_slabs_of_chunk;
  ++held_slabs_;
  slab.begin(index, block_bytes);
  slab.depth = static_cast<std::uint32_t>(depth);
  slab.holder.store(&holder, std::memory_order_relaxed);
  slab.use.store(epoch_slab::range_use::held, std::memory_order_release);
  return true;
}

void epoch_slabs::collect() noexcept {
  for (frame const& in : frames_) {
    for (epoch_slab* slab = in.full; slab != nullptr;) {
      epoch_slab& each = *std::exchange(slab, slab->next);
      if (each.collect() == 0) continue;
      has_room_again(each);
      if (is_superfluous(each)) retire_slab(each);
    }
  }
}

void epoch_slabs::retire_slab(epoch_slab& slab) noexcept {
  remove(slab, frames_[slab.depth - 1].with_room[slab.class_index]);
  --held_slabs_;
  end_use(slab);
}

void epoch_slabs::end_slab(epoch_slab& slab, std::size_t depth, char const* name,
                           epoch_summary& sum) noexcept {
  const std::size_t reclaimed = slab.reclaim();
  for (std::size_t i = 0; (tools_are_notified || check_level >= 2) && i < slab.blocks; ++i) {
    if (slab.is_live(i)) continue;
    const std::uintptr_t block = slab.address + i * slab.block_bytes;
    if (check_level >= 2) report_frames_in(block, block + slab.block_bytes, "epoch", name);
    poison_block(slab, i);
  }
  sum.reclaimed += reclaimed;
  sum.reclaimed_bytes += reclaimed * slab.block_bytes;
  sum.promoted += slab.used;
  sum.promoted_bytes += std::size_t{slab.used} * slab.block_bytes.load();
  slab.ended_by.store(name, std::memory_order_relaxed);
  if (slab.used > 0 && depth > 1) {
    frame& around = frames_[depth - 2];
    --slab.depth;
    around.classes |= std::uint64_t{1} << slab.class_index;
    insert(slab, slab.is_full() ? around.full : around.with_room[slab.class_index]);
    return;
  }
  --held_slabs_;
  if (slab.used > 0) slab.use.store(epoch_slab::range_use::kept, std::memory_order_release);
  else end_use(slab);
}

void epoch_slabs::end(std::size_t depth, char const* name, epoch_summary& sum) noexcept {
  if (depth > frame_count_) return;
  frame& ending = frames_[depth - 1];
  const auto end_all = [&](epoch_slab* first) {
    while (first != nullptr) end_slab(*std::exchange(first, first->next), depth, name, sum);
  };
  for (std::uint64_t left = std::exchange(ending.classes, 0); left != 0; left &= left - 1) {
    end_all(std::exchange(ending.with_room[static_cast<std::size_t>(std::countr_zero(left))], nullptr));
  }
  end_all(std::exchange(ending.full, nullptr));
}

void epoch_slabs::add_chunk(byte_range added, block_group& holder) noexcept {
  epoch_slab& first = *table_.find(first_range(added));
  first.chunk_memory = added;
  first.chunk_slabs = static_cast<std::uint32_t>(range_count(added));
  first.free_slabs_of_chunk = 0;
  first.next_chunk = chunks_;
  chunks_ = &first;
  // Reverse order puts the first slab at the front of the list.
  for (std::size_t i = first.chunk_slabs; i-- > 0;) {
    epoch_slab& slab = *table_.find(first.address + i * epoch_slab::range_bytes);
    slab.chunk = &first;
    slab.holder.store(&holder, std::memory_order_relaxed);
    poison(slab.address, epoch_slab::range_bytes);
    insert_free_slab(slab);
  }
}

byte_range epoch_slabs::remove_chunk(bool also_used) noexcept {
  epoch_slab *first = chunks_, *before = nullptr;
  while (first != nullptr && !also_used && first->free_slabs_of_chunk != first->chunk_slabs)
    before = std::exchange(first, first->next_chunk);
  if (first == nullptr) return {};
  if (before != nullptr) before->next_chunk = first->next_chunk;
  else chunks_ = first->next_chunk;
  for (std::size_t i = 0; i < first->chunk_slabs; ++i) {
    epoch_slab& slab = *table_.find(first->address + i * epoch_slab::range_bytes);
    if (slab.use.load(std::memory_order_relaxed) == epoch_slab::range_use::free) remove(slab, free_slabs_);
    slab.use.store(epoch_slab::range_use::upstreams, std::memory_order_release);
    unpoison(slab.address, epoch_slab::range_bytes);
  }
  return first->chunk_memory;
}

}  // namespace tidemark::detail
