// SPDX-License-Identifier: Apache-2.0
/// @file
/// `thread_cache`: the free blocks that one thread has of one `synchronized_pool`, which owns them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <limits>

#include <tidemark/core/detail/size_classes.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/pool/detail/block_cache.hpp>
#include <tidemark/pool/detail/chain_stack.hpp>

namespace tidemark::detail {

/// Free blocks in lists, and in spare chains, so that a thread that frees and allocates about as much as its
/// lists may hold does not go to the depot each time. The thread alone uses it.
///
/// Invariant: `spare_bytes` is the sum over spare chains, which `blocks.cached_bytes()` includes.
struct thread_cache {
  static constexpr std::size_t never = std::numeric_limits<std::size_t>::max();

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
  /// Forgets all blocks; live ones count as deallocated.
  void forget() noexcept {
    blocks.forget();
    spares = {};
    spare_bytes = 0;
  }

  block_cache blocks;
  std::array<chain_stack, size_classes::max_count> spares{};
  std::size_t spare_bytes = 0;
  // Once more is cached here, half of what was live at the last trim may be free; `never`: not waited for.
  std::size_t look_at_bytes = never;
  // The least target of the trims that other threads requested and this one has not done; `never`: none.
  std::atomic<std::size_t> trim_target_bytes{never};
};

/// Where a thread finds its cache of a pool without a search: an entry is right if it bears the pool's
/// number, which no other pool ever bears.
struct cache_slot {
  unsigned long long pool = 0;
  thread_cache* cache = nullptr;
};
inline constexpr std::size_t cache_slot_count = 8;  // more pools than that in turn cost a search now and then
// 128 bytes are what the C library keeps free for initial-exec in a shared library loaded later.
TIDEMARK_INITIAL_EXEC extern constinit thread_local std::array<cache_slot, cache_slot_count> cache_slots;

}  // namespace tidemark::detail
