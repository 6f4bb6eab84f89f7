// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/detail/block_store.hpp>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/request.hpp>

namespace tidemark::detail {

pool_blocks::pool_blocks(pool_options const& options, std::pmr::memory_resource* upstream)
    : block_cache{classes_of(options, size_classes::granule_bytes)},
      block_store{classes(), *this, completed(options, upstream, classes()), options.max_cached_bytes,
                  options.max_cached_bytes} {}

void* pool_blocks::allocate_slow(std::size_t bytes, std::size_t align) {
  drain_pending_work();
  const auto relieve = [this] { return release_free(0); };
  const std::size_t index = classes().index_of(bytes, align);
  if (index == size_classes::none) return allocate_large(bytes, align, relieve);
  if (listed_blocks(index) == 0) {
    const std::size_t max_stranded_bytes = add_saturating(room(), classes().bytes(index));
    push_all(index, refill(index, options().max_cached_bytes, max_stranded_bytes, relieve));
  }
  return pop_block(index, bytes);
}

void pool_blocks::deallocate_slow(void* block, std::size_t bytes, std::size_t align,
                                  free_result result) noexcept {
  drain_pending_work();
  if (result == free_result::not_listed) {
    const std::size_t index = classes().index_of(bytes, align);
    if (index == size_classes::none) return deallocate_large(block, bytes, align);
    (void)push_block(index, block, bytes);
  }
  make_room();
}

block_counts pool_blocks::counts() const noexcept {
  block_counts total = block_store::counts();
  for (std::size_t i = 0; i < classes().count(); ++i) {
    total.allocations += allocations(i);
    total.deallocations += deallocations(i);
  }
  return total;
}

char const* pool_blocks::broken_invariant() const noexcept {
  if (char const* formula = block_store::broken_invariant()) return formula;
  std::size_t cached = unlisted_bytes(), live = used_large_bytes();
  for (std::size_t i = 0; i < classes().count(); ++i) {
    if (char const* formula = broken_list(i, list(i))) return formula;
    cached += listed_blocks(i) * classes().bytes(i);
    live += (allocations(i) - deallocations(i)) * classes().bytes(i);
  }
  if (cached != cached_bytes()) return "cached_bytes == sum over free blocks";
  if (live != held_bytes() - cached_bytes() - stranded_bytes()) return "used_bytes == sum over live blocks";
  return nullptr;
}

}  // namespace tidemark::detail
