// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/resources/detail/heap_slabs.hpp>

#include <new>

namespace tidemark::gpu::detail {
namespace {

std::size_t record_bytes(std::size_t blocks) noexcept {
  return sizeof(heap_slab) + blocks * sizeof(std::uint16_t);
}

}  // namespace

heap_slab* heap_slabs::make(std::size_t index, std::size_t slab_bytes) {
  const std::size_t blocks = slab_bytes / device_classes::bytes(index);
  void* const record = bookkeeping_->allocate(record_bytes(blocks), alignof(heap_slab));
  const auto size = [](std::size_t n) { return static_cast<std::uint32_t>(n); };
  return ::new (record) heap_slab{.index = size(index),
                                  .block_bytes = size(device_classes::bytes(index)),
                                  .least_bytes = size(index == 0 ? 0 : device_classes::bytes(index - 1) + 1),
                                  .reciprocal = heap_slab::reciprocal_of(device_classes::bytes(index)),
                                  .blocks = size(blocks)};
}

void heap_slabs::destroy(heap_slab& slab) noexcept {
  bookkeeping_->deallocate(&slab, record_bytes(slab.blocks), alignof(heap_slab));
}

heap_range& heap_slabs::close(heap_slab& slab) noexcept {
  heap_range& range = *slab.range;
  classes_[slab.index].bytes -= std::size_t{slab.blocks} * slab.block_bytes;
  unlink(slab);
  destroy(slab);
  return range;
}

heap_slab* heap_slabs::find_empty() const noexcept {
  for (size_class const& each : classes_) {
    for (heap_slab* slab = each.open; slab != nullptr; slab = slab->next) {
      if (slab->used == 0) return slab;
    }
  }
  return nullptr;
}

void heap_slabs::forget() noexcept {
  classes_ = {};
  used_bytes_ = 0;
  deallocations_ = allocations_;
}

char const* heap_slabs::broken_invariant() const noexcept {
  std::size_t used = 0;
  for (std::size_t i = 0; i < device_class_count; ++i) {
    used += classes_[i].bytes;
    for (heap_slab* slab = classes_[i].open; slab != nullptr; slab = slab->next) {
      if (slab->index != i || slab->used == slab->blocks || slab->range->slab != slab)
        return "open slabs of a class have a free block of it";
      if (slab->fresh > slab->blocks || slab->used + slab->stacked != slab->fresh)
        return "used + free blocks in the stack + blocks never used == blocks";
      used -= std::size_t{slab->blocks - slab->used} * slab->block_bytes;
    }
  }
  return used == used_bytes_ ? nullptr : "used_bytes == blocks of all slabs - free blocks of open slabs";
}

}  // namespace tidemark::gpu::detail
