// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/detail/block_store.hpp>

#include <algorithm>
#include <new>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/request.hpp>

namespace tidemark::detail {

void* large_blocks::allocate(std::size_t bytes, std::size_t align) {
  const std::size_t upstream_align = std::max(align, alignof(header));
  const std::size_t offset = offset_of_block(upstream_align);
  // A block of 0 bytes takes 1 byte, so that its address is unique.
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

pool_blocks::pool_blocks(pool_options const& options, std::pmr::memory_resource* upstream)
    : block_cache{size_classes{options.name, options.size_classes}},
      options_{completed(options, upstream, classes())},
      store_{classes(), *this, options_, options_.max_cached_bytes, options_.max_cached_bytes} {}

void* pool_blocks::allocate_slow(std::size_t bytes, std::size_t align) {
  drain_pending_work();
  const auto relieve = [this] { return release_free(0); };
  const std::size_t index = classes().index_of(bytes, align);
  if (index == size_classes::none) return store_.allocate_large(bytes, align, relieve);
  if (listed_blocks(index) == 0) {
    const std::size_t max_stranded_bytes = add_saturating(store_.room(), classes().bytes(index));
    push_all(index, store_.refill(index, options_.max_cached_bytes, max_stranded_bytes, relieve));
  }
  return pop_block(index, bytes);
}

void pool_blocks::deallocate_slow(void* block, std::size_t bytes, std::size_t align,
                                  free_result result) noexcept {
  drain_pending_work();
  if (result == free_result::not_listed) {
    const std::size_t index = classes().index_of(bytes, align);
    if (index == size_classes::none) return store_.deallocate_large(block, bytes, align);
    (void)push_block(index, block, bytes);
  }
  store_.make_room();
}

block_counts pool_blocks::counts() const noexcept {
  block_counts total = store_.counts();
  for (std::size_t i = 0; i < classes().count(); ++i) {
    total.allocations += allocations(i);
    total.deallocations += deallocations(i);
  }
  return total;
}

char const* pool_blocks::broken_invariant() const noexcept {
  if (char const* formula = store_.broken_invariant()) return formula;
  std::size_t cached = store_.unlisted_bytes(), live = store_.used_large_bytes();
  for (std::size_t i = 0; i < classes().count(); ++i) {
    if (char const* formula = store_.broken_list(i, list(i))) return formula;
    cached += listed_blocks(i) * classes().bytes(i);
    live += (allocations(i) - deallocations(i)) * classes().bytes(i);
  }
  if (cached != cached_bytes()) return "cached_bytes == sum over free blocks";
  if (live != held_bytes() - cached_bytes() - stranded_bytes()) return "used_bytes == sum over live blocks";
  return nullptr;
}

}  // namespace tidemark::detail
