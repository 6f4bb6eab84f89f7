// SPDX-License-Identifier: Apache-2.0
/// @file
/// `block_cache`: free blocks by size class, for one thread: the fast path of every pool. Owns no memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tidemark/config.hpp>
#include <tidemark/detail/sanitizers.hpp>
#include <tidemark/detail/single_writer.hpp>
#include <tidemark/detail/size_classes.hpp>
#include <tidemark/violation.hpp>

namespace tidemark::detail {

/// What a free block holds. The last two words only have a meaning in the first block of a chain in a depot.
struct free_block {
  free_block* next;
  free_block* next_chain;
  std::size_t chain_blocks;
};
static_assert(sizeof(free_block) <= size_classes::block_bytes_min);
inline constexpr std::size_t link_bytes = sizeof(free_block*);  // of a block in a list, all that is used

/// A list of free blocks of one size, linked through their first words.
struct block_chain {
  free_block* first = nullptr;
  std::size_t blocks = 0;
};

/// The next block of a list. It may be read although nobody may touch free blocks.
[[nodiscard]] inline free_block* next_of(free_block* block) noexcept {
  hand_out(reinterpret_cast<std::uintptr_t>(block), link_bytes);
  mark_defined(reinterpret_cast<std::uintptr_t>(block), link_bytes);
  free_block* const next = block->next;
  withhold(reinterpret_cast<std::uintptr_t>(block), link_bytes);
  return next;
}

/// Makes `block` the first of a list.
inline void link(free_block* block, free_block* next) noexcept {
  hand_out(reinterpret_cast<std::uintptr_t>(block), link_bytes);
  block->next = next;
  withhold(reinterpret_cast<std::uintptr_t>(block), link_bytes);
}

/// Asks for the cache line of the block that is handed out next, whose first word that call waits for: blocks
/// freed long ago have left the caches. Null is no fault.
inline void prefetch([[maybe_unused]] free_block const* block) noexcept {
#if defined(__GNUC__) || defined(__clang__)
  __builtin_prefetch(block, 1);
#endif
}

/// What became of a block given back: it is in its list; it is, and more is cached than `watermark`; or
/// nothing was done.
enum class given { kept, over_watermark, not_fast };

/// Free blocks in lists, last in, first out, and the counts of what went in and out.
///
/// Invariants, per bucket: `listed_blocks == net_received + deallocations - allocations`, which is the length
/// of the list; blocks of size 0 bytes and of `block_bytes` bytes are the same to it.
///
/// One thread at a time, but for `request_attention` and what counts, which any thread may read.
class block_cache {
 public:
  struct alignas(64) bucket {  // a cache line each
    free_block* free = nullptr;
    std::size_t block_bytes = 0;
    single_writer<std::uint64_t> allocations;    // blocks that this thread handed out
    single_writer<std::uint64_t> deallocations;  // blocks that this thread took back
    std::uint64_t net_received = 0;              // blocks put into the list otherwise, less those taken out
    /// Length of the list.
    [[nodiscard]] std::size_t listed_blocks() const noexcept {
      return net_received + deallocations.value() - allocations.value();
    }
  };

  explicit block_cache(size_classes const& classes) noexcept
      : classes_{classes},
        small_bytes_max_{classes.small_bytes_max()},
        align_max_{classes.common_alignment()} {
    for (std::size_t i = 0; i < classes.count(); ++i) buckets_[i].block_bytes = classes.bytes(i);
  }

  /// A block, or null: then this is none for the fast path (size, alignment, attention), or its list is
  /// empty. O(1).
  [[nodiscard]] void* take(std::size_t bytes, std::size_t align) noexcept {
    if (!is_fast(bytes, align)) [[unlikely]]
      return nullptr;
    return take_from(buckets_[classes_.index_of_small(bytes)], bytes);
  }
  [[nodiscard]] void* take_from(bucket& from, std::size_t bytes) noexcept {
    free_block* const block = from.free;
    if (block == nullptr) [[unlikely]]
      return nullptr;
    free_block* const next = next_of(block);
    prefetch(next);
    from.free = next;
    from.allocations.add(1);
    cached_bytes_.subtract(from.block_bytes);
    requested_bytes_.add(bytes);
    hand_out(reinterpret_cast<std::uintptr_t>(block), bytes);
    return block;
  }

  /// Takes a block back. O(1).
  [[nodiscard]] given give(void* block, std::size_t bytes, std::size_t align) noexcept {
    if (!is_fast(bytes, align)) [[unlikely]]
      return given::not_fast;
    return give_to(buckets_[classes_.index_of_small(bytes)], block, bytes);
  }
  [[nodiscard]] given give_to(bucket& to, void* block, std::size_t bytes) noexcept {
    const auto first = reinterpret_cast<std::uintptr_t>(block);
    hand_out(first, to.block_bytes);
    if constexpr (check_level >= 2) std::memset(block, rewound_fill, to.block_bytes);
    auto* const freed = static_cast<free_block*>(block);
    freed->next = to.free;
    withhold(first, to.block_bytes);
    to.free = freed;
    to.deallocations.add(1);
    requested_bytes_.subtract(bytes);
    return cached_bytes_.add(to.block_bytes) > watermark_ ? given::over_watermark : given::kept;
  }

  /// Puts a chain in front of an empty list. Its bytes are the caller's to count.
  void put(bucket& to, block_chain chain) noexcept {
    to.free = chain.first;
    to.net_received += chain.blocks;
  }
  /// Takes the whole list. Its bytes are the caller's to count.
  [[nodiscard]] block_chain take_all(bucket& from) noexcept {
    const block_chain all{from.free, from.listed_blocks()};
    from.free = nullptr;
    from.net_received -= all.blocks;
    return all;
  }

  [[nodiscard]] bucket& at(std::size_t i) noexcept { return buckets_[i]; }
  [[nodiscard]] bucket const& at(std::size_t i) const noexcept { return buckets_[i]; }
  [[nodiscard]] size_classes const& classes() const noexcept { return classes_; }

  /// Forgets all lists; what was handed out counts as taken back.
  void forget() noexcept {
    for (bucket& b : buckets_) {
      b.free = nullptr;
      b.deallocations.set(b.allocations.value());
      b.net_received = 0;
    }
    cached_bytes_.set(0);
    requested_bytes_.set(0);
  }

  /// Bytes that are counted as cached here: `give` adds, `take` subtracts, and the owner counts what else
  /// comes and goes.
  [[nodiscard]] std::size_t cached_bytes() const noexcept { return cached_bytes_.value(); }
  void add_cached(std::size_t bytes) noexcept { cached_bytes_.add(bytes); }
  void subtract_cached(std::size_t bytes) noexcept { cached_bytes_.subtract(bytes); }
  /// Bytes asked for, less those given back: of one cache it may wrap below 0, over all caches of a pool it
  /// does not.
  [[nodiscard]] std::size_t requested_bytes() const noexcept { return requested_bytes_.value(); }
  /// `give` tells when more than this is cached.
  void set_watermark(std::size_t bytes) noexcept { watermark_ = bytes; }

  /// Makes the owner's next `take` or `give` fail, so that it comes to its slow path and calls `attend`. Any
  /// thread.
  void request_attention() noexcept {
    attention_.store(true);
    align_max_.store(0);  // no alignment is that small: the check that the fast path has anyway fails
  }
  /// Whether attention was requested since the last call. The owner's.
  [[nodiscard]] bool attend() noexcept {
    align_max_.store(classes_.common_alignment());
    return attention_.exchange(false);
  }
  [[nodiscard]] bool wants_attention() const noexcept {
    return align_max_.load(std::memory_order_relaxed) == 0;
  }

 private:
  [[nodiscard]] bool is_fast(std::size_t bytes, std::size_t align) const noexcept {
    return bytes <= small_bytes_max_ && align <= align_max_.load(std::memory_order_relaxed);
  }

  std::array<bucket, size_classes::count_max> buckets_;
  size_classes classes_;
  std::size_t small_bytes_max_;         // classes_.small_bytes_max()
  std::atomic<std::size_t> align_max_;  // classes_.common_alignment(), or 0 when attention is requested
  std::atomic<bool> attention_{false};
  std::size_t watermark_ = 0;
  single_writer<std::size_t> cached_bytes_;
  single_writer<std::size_t> requested_bytes_;
};

}  // namespace tidemark::detail
