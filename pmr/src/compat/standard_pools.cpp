// SPDX-License-Identifier: Apache-2.0
#include <tidemark/compat/detail/standard_pools.hpp>

#include <utility>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>

namespace tidemark::detail {
namespace {

constexpr std::size_t first_chunk_bytes = 1 * KiB;
constexpr std::size_t max_chunk_bytes = 512 * KiB, max_large_blocks = 16;  // the larger of both

// What the standard says of a limit that is 0 or too large.
std::size_t limited(std::size_t wanted, std::size_t limit) noexcept {
  return wanted == 0 ? limit : std::min(wanted, limit);
}

}  // namespace

standard_pools::standard_pools(std::pmr::pool_options const& options,
                               std::pmr::memory_resource* upstream) noexcept
    : max_blocks_{limited(options.max_blocks_per_chunk, max_chunk_blocks)},
      pool_count_{
          index_of(std::bit_ceil(limited(options.largest_required_pool_block, max_largest_block_bytes)), 1) +
          1},
      chunks_{upstream},
      large_{upstream} {}

void* standard_pools::allocate(std::size_t bytes, std::size_t align) {
  const std::size_t index = index_of(bytes, align);
  if (index >= pool_count_) {
    if (std::max(bytes, align) > upstream_chunks::max_bytes) chunks_.refuse();
    return large_.allocate(bytes, align);
  }
  size_pool& from = pools_[index];
  free_block* block = from.free;
  if (block != nullptr) {
    from.free = next_of(block);
  } else {
    if (from.cursor == from.end) add_chunk(index);
    block = reinterpret_cast<free_block*>(from.cursor);
    from.cursor += block_bytes(index);
  }
  unpoison(address_of(block), bytes);
  return block;
}

void standard_pools::deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
  if (block == nullptr) return;
  const std::size_t index = index_of(bytes, align);
  if (index >= pool_count_) {
    large_.deallocate(block);
    return;
  }
  poison_freed(block, block_bytes(index));
  link(static_cast<free_block*>(block), std::exchange(pools_[index].free, static_cast<free_block*>(block)));
}

// Half as many blocks again as in the chunk before, so that at most a third of what is held was never used.
void standard_pools::add_chunk(std::size_t index) {
  size_pool& to = pools_[index];
  const std::size_t bytes = block_bytes(index);
  const std::size_t wanted =
      to.blocks == 0 ? std::max<std::size_t>(1, first_chunk_bytes / bytes) : to.blocks + (to.blocks + 1) / 2;
  const std::size_t blocks =
      std::min({wanted, max_blocks_, std::max(max_chunk_bytes / bytes, max_large_blocks)});
  const byte_range room = chunks_.add(1, blocks, bytes, std::min(bytes & (~bytes + 1), max_alignment));
  to.cursor = room.begin;
  to.end = room.end();
  to.blocks = room.size / bytes;
}

void standard_pools::release() noexcept {
  large_.release();
  chunks_.release();
  pools_ = {};
}

}  // namespace tidemark::detail
