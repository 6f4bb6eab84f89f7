// SPDX-License-Identifier: Apache-2.0
/// @file
/// `thread_cache`: one thread's free blocks of a `synchronized_pool`, which owns them. `cache_share`: the
/// limit of the cache; `heap_block_cache`: cached blocks of the heap.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/size_classes.hpp>
#include <tidemark/core/detail/std_atomics.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>
#include <tidemark/pool/detail/block_cache.hpp>
#include <tidemark/pool/detail/coalescing_heap.hpp>

namespace tidemark::detail {

/// The limit of a thread's cache.
///
/// A cache may hold `start_bytes`, plus the net bytes that its thread has received from other threads, but at
/// most the thread's share of the pool's limit. A thread that frees its own blocks caches all
/// of them, up to the share. A thread that frees blocks of others passes them on.
///
/// A chain has a quarter of the limit. The cache is full if it has no room for another half chain. Heap
/// blocks may use the part that the lists do not use of the limit, or of `start_heap_bytes` if that is more.
///
/// Invariant: `min(start_bytes, share) <= limit() <= share`. Only the thread uses it; the share may change
/// meanwhile.
class cache_share {
 public:
  static constexpr std::size_t start_bytes = 256 * KiB;
  // More for heap blocks: a thread passes on fifteen blocks of 64 KiB at once, and takes the lock once.
  static constexpr std::size_t start_heap_bytes = 1 * MiB;
  static constexpr std::size_t never = (std::numeric_limits<std::size_t>::max)();

  /// @param share bytes for each thread; belongs to the pool and outlives this object
  explicit cache_share(std::atomic<std::size_t> const& share) noexcept : share_{&share} {
    update_heap_bytes();
  }

  /// Maximum bytes of the cache.
  [[nodiscard]] std::size_t limit() const noexcept {
    const std::size_t share = *share_;
    return (std::min)(share, start_bytes + (std::min)(received_bytes_, share));
  }
  /// Bytes of a chain: few enough to stay in a core's cache on the way from thread to thread.
  [[nodiscard]] std::size_t chain_bytes() const noexcept { return (std::min)(limit() / 4, 256 * KiB); }
  /// True if the lists could exceed the limit before they report, or there are too many heap blocks.
  [[nodiscard]] bool is_full(std::size_t listed_bytes, std::size_t heap_block_bytes) const noexcept {
    return listed_bytes + chain_bytes() / 2 > limit() || listed_bytes + heap_block_bytes > heap_limit();
  }

  /// Counts bytes that the thread received from other threads, or from new memory.
  void on_receive(std::size_t bytes) noexcept {
    received_bytes_ += bytes;
    update_heap_bytes();
  }
  /// Counts bytes that the thread passed on to other threads. `never` resets the count.
  void on_pass_on(std::size_t bytes) noexcept {
    received_bytes_ -= (std::min)(received_bytes_, bytes);
    update_heap_bytes();
  }

  /// Sets and returns the bytes above which the lists report: half a chain above `listed_bytes`, or the bytes
  /// of `report_above` if these are fewer. @param listed_bytes bytes in the lists now
  std::size_t set_watermark(std::size_t listed_bytes) noexcept {
    watermark_ = (std::min)(report_above_, listed_bytes + chain_bytes() / 2);
    update_heap_bytes();
    return watermark_;
  }
  /// Makes the lists report above `listed_bytes`, even if that is less than half a chain. `never`: cancels
  /// the request.
  void report_above(std::size_t listed_bytes) noexcept { report_above_ = listed_bytes; }
  /// Maximum bytes of heap blocks beside the lists, as of the last other call.
  [[nodiscard]] std::size_t heap_bytes() const noexcept { return heap_bytes_; }

 private:
  // Maximum bytes of lists and heap blocks.
  [[nodiscard]] std::size_t heap_limit() const noexcept {
    return (std::max)(limit(), (std::min<std::size_t>)(*share_, start_heap_bytes));
  }
  void update_heap_bytes() noexcept {
    const std::size_t most = heap_limit();
    heap_bytes_ = most - (std::min)(most, watermark_);
  }

  std::atomic<std::size_t> const* share_;
  std::size_t received_bytes_ = 0;  // from other threads, minus bytes passed on
  std::size_t report_above_ = never;
  std::size_t watermark_ = 0, heap_bytes_ = 0;
};

/// LIFO lists of free heap blocks, each of ranges of exactly one size, because a repeated step requests the
/// same sizes. The heap counts these blocks as live, and does not merge them until the thread returns them.
///
/// Each size hashes to one place of a table, and replaces an earlier size that has no more blocks. Invariant:
/// `bytes() == sum over listed ranges`. O(1) unless stated otherwise. One thread at a time; any thread may
/// read the counts.
class heap_block_cache {
 public:
  /// Takes a block; null if no block of that size is cached, or the newest is not sufficiently aligned. @pre
  /// the heap serves such blocks, here and below
  [[nodiscard]] void* try_allocate(std::size_t bytes, std::size_t align) noexcept {
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

  /// Caches a block. @return false if blocks of another size occupy its place; nothing has changed then
  [[nodiscard]] bool try_deallocate(void* block, std::size_t bytes) noexcept {
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

  /// Takes passed-on blocks of one size from the shared cache, or passes blocks of a thread on to it. O(1)
  /// if this cache has no such block and takes all that are passed on, otherwise O(blocks).
  /// @return their bytes, at most `max_bytes`; 0 if blocks of another size occupy their place here
  [[nodiscard]] std::size_t take(heap_block_cache& from, std::size_t bytes, std::size_t max_bytes) noexcept {
    const std::size_t range_bytes = coalescing_heap::range_bytes(bytes), place = place_of(range_bytes);
    list &own = lists_[place], &other = from.lists_[place];
    if (own.first != nullptr && own.range_bytes != range_bytes) return 0;
    if (other.range_bytes != range_bytes || other.first == nullptr || max_bytes < range_bytes) return 0;
    block_chain taken{other.first, other.passed_on_blocks};
    const std::size_t room = max_bytes / range_bytes;
    if (taken.blocks == 0) {  // the blocks of a thread
      taken = cut_front(other.first, room);
      own.passed_on_blocks += taken.blocks;
    } else {
      if (taken.blocks <= room) other.first = nullptr;
      else taken = cut_front(other.first, (std::min)(room, max_cut_blocks));
      other.passed_on_blocks -= taken.blocks;
    }
    if (own.first != nullptr) link(last_of(taken.first), own.first);
    own.range_bytes = range_bytes;
    own.first = taken.first;
    from.bytes_.subtract(taken.blocks * range_bytes);
    bytes_.add(taken.blocks * range_bytes);
    return taken.blocks * range_bytes;
  }

  /// Calls `release(block)` until at most `max_bytes` are cached: all blocks of one size, then of the next
  /// place, in rotation. O(places) plus the blocks.
  template <class Release>
  void shrink(std::size_t max_bytes, Release release) noexcept {
    for (std::size_t visited = 0; bytes() > max_bytes && visited < place_count; ++visited) {
      empty_to(max_bytes, lists_[next_shrunk_], release);
      if (lists_[next_shrunk_].first == nullptr) next_shrunk_ = (next_shrunk_ + 1) % place_count;
    }
  }
  /// Does the same for all blocks in the place of size `bytes`, which becomes free.
  template <class Release>
  void evict_place(std::size_t bytes, Release release) noexcept {
    empty_to(0, lists_[place_of(coalescing_heap::range_bytes(bytes))], release);
  }

  /// Bytes of all listed ranges. Any thread.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_.value(); }
  /// Blocks taken by `try_allocate` so far; `deallocations`: blocks added by `try_deallocate`. Any thread.
  [[nodiscard]] std::uint64_t allocations() const noexcept { return allocations_.value(); }
  [[nodiscard]] std::uint64_t deallocations() const noexcept { return deallocations_.value(); }
  /// Requested bytes of blocks taken, minus those of blocks given. May wrap below 0. Any thread.
  [[nodiscard]] std::size_t requested_bytes() const noexcept { return requested_bytes_.value(); }

  /// Clears all lists; live blocks count as deallocated.
  void forget() noexcept {
    lists_ = {};
    deallocations_.set(allocations());
    bytes_.set(0);
    requested_bytes_.set(0);
  }
  /// Adds the counts of a cache whose thread has ended.
  void add_counts(heap_block_cache const& other) noexcept {
    allocations_.add(other.allocations());
    deallocations_.add(other.deallocations());
    bytes_.add(other.bytes());
    requested_bytes_.add(other.requested_bytes());
  }

  /// True if the invariant holds. O(blocks).
  [[nodiscard]] bool is_counted() const noexcept {
    std::size_t sum = 0;
    for (list const& each : lists_)
      for (free_block* block = each.first; block != nullptr; block = next_of(block)) sum += each.range_bytes;
    return sum == bytes();
  }

 private:
  static constexpr std::size_t place_count = 64;
  // A cut reads each block, which the other thread wrote, while both threads wait for the lock.
  static constexpr std::size_t max_cut_blocks = 8;

  struct list {
    std::size_t range_bytes = 0;
    free_block* first = nullptr;
    std::size_t passed_on_blocks = 0;  // number of blocks, if threads have passed them on; otherwise 0
  };

  [[nodiscard]] static std::size_t place_of(std::size_t range_bytes) noexcept {
    return fibonacci_hash(range_bytes) >> (64 - std::bit_width(place_count - 1));
  }
  template <class Release>
  void empty_to(std::size_t max_bytes, list& own, Release release) noexcept {
    for (; own.first != nullptr && bytes() > max_bytes; own.passed_on_blocks = 0) {
      bytes_.subtract(own.range_bytes);
      release(std::exchange(own.first, next_of(own.first)));
    }
  }

  std::array<list, place_count> lists_{};
  std::size_t next_shrunk_ = 0;
  single_writer<std::uint64_t> allocations_, deallocations_;
  single_writer<std::size_t> bytes_, requested_bytes_;
};

/// A thread's free blocks: blocks of the size classes, and blocks of the heap. Only the thread uses it; any
/// thread may read the counts.
struct thread_cache {
  /// @param share_bytes limit of each thread of the pool
  thread_cache(size_classes const& classes, std::atomic<std::size_t> const& share_bytes) noexcept
      : blocks{classes}, share{share_bytes} {}

  /// Bytes of heap blocks that the cache may still take.
  [[nodiscard]] std::size_t heap_room() const noexcept {
    return share.heap_bytes() - (std::min)(share.heap_bytes(), heap_blocks.bytes());
  }
  /// Sets the watermark half a chain above the current bytes.
  void update_watermark() noexcept { blocks.set_watermark(share.set_watermark(blocks.cached_bytes())); }
  /// Bytes of all cached blocks. Any thread.
  [[nodiscard]] std::size_t cached_bytes() const noexcept {
    return blocks.cached_bytes() + heap_blocks.bytes();
  }
  /// Clears all lists; live blocks count as deallocated.
  void forget() noexcept {
    blocks.forget();
    heap_blocks.forget();
    share.on_pass_on(cache_share::never);
  }
  /// Adds the counts of a cache whose thread has ended.
  void add_counts(thread_cache const& other) noexcept {
    blocks.add_counts(other.blocks);
    heap_blocks.add_counts(other.heap_blocks);
  }

  block_cache blocks;
  heap_block_cache heap_blocks;
  cache_share share;
};

}  // namespace tidemark::detail
