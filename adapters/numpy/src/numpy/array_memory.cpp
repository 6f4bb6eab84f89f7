// SPDX-License-Identifier: Apache-2.0
#include "array_memory.hpp"

#include <tidemark/core/os_memory.hpp>

namespace tidemark::numpy {
namespace {

// As in NumPy. For smaller blocks, rounding up to huge pages would waste much of the array.
constexpr std::size_t min_huge_bytes = 4 * MiB;
// A retired memory is trimmed after this many freed bytes.
constexpr std::size_t retired_bytes = 1 * MiB;

// Returns the pool's part of the cache; mappings have most of the bytes.
std::size_t bytes_for_pool(std::size_t max_cached_bytes) noexcept { return max_cached_bytes / 4; }

}  // namespace

array_memory::array_memory(array_memory_options options)
    : huge_pages_{options.huge_pages},
      pool_{pool_options{.max_cached_bytes = bytes_for_pool(options.max_cached_bytes),
                         .name = "tidemark_numpy"}},
      mappings_{options.max_cached_bytes - bytes_for_pool(options.max_cached_bytes)},
      pressure_{on_memory_pressure([this] { mappings_.trim(); })} {}

void* array_memory::block_of(mapping* of, std::size_t bytes) noexcept {
  of->live.block = {.bytes = bytes, .room = of->bytes - sizeof(mapping)};
  return of + 1;
}

void* array_memory::allocate_mapping(std::size_t bytes) { return block_of(mappings_.allocate(bytes), bytes); }

void* array_memory::allocate_after_trim(std::size_t bytes) {
  trim();
  return bytes < min_mapping_bytes ? allocate_in_pool(bytes) : allocate_mapping(bytes);
}

void array_memory::prepare_mapping(void* block, bool zeroed) noexcept {
  mapping const& of = *mapping_of(block);
  if (zeroed) {
    // Fresh pages stay as they are, without huge pages: a large array of zeros may be written sparsely.
    std::memset(block, 0, std::min(of.dirty_bytes - sizeof(mapping), of.live.block.bytes));
  } else if (huge_pages_ && of.dirty_bytes < of.bytes && of.bytes >= min_huge_bytes) {
    (void)default_os_memory().advise_huge_pages(mapping_of(block), of.bytes, true);
  }
}

void* array_memory::reallocate(void* block, std::size_t bytes) {
  if (block == nullptr) return allocate(bytes);
  block_header& of = header_of(block);
  if (of.room <= min_mapping_bytes) {
    if (bytes <= of.room && bytes >= of.room / 2) {
      of.bytes = bytes;
      return block;
    }
  } else if (bytes >= min_mapping_bytes) {
    if (mapping* const resized = mappings_.resize(mapping_of(block), bytes))
      return prepare(block_of(resized, bytes), false);
  }
  void* const moved = allocate(bytes);
  std::memcpy(moved, block, std::min(bytes, of.bytes));
  deallocate(block);
  return moved;
}

void array_memory::deallocate_mapping(void* block) noexcept { mappings_.deallocate(mapping_of(block)); }

void array_memory::trim() noexcept {
  mappings_.trim();
  (void)pool_.trim();
}

void array_memory::retire() noexcept {
  is_retired_ = true;
  mappings_.stop_caching();
  (void)pool_.trim();
}

void array_memory::return_retired(std::size_t bytes) noexcept {
  if (unreturned_bytes_.fetch_add(bytes) + bytes < retired_bytes) return;
  unreturned_bytes_ = 0;
  (void)pool_.trim();
}

array_memory_stats array_memory::stats() const noexcept {
  const pool_stats small = pool_.stats();
  const mapping_cache_stats large = mappings_.stats();
  const std::uint64_t allocations = large.hits + large.misses;
  return {.allocations = small.allocations + allocations,
          .deallocations = small.deallocations + large.deallocations,
          .hits = small.hits + large.hits,
          .misses = small.misses + large.misses,
          .used_blocks = small.used_blocks + static_cast<std::size_t>(allocations - large.deallocations),
          .used_bytes = small.used_bytes + large.used_bytes,
          .cached_bytes = small.cached_bytes + large.cached_bytes,
          .held_bytes = small.held_bytes + large.used_bytes + large.cached_bytes};
}

}  // namespace tidemark::numpy
