// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/resources/detail/heap_slabs.hpp>

#include <new>

namespace tidemark::gpu::detail {
namespace {

std::size_t record_bytes(std::size_t blocks) noexcept {
  return sizeof(heap_slab) + blocks * sizeof(std::uint16_t);
}

}  // namespace

constinit heap_slab no_slab{{}, nullptr, ~std::uintptr_t{}};

heap_slab* heap_slabs::make(std::size_t index, std::size_t slab_bytes) {
  const std::size_t blocks = slab_bytes / device_classes::bytes(index);
  void* const record = bookkeeping_->allocate(record_bytes(blocks), alignof(heap_slab));
  const auto size = [](std::size_t n) { return static_cast<std::uint32_t>(n); };
  auto* const slab = ::new (record) heap_slab;
  slab->index = static_cast<std::uint16_t>(index);
  slab->block_bytes = size(device_classes::bytes(index));
  slab->least_bytes = size(index == 0 ? 0 : device_classes::bytes(index - 1) + 1);
  slab->reciprocal = heap_slab::reciprocal_of(device_classes::bytes(index));
  slab->blocks = slab->free = slab->unused = static_cast<std::uint16_t>(blocks);
  return slab;
}

void heap_slabs::destroy(heap_slab& slab) noexcept {
  bookkeeping_->deallocate(&slab, record_bytes(slab.blocks), alignof(heap_slab));
}

heap_range& heap_slabs::close(heap_slab& slab) noexcept {
  heap_range& range = *slab.range;
  bytes_[slab.index] -= std::size_t{slab.blocks} * slab.block_bytes;
  unlink(slab);
  destroy(slab);
  return range;
}

heap_slab* heap_slabs::find_empty() const noexcept {
  for (slab_link const& open : open_) {
    for (slab_link* at = open.next; at != &open; at = at->next) {
      auto* const slab = static_cast<heap_slab*>(at);
      if (slab->free == slab->blocks) return slab;
    }
  }
  return nullptr;
}

void heap_slabs::forget() noexcept {
  for (slab_link& open : open_) open.previous = open.next = &open;
  bytes_ = {};
  used_bytes_ = 0;
  deallocations_ = allocations_;
}

char const* heap_slabs::broken_invariant() const noexcept {
  std::size_t used = 0;
  for (std::size_t i = 0; i < device_class_count; ++i) {
    used += bytes_[i];
    for (slab_link const* at = open_[i].next; at != &open_[i]; at = at->next) {
      if (at->next->previous != at) return "open slabs are a circular list";
      auto const* const slab = static_cast<heap_slab const*>(at);
      if (slab->index != i || slab->free == 0 || slab->range->slab != slab)
        return "open slabs of a class have a free block of it";
      if (slab->unused > slab->free || slab->free > slab->blocks) return "unused <= free <= blocks";
      used -= std::size_t{slab->free} * slab->block_bytes;
    }
  }
  if (nothing_.next != &nothing_ || nothing_.previous != &nothing_) return "unchanged links stay";
  return used == used_bytes_ ? nullptr : "used_bytes == blocks of all slabs - free blocks of open slabs";
}

}  // namespace tidemark::gpu::detail
