// SPDX-License-Identifier: Apache-2.0
/// @file
/// `thread_cache`: the free blocks that one thread has of one `synchronized_pool`, which owns them.
/// `cache_share`: the bytes it may keep; `heap_block_cache`: its blocks of the heap.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/size_classes.hpp>
#include <tidemark/core/detail/std_atomics.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/pool/detail/block_cache.hpp>
#include <tidemark/pool/detail/coalescing_heap.hpp>
#include <tidemark/pool/detail/depot.hpp>

namespace tidemark::detail {

/// The limit of a thread's cache.
///
/// One rule: a cache may hold `start_bytes`, and the bytes that its thread has taken from others and not left
/// to them, but never more than a thread's share of the pool's limit. A thread that frees its own blocks
/// caches all of them, up to the share. A thread that frees the blocks of others passes them on instead: they
/// are needed elsewhere.
///
/// Everything else follows from the limit: a chain has a quarter of it, and the cache is full where half a
/// chain more does not fit. The lists report at a watermark, half a chain above their bytes at the last look,
/// or at `look_at` if the pool wants a look before. Heap blocks get the rest of the limit.
///
/// Invariant: `start <= limit() <= share` where `start` is `start_bytes`, or the share if
/// that is less. The thread alone uses it; the share may change meanwhile.
class cache_share {
 public:
  static constexpr std::size_t start_bytes = 256 * KiB;
  static constexpr std::size_t never = (std::numeric_limits<std::size_t>::max)();

  /// @param share bytes for each thread; the pool's, which outlives this object
  explicit cache_share(std::atomic<std::size_t> const& share) noexcept : share_{&share} {}

  /// Bytes that the cache may hold.
  [[nodiscard]] std::size_t limit() const noexcept {
    const std::size_t share = *share_;
    return (std::min)(share, start_bytes + (std::min)(taken_, share));
  }
  /// Bytes of a chain: few enough to stay in a core's cache on its way from thread to thread.
  [[nodiscard]] std::size_t chain_bytes() const noexcept { return (std::min)(limit() / 4, 256 * KiB); }
  /// Whether the lists may take the cache beyond its limit before they report.
  [[nodiscard]] bool is_full(std::size_t cached_bytes) const noexcept {
    return cached_bytes + chain_bytes() / 2 > limit();
  }

  /// The thread took free bytes from others, or new ones.
  void on_take(std::size_t bytes) noexcept { taken_ += bytes; }
  /// The thread left bytes to others.
  void on_leave(std::size_t bytes) noexcept { taken_ -= (std::min)(taken_, bytes); }
  /// The cache has no blocks any more.
  void forget() noexcept { taken_ = 0; }

  /// The lists report when they hold more than this. @param listed_bytes they hold now
  std::size_t set_watermark(std::size_t listed_bytes) noexcept {
    return watermark_ = (std::min)(look_at_, listed_bytes + chain_bytes() / 2);
  }
  /// The lists report when they hold more than this, also if that is less than half a chain; `never`: not
  /// wanted.
  void look_at(std::size_t listed_bytes) noexcept { look_at_ = listed_bytes; }
  /// Bytes of heap blocks that fit beside the lists.
  [[nodiscard]] std::size_t heap_bytes() const noexcept {
    const std::size_t most = limit();
    return most - (std::min)(most, watermark_);
  }

 private:
  std::atomic<std::size_t> const* share_;
  std::size_t taken_ = 0;  // from others, less what was left to them
  std::size_t watermark_ = 0;
  std::size_t look_at_ = never;
};

/// Lists of free blocks, last in, first out, each of ranges of exactly one size, which a step that runs again
/// asks for again. To the heap they are live: they are not merged until the thread gives them back.
///
/// A size has one place in a table, and takes it over from a size that has no more blocks. Invariant:
/// `bytes() == sum over listed ranges`. O(1) where not said otherwise. One thread at a time, except what
/// counts, which any thread may read.
class heap_block_cache {
 public:
  /// A block; null if there is none of that size, or the one freed last is not so aligned. @pre the heap has
  /// such blocks, here and below.
  [[nodiscard]] void* take(std::size_t bytes, std::size_t align) noexcept {
    const std::size_t range_bytes = coalescing_heap::range_bytes(bytes);
    list& own = lists_[place_of(range_bytes)];
    free_block* const block = own.first;
    if (own.range_bytes != range_bytes || block == nullptr || (address_of(block) & (align - 1)) != 0)
      return nullptr;
    own.first = next_of(block);
    allocations_.add(1);
    bytes_.subtract(range_bytes);
    requested_bytes_.add(bytes);
    unpoison(address_of(block), bytes);
    return block;
  }

  /// Takes a block back. @return false if blocks of another size have its place; nothing has changed then.
  [[nodiscard]] bool give(void* block, std::size_t bytes) noexcept {
    const std::size_t range_bytes = coalescing_heap::range_bytes(bytes);
    list& own = lists_[place_of(range_bytes)];
    if (own.range_bytes != range_bytes) {
      if (own.first != nullptr) return false;
      own.range_bytes = range_bytes;
    }
    poison_freed(block, range_bytes - coalescing_heap::tag_bytes);
    auto* const freed = static_cast<free_block*>(block);
    link(freed, own.first);
    own.first = freed;
    deallocations_.add(1);
    bytes_.add(range_bytes);
    requested_bytes_.subtract(bytes);
    return true;
  }

  /// Calls `give_back(block)` for blocks until `max_bytes` at most are left: all of a size, then those of the
  /// next place, so that each has its turn. O(places) besides the blocks.
  template <class GiveBack>
  void shrink(std::size_t max_bytes, GiveBack give_back) noexcept {
    for (std::size_t visited = 0; bytes() > max_bytes && visited < place_count; ++visited) {
      next_shrunk_ = (next_shrunk_ + 1) % place_count;
      empty_to(max_bytes, lists_[next_shrunk_], give_back);
    }
  }
  /// The same for all blocks of the size that has the place of one of `bytes`.
  template <class GiveBack>
  void make_place(std::size_t bytes, GiveBack give_back) noexcept {
    empty_to(0, lists_[place_of(coalescing_heap::range_bytes(bytes))], give_back);
  }

  /// Of all ranges listed. Any thread.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_.value(); }
  /// Blocks taken and given so far. Any thread.
  [[nodiscard]] std::uint64_t allocations() const noexcept { return allocations_.value(); }
  [[nodiscard]] std::uint64_t deallocations() const noexcept { return deallocations_.value(); }
  /// Bytes requested of blocks taken, less those of blocks given: it may wrap below 0. Any thread.
  [[nodiscard]] std::size_t requested_bytes() const noexcept { return requested_bytes_.value(); }

  /// Forgets all lists; live blocks count as deallocated.
  void forget() noexcept {
    lists_ = {};
    deallocations_.set(allocations());
    bytes_.set(0);
    requested_bytes_.set(0);
  }
  /// Adds what another cache has counted, whose thread is gone.
  void add_counts(heap_block_cache const& other) noexcept {
    allocations_.add(other.allocations());
    deallocations_.add(other.deallocations());
    bytes_.add(other.bytes());
    requested_bytes_.add(other.requested_bytes());
  }

  /// Whether the invariant holds. O(blocks).
  [[nodiscard]] bool is_counted() const noexcept {
    std::size_t sum = 0;
    for (list const& each : lists_) {
      for (free_block* block = each.first; block != nullptr; block = next_of(block)) sum += each.range_bytes;
    }
    return sum == bytes();
  }

 private:
  static constexpr std::size_t place_count = 64;

  struct list {
    std::size_t range_bytes = 0;
    free_block* first = nullptr;
  };

  [[nodiscard]] static std::size_t place_of(std::size_t range_bytes) noexcept {
    return fibonacci_hash(range_bytes) >> (64 - std::bit_width(place_count - 1));
  }
  template <class GiveBack>
  void empty_to(std::size_t max_bytes, list& own, GiveBack give_back) noexcept {
    while (own.first != nullptr && bytes() > max_bytes) {
      free_block* const block = own.first;
      own.first = next_of(block);
      bytes_.subtract(own.range_bytes);
      give_back(block);
    }
  }

  std::array<list, place_count> lists_{};
  std::size_t next_shrunk_ = 0;
  single_writer<std::uint64_t> allocations_;
  single_writer<std::uint64_t> deallocations_;
  single_writer<std::size_t> bytes_;
  single_writer<std::size_t> requested_bytes_;
};

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
