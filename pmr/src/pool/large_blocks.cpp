// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/detail/large_blocks.hpp>

#include <algorithm>
#include <new>

#include <tidemark/core/detail/request.hpp>

namespace tidemark::detail {

void* large_blocks::allocate(std::size_t bytes, std::size_t align) {
  const std::size_t upstream_align = std::max(align, alignof(header));
  const std::size_t offset = offset_of_block(upstream_align);
  // A block of 0 bytes takes one, so that its address is not the next block's.
  const std::size_t all_bytes = add_saturating(offset, std::max<std::size_t>(bytes, 1));
  if (all_bytes > max_block_bytes) throw std::bad_alloc{};
  auto* const base = static_cast<std::byte*>(upstream_->allocate(all_bytes, upstream_align));
  auto* const block = ::new (base) header{nullptr, live_, bytes, upstream_align};
  std::memcpy(base + offset - sizeof upstream_align, &upstream_align, sizeof upstream_align);
  if (live_ != nullptr) live_->previous = block;
  live_ = block;
  used_bytes_ += bytes;
  return base + offset;
}

void large_blocks::deallocate(void* memory) noexcept {
  header* const block = header_of(memory);
  (block->previous != nullptr ? block->previous->next : live_) = block->next;
  if (block->next != nullptr) block->next->previous = block->previous;
  used_bytes_ -= block->bytes;
  const std::size_t align = block->align;
  upstream_->deallocate(block, offset_of_block(align) + std::max<std::size_t>(block->bytes, 1), align);
}

void large_blocks::release() noexcept {
  while (live_ != nullptr) deallocate(reinterpret_cast<std::byte*>(live_) + offset_of_block(live_->align));
}

char const* large_blocks::broken_invariant() const noexcept {
  std::size_t used = 0;
  for (header const* block = live_; block != nullptr; block = block->next) used += block->bytes;
  return used == used_bytes_ ? nullptr : "used_bytes == sum over live large blocks";
}

}  // namespace tidemark::detail
