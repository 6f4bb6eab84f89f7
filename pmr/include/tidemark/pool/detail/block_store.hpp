// SPDX-License-Identifier: Apache-2.0
/// @file
/// `block_store`: the memory of a pool: slabs for the size classes, and a heap for larger blocks. Owns both.
/// `pool_blocks`: a `block_cache` on a store, for host memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <limits>
#include <memory_resource>
#include <new>
#include <utility>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/size_classes.hpp>
#include <tidemark/pool/detail/block_cache.hpp>
#include <tidemark/pool/detail/coalescing_heap.hpp>
#include <tidemark/pool/detail/slab_store.hpp>
#include <tidemark/pool/pool_options.hpp>

namespace tidemark::detail {

/// Takes memory from the upstream and returns it, for `pool` and for `synchronized_pool`.
///
/// `relieve()` returns memory to the upstream before a retry, and returns the bytes returned. One thread at a
/// time.
///
/// @tparam Lists holds the free blocks of the size classes and counts cached bytes: a `block_cache` or a
/// `depot`
template <class Lists>
class block_store {
 public:
  /// Allocates the initial blocks of the options, as far as the limit allows.
  /// @param options as `completed`
  /// @param max_free_bytes limit of lists, uncarved blocks and free chunks of the heap together
  /// @param max_heap_block_bytes maximum bytes of a cached block of the heap, if `max_chunk_bytes` is not less;
  /// not used without `keep_large_blocks`
  /// @throws whatever the upstream throws
  block_store(size_classes const& classes, Lists& lists, pool_options options, std::size_t max_free_bytes,
              std::size_t max_heap_block_bytes)
      : options_{std::move(options)},
        classes_{classes},
        lists_{lists},
        slabs_{classes, options_.upstream, options_.max_blocks_per_slab},
        heap_{options_.upstream},
        max_free_bytes_{max_free_bytes},
        max_heap_block_bytes_{options_.keep_large_blocks
                                  ? (std::min)(max_chunk_bytes(max_heap_block_bytes), largest_possible)
                                  : 0} {
    for (std::size_t i = 0; i < classes_.count(); ++i) {
      const std::size_t bytes = classes_.bytes(i);
      const std::size_t blocks = bytes <= 1 * KiB    ? options_.small_block_count
                                 : bytes <= 16 * KiB ? options_.medium_block_count
                                                     : 0;
      if (blocks > 0 && bytes <= room()) lists_.add_cached(slabs_.add_slab(i, blocks, room()));
    }
  }

  /// Returns blocks for an empty list, from an existing or a new slab. They count as cached.
  /// @throws whatever the upstream throws; nothing has changed then
  template <class Relieve>
  [[nodiscard]] block_chain refill(std::size_t index, std::size_t max_carved_bytes,
                                   std::size_t max_stranded_bytes, Relieve relieve) {
    block_chain chain = slabs_.carve(index, max_carved_bytes);
    if (chain.blocks > 0) return chain;
    chain = slabs_.unstrand(index, max_stranded_bytes);
    lists_.add_cached(chain.blocks * classes_.bytes(index));
    if (chain.blocks > 0) return chain;
    constexpr std::size_t no_limit = (std::numeric_limits<std::size_t>::max)();
    lists_.add_cached(call_upstream([&] { return slabs_.add_slab(index, 0, no_limit); }, relieve));
    ++counts_.misses;
    return slabs_.carve(index, max_carved_bytes);
  }

  /// Allocates a block of the heap; null if no free range that was tried fits. @pre `is_of_heap()`
  [[nodiscard]] void* allocate_from_heap(std::size_t bytes, std::size_t align) noexcept {
    void* const block = counting_cached([&] { return heap_.try_allocate(bytes, align); });
    if (block != nullptr) ++counts_.allocations;
    return block;
  }
  /// Allocates a block beyond the size classes. @throws whatever the upstream throws; nothing has changed
  /// then
  template <class Relieve>
  [[nodiscard]] void* allocate_large(std::size_t bytes, std::size_t align, Relieve relieve) {
    const bool is_cached = is_of_heap(bytes, align);
    void* block = is_cached ? allocate_from_heap(bytes, align) : nullptr;
    if (block != nullptr) return block;
    // Half of the room, because the chunk is cached when it is free, and other freed blocks need room, too.
    const auto add_chunk = [&] { return heap_.allocate(bytes, align, is_cached ? chunk_room() / 2 : 0); };
    // Returns free chunks as large as the block first, so that free memory does not add up beside large blocks.
    if (is_cached && bytes >= coalescing_heap::min_lone_bytes)
      release_chunks(lists_.cached_bytes() - (std::min)(lists_.cached_bytes(), bytes));
    block = call_upstream([&] { return counting_cached(add_chunk); }, relieve);
    ++counts_.misses;
    ++counts_.allocations;
    return block;
  }
  /// @param bytes, align as passed to the allocation
  void deallocate_large(void* block, std::size_t bytes, std::size_t align) noexcept {
    ++counts_.deallocations;
    if (!is_of_heap(bytes, align)) return heap_.return_chunk_of(block, bytes);
    return_to_heap(block, bytes);
  }
  /// True if the heap keeps the free range of a block beyond the size classes. The chunk of another block
  /// goes directly to the upstream; a larger alignment would leave too much memory before the block. Any
  /// thread.
  [[nodiscard]] bool is_of_heap(std::size_t bytes, std::size_t align) const noexcept {
    return bytes >= coalescing_heap::min_block_bytes && bytes <= max_heap_block_bytes_ &&
           align <= size_classes::max_alignment;
  }
  /// Deallocates a block of the heap like `deallocate_large`, without counting the call.
  /// @param requested_bytes 0 if already counted as deallocated
  void return_to_heap(void* block, std::size_t requested_bytes) noexcept {
    counting_cached([&] { return heap_.deallocate(block, requested_bytes), 0; });
    make_room();
  }

  /// Sets the limit. Any thread; `make_room` and the next trim use it.
  void set_max_free_bytes(std::size_t bytes) noexcept { max_free_bytes_ = bytes; }
  [[nodiscard]] std::size_t max_free_bytes() const noexcept { return max_free_bytes_; }
  /// Maximum bytes of free chunks for a limit of free bytes. Small blocks are cut from a large free chunk,
  /// which then cannot be returned: with a limit of 128 MiB for both kinds, steps of a U-Net hold 1.16 times
  /// their live bytes, with 64 MiB for chunks 1.02 times.
  [[nodiscard]] static constexpr std::size_t max_chunk_bytes(std::size_t max_free_bytes) noexcept {
    return (std::min)(max_free_bytes, (std::max)(max_free_bytes / 2, 64 * MiB));
  }
  /// If a limit is exceeded, returns free chunks of the heap one by one until their bytes are a sixteenth
  /// below the limit. The next freed blocks then have room.
  void make_room() noexcept {
    const std::size_t most = max_free_bytes_, most_in_chunks = max_chunk_bytes(most);
    if (lists_.cached_bytes() > most) release_chunks(most - most / 16);
    if (heap_.cached_bytes() > most_in_chunks)
      lists_.subtract_cached(
          heap_.release_free(heap_.cached_bytes() - (most_in_chunks - most_in_chunks / 16)));
  }
  /// Returns free chunks and free slabs to the upstream until at most `target_bytes` are free, including
  /// stranded blocks of slabs. @return bytes returned
  std::size_t release_free(std::size_t target_bytes) noexcept {
    const std::size_t held_before = held_bytes();
    release_chunks(target_bytes);
    remove_from_lists(
        target_bytes, [&] { return lists_.cached_bytes() + slabs_.stranded_bytes(); },
        &slab_store::release_free_slabs);
    return held_before - held_bytes();
  }
  /// Strands blocks of slabs until at most `target_bytes` are cached.
  void strand(std::size_t target_bytes) noexcept {
    remove_from_lists(target_bytes, [&] { return lists_.cached_bytes(); }, &slab_store::strand);
  }
  /// Returns all memory to the upstream; large blocks count as deallocated.
  void release() noexcept {
    heap_.release();
    slabs_.release();
    counts_.deallocations = counts_.allocations;
  }

  /// The options in effect.
  [[nodiscard]] pool_options const& options() const noexcept { return options_; }
  /// Bytes that may still be cached.
  [[nodiscard]] std::size_t room() const noexcept {
    const std::size_t most = max_free_bytes_;
    return most - (std::min)(lists_.cached_bytes(), most);
  }
  /// Bytes that free chunks may still have.
  [[nodiscard]] std::size_t chunk_room() const noexcept {
    const std::size_t most = max_chunk_bytes(max_free_bytes_);
    return (std::min)(room(), most - (std::min)(heap_.cached_bytes(), most));
  }
  /// Allocations and deallocations of blocks beyond the size classes, and misses of all blocks.
  [[nodiscard]] block_counts const& counts() const noexcept { return counts_; }
  [[nodiscard]] std::size_t held_bytes() const noexcept {
    return slabs_.held_bytes() + slabs_.unused_region_bytes() + heap_.held_bytes();
  }
  [[nodiscard]] std::size_t stranded_bytes() const noexcept {
    return slabs_.stranded_bytes() + slabs_.unused_region_bytes() + heap_.stranded_bytes();
  }
  /// Stranded bytes in slabs. All blocks of such a slab may be free already, until a trim finds the slab.
  [[nodiscard]] std::size_t stranded_block_bytes() const noexcept { return slabs_.stranded_bytes(); }
  /// Bytes of live blocks beyond the size classes; `requested_large_bytes` are the requested bytes of these.
  [[nodiscard]] std::size_t used_large_bytes() const noexcept { return heap_.used_bytes(); }
  [[nodiscard]] std::size_t requested_large_bytes() const noexcept { return heap_.requested_bytes(); }
  /// Cached bytes that are in no list.
  [[nodiscard]] std::size_t unlisted_bytes() const noexcept {
    return slabs_.uncarved_bytes() + heap_.cached_bytes();
  }
  /// Live and cached bytes of the size classes, and cached bytes of the heap.
  [[nodiscard]] std::size_t reachable_bytes() const noexcept {
    return slabs_.held_bytes() + heap_.cached_bytes() - slabs_.stranded_bytes();
  }
  /// Returns the first broken invariant as a formula; null if all hold.
  [[nodiscard]] char const* broken_invariant() const noexcept {
    char const* const formula = slabs_.broken_invariant();
    return formula != nullptr ? formula : heap_.broken_invariant();
  }
  /// Does the same for a list of free blocks of a class.
  [[nodiscard]] char const* broken_list(std::size_t index, block_chain list) const noexcept {
    std::size_t blocks = 0;
    for (free_block* block = list.first; block != nullptr; block = next_of(block)) {
      if (!slabs_.is_block_of(block, index)) return "a listed block is one of a slab of its class";
      ++blocks;
    }
    return blocks == list.blocks ? nullptr : "listed == net_received + deallocations - allocations";
  }

 private:
  // Retries once after `relieve`, unless `relieve` returned no memory.
  template <class Call, class Relieve>
  static auto call_upstream(Call call, Relieve relieve) {
    try {
      return call();
    } catch (std::bad_alloc const&) {
      if (relieve() == 0) throw;
    }
    return call();
  }
  // No object is larger, and sums with this limit do not overflow.
  static constexpr std::size_t largest_possible = (std::numeric_limits<std::ptrdiff_t>::max)() / 2;

  // Calls `call`, and counts the change of the heap's cached bytes.
  template <class Call>
  auto counting_cached(Call call) {
    const std::size_t before = heap_.cached_bytes();
    const auto result = call();
    lists_.add_cached(heap_.cached_bytes() - before);  // modulo 2^64
    return result;
  }
  void release_chunks(std::size_t target_bytes) noexcept {
    const std::size_t cached = lists_.cached_bytes();
    if (cached > target_bytes) lists_.subtract_cached(heap_.release_free(cached - target_bytes));
  }
  // Starts with the largest blocks, because fewer of them need to be touched. `free_bytes()` is read for each
  // class, because other threads may take blocks meanwhile.
  template <class Bytes, class Take>
  void remove_from_lists(std::size_t target_bytes, Bytes free_bytes, Take take) noexcept {
    for (std::size_t i = classes_.count(); i-- > 0;) {
      const std::size_t bytes = free_bytes();
      if (bytes <= target_bytes) return;
      block_chain all = lists_.pop_all(i);
      const std::size_t gone = (slabs_.*take)(i, all, bytes - target_bytes);
      lists_.push_all(i, all);
      lists_.subtract_cached(gone * classes_.bytes(i));
    }
  }

  pool_options options_;
  size_classes const& classes_;
  Lists& lists_;
  slab_store slabs_;
  coalescing_heap heap_;
  std::atomic<std::size_t> max_free_bytes_;
  std::size_t max_heap_block_bytes_;
  block_counts counts_{};
};

/// A `block_cache` on a `block_store`: the free lists of a `basic_pool` on host memory. Free chunks of the heap
/// and uncarved blocks also count as cached.
class pool_blocks : public block_cache, public block_store<block_cache> {
 public:
  static constexpr char const* kind = "pool";
  static constexpr bool host_accessible = true;
  static constexpr std::size_t default_alignment = alignof(std::max_align_t);

  /// @param upstream null: the default resource
  /// @throws std::invalid_argument for impossible sizes of classes; whatever the upstream throws
  pool_blocks(pool_options const& options, std::pmr::memory_resource* upstream);

  /// Allocates after `try_allocate` returned null. @throws whatever the upstream throws, after one retry with
  /// `release_free(0)`
  [[nodiscard]] void* allocate_slow(std::size_t bytes, std::size_t align);
  /// Deallocates after `try_deallocate` returned `result`. @pre `result` is not `listed`
  void deallocate_slow(void* block, std::size_t bytes, std::size_t align, free_result result) noexcept;
  /// Returns all memory to the upstream.
  void release() noexcept {
    block_store::release();
    forget();
  }

  [[nodiscard]] block_counts counts() const noexcept;
  [[nodiscard]] std::size_t requested_bytes() const noexcept {
    return block_cache::requested_bytes() + requested_large_bytes();
  }
  /// Bytes of live blocks of the size classes.
  [[nodiscard]] std::size_t live_bytes() const noexcept { return reachable_bytes() - cached_bytes(); }
  /// Returns the first broken invariant as a formula; null if all hold. O(free blocks * log(slabs)).
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  void drain_pending_work() noexcept {
    if (consume_pending_work()) (void)release_free(0);  // memory is short
  }
};

}  // namespace tidemark::detail
