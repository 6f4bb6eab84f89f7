// SPDX-License-Identifier: Apache-2.0
/// @file
/// `thread_cache`: the free blocks that one thread has of one `synchronized_pool`, which owns them.
#pragma once

#include <array>
#include <cstddef>
#include <limits>

#include <tidemark/core/detail/size_classes.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/pool/detail/block_cache.hpp>
#include <tidemark/pool/detail/chain_stack.hpp>
#include <tidemark/pool/detail/heap_block_cache.hpp>

namespace tidemark::detail {

/// Free blocks of the classes in lists, and in spare chains, which the depot takes in O(1); and blocks of the
/// heap. The thread alone uses it, except what counts.
///
/// Invariant: `spare_bytes` is the sum over spare chains, which `blocks.cached_bytes()` includes.
struct thread_cache {
  static constexpr std::size_t never = (std::numeric_limits<std::size_t>::max)();

  explicit thread_cache(size_classes const& classes) noexcept : blocks{classes} {}

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
  /// Whether the cache stays within its share with a block more, of that size.
  [[nodiscard]] bool has_room_for_heap_block(std::size_t bytes) const noexcept {
    return heap_blocks.bytes() + coalescing_heap::range_bytes(bytes) <= max_heap_bytes;
  }
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
  // Of its share, what the lists may not take before they report to be over their watermark.
  std::size_t max_heap_bytes = 0;
  // Once more is cached here, half of what was live at the last trim may be free; `never`: not waited for.
  std::size_t look_at_bytes = never;
};

}  // namespace tidemark::detail
