// SPDX-License-Identifier: Apache-2.0
/// @file
/// `thread_cache`: the free blocks that one thread has of one `synchronized_pool`, which owns them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include <tidemark/core/detail/size_classes.hpp>
#include <tidemark/pool/detail/block_cache.hpp>
#include <tidemark/pool/detail/cache_share.hpp>
#include <tidemark/pool/detail/chain_stack.hpp>
#include <tidemark/pool/detail/heap_block_cache.hpp>

namespace tidemark::detail {

/// Free blocks of the classes in lists, and in spare chains, which the depot takes in O(1); and blocks of the
/// heap. The thread alone uses it, except what counts.
///
/// Invariant: `spare_bytes` is the sum over spare chains, which `blocks.cached_bytes()` includes.
struct thread_cache {
  /// @param share_bytes of each thread of the pool
  thread_cache(size_classes const& classes, std::atomic<std::size_t> const& share_bytes) noexcept
      : blocks{classes}, share{share_bytes} {}

  /// The list becomes a spare chain. O(1).
  void make_spare(std::size_t index) noexcept {
    const block_chain chain = blocks.take_all(index);
    spares[index].push(chain);
    spare_bytes += chain.blocks * blocks.classes().bytes(index);
  }
  /// The spare chain that was made last; an empty one if there is none. O(1).
  [[nodiscard]] block_chain take_spare(std::size_t index) noexcept {
    const block_chain chain = spares[index].pop();
    spare_bytes -= chain.blocks * blocks.classes().bytes(index);
    return chain;
  }
  /// Whether the cache stays within its limit with a block more, of that size.
  [[nodiscard]] bool has_room_for_heap_block(std::size_t bytes) const noexcept {
    return heap_blocks.bytes() + coalescing_heap::range_bytes(bytes) <= share.heap_bytes();
  }
  /// The lists report after half a chain more.
  void update_watermark() noexcept { blocks.set_watermark(share.set_watermark(blocks.cached_bytes())); }
  /// Any thread.
  [[nodiscard]] std::size_t cached_bytes() const noexcept {
    return blocks.cached_bytes() + heap_blocks.bytes();
  }
  /// Requested of blocks taken, less those given: it may wrap below 0. Any thread.
  [[nodiscard]] std::size_t requested_bytes() const noexcept {
    return blocks.requested_bytes() + heap_blocks.requested_bytes();
  }
  /// Forgets all blocks; live ones count as deallocated.
  void forget() noexcept {
    blocks.forget();
    heap_blocks.forget();
    spares = {};
    spare_bytes = 0;
    share.forget();
  }
  /// Adds what another cache has counted, whose thread is gone.
  void add_counts(thread_cache const& other) noexcept {
    blocks.add_counts(other.blocks);
    heap_blocks.add_counts(other.heap_blocks);
  }

  block_cache blocks;
  heap_block_cache heap_blocks;
  std::array<chain_stack, size_classes::max_count> spares{};
  std::size_t spare_bytes = 0;
  cache_share share;
};

}  // namespace tidemark::detail
