// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/detail/large_blocks.hpp>

#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include <tidemark/core/detail/sanitizers.hpp>
#include <tidemark/pool/detail/block_cache.hpp>

namespace tidemark::detail {

// As many blocks of a bin are looked at as cost less than the upstream would.
constexpr std::size_t blocks_looked_at = 4;

void large_blocks::link(header* block, header*& list) noexcept {
  block->previous = nullptr;
  block->next = list;
  if (list != nullptr) list->previous = block;
  list = block;
}

void large_blocks::unlink(header* block, header*& list) noexcept {
  (block->previous != nullptr ? block->previous->next : list) = block->next;
  if (block->next != nullptr) block->next->previous = block->previous;
}

large_blocks::header* large_blocks::find(std::size_t bin, std::size_t bytes,
                                         std::size_t align) const noexcept {
  header* block = bins_[bin];
  for (std::size_t i = 0; block != nullptr && i < blocks_looked_at; ++i, block = block->next) {
    const std::uintptr_t first = address_of(memory_of(block));
    if (block->bytes >= bytes && block->bytes <= most_for(bytes) && (first & (align - 1)) == 0) return block;
  }
  return nullptr;
}

void* large_blocks::take(std::size_t bytes, std::size_t align) noexcept {
  if (kept_bytes_ < bytes || bytes < min_kept_bytes) return nullptr;
  std::size_t bin = bin_of(bytes);
  const std::size_t last_bin = std::min(bin + 2, bin_count - 1);  // most_for(bytes) is in none behind it
  header* block = find(bin, bytes, align);
  while (block == nullptr && bin < last_bin) block = find(++bin, bytes, align);
  if (block == nullptr) return nullptr;
  leave_bin(block);
  link(block, live_);
  used_bytes_ += block->bytes;
  requested_bytes_ += bytes;
  void* const memory = memory_of(block);
  unpoison(address_of(memory), bytes);
  return memory;
}

void* large_blocks::allocate(std::size_t bytes, std::size_t align) {
  const std::size_t upstream_align = std::max(align, alignof(header));
  const std::size_t offset = offset_of_block(upstream_align);
  // No object can be larger, and some upstreams (libstdc++'s aligned operator new) overflow above it.
  constexpr auto largest = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
  if (bytes > largest - offset) throw std::bad_alloc{};
  // A block of 0 bytes takes one, so that its address is not the next block's.
  const std::size_t room = std::max<std::size_t>(bytes, 1);
  auto* const base = static_cast<std::byte*>(upstream_->allocate(offset + room, upstream_align));
  auto* const block = ::new (base) header{nullptr, nullptr, bytes, upstream_align};
  std::memcpy(base + offset - sizeof upstream_align, &upstream_align, sizeof upstream_align);
  link(block, live_);
  used_bytes_ += bytes;
  requested_bytes_ += bytes;
  return base + offset;
}

std::size_t large_blocks::deallocate(void* memory, std::size_t requested_bytes,
                                     std::size_t max_bytes) noexcept {
  header* const block = header_of(memory);
  unlink(block, live_);
  used_bytes_ -= block->bytes;
  requested_bytes_ -= requested_bytes;
  if (block->bytes < min_kept_bytes || block->bytes > max_bytes || block->align > max_kept_alignment) {
    return_to_upstream(block);
    return 0;
  }
  poison_freed(memory, block->bytes);
  link(block, bins_[bin_of(block->bytes)]);
  kept_bytes_ += block->bytes;
  return block->bytes;
}

void large_blocks::leave_bin(header* block) noexcept {
  unlink(block, bins_[bin_of(block->bytes)]);
  kept_bytes_ -= block->bytes;
}

std::size_t large_blocks::release_kept(std::size_t bytes_wanted) noexcept {
  const std::size_t before = kept_bytes_, target = before - std::min(before, bytes_wanted);
  for (std::size_t bin = bin_count; kept_bytes_ > target; --bin) {
    while (kept_bytes_ > target && bins_[bin - 1] != nullptr) {
      header* const block = bins_[bin - 1];
      leave_bin(block);
      return_to_upstream(block);
    }
  }
  return before - kept_bytes_;
}

void large_blocks::return_to_upstream(header* block) noexcept {
  const std::size_t align = block->align;
  const std::size_t bytes = offset_of_block(align) + std::max<std::size_t>(block->bytes, 1);
  unpoison(address_of(memory_of(block)), block->bytes);
  upstream_->deallocate(block, bytes, align);
}

void large_blocks::release() noexcept {
  (void)release_kept(kept_bytes_);
  while (live_ != nullptr) return_to_upstream(std::exchange(live_, live_->next));
  used_bytes_ = requested_bytes_ = 0;
}

char const* large_blocks::broken_invariant() const noexcept {
  std::size_t used = 0, kept = 0;
  for (header const* block = live_; block != nullptr; block = block->next) used += block->bytes;
  for (std::size_t bin = 0; bin < bin_count; ++bin) {
    for (header const* block = bins_[bin]; block != nullptr; block = block->next) {
      if (bin_of(block->bytes) != bin) return "a kept block lies in the bin of its size";
      kept += block->bytes;
    }
  }
  if (used != used_bytes_) return "used_bytes == sum over live large blocks";
  if (kept != kept_bytes_) return "kept_bytes == sum over kept large blocks";
  return nullptr;
}

}  // namespace tidemark::detail
