// SPDX-License-Identifier: Apache-2.0
/// @file
/// `block_cache`: free blocks by size class for one thread, the fast path of every pool; `pending_work`: work
/// that other threads post to this thread; `trim_policy`: when and how far a pool trims. Own no memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include <tidemark/core/detail/size_classes.hpp>
#include <tidemark/core/detail/std_atomics.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/diagnose/detail/sanitizers.hpp>

namespace tidemark::detail {

/// Work for the owner of a cache. The owner's fast path compares the alignment with the largest served
/// alignment. This maximum is 0 while work is pending, so the same comparison finds the work (decision 9). If
/// several trims are requested, the lowest target counts.
///
/// Thread-safety: `serves`, `consume` and `consume_trim` for the owner; all other functions for any thread.
template <class Sync>
class basic_pending_work {
 public:
  static constexpr std::size_t no_trim = (std::numeric_limits<std::size_t>::max)();

  /// @param max_align largest alignment that the fast path serves while no work is pending
  explicit basic_pending_work(std::size_t max_align) noexcept : max_align_{max_align} {}

  /// True if the fast path serves the alignment.
  [[nodiscard]] bool serves(std::size_t align) const noexcept {
    return align <= max_align_.load(std::memory_order_relaxed);
  }
  /// Makes the owner take its slow path in its next call.
  void post() noexcept { max_align_.store(0); }  // no alignment is 0
  /// Like `post`, and the owner trims to `target_bytes` or less; `no_trim`: does not trim.
  // Sequentially consistent, so that no read returns a target that the owner has already taken. The new
  // target would then be dropped.
  void post_trim(std::size_t target_bytes) noexcept {
    std::size_t least = least_target_.load();
    while (target_bytes < least && !least_target_.compare_exchange_weak(least, target_bytes)) {
    }
    post();  // last: the owner reads the target after it takes the post
  }
  [[nodiscard]] bool is_posted() const noexcept { return max_align_.load(std::memory_order_relaxed) == 0; }
  /// Takes posted work, and enables the fast path again. @return true if work was posted since the last call
  [[nodiscard]] bool consume(std::size_t max_align) noexcept {
    return is_posted() && max_align_.exchange(max_align) == 0;
  }
  /// Takes the requested trims, after `consume`. @return the lowest target; `no_trim` if there is none
  [[nodiscard]] std::size_t consume_trim() noexcept { return least_target_.exchange(no_trim); }
  /// Removes the requested trims if a trim to `target_bytes`, which the caller does next, satisfies them.
  void remove_served_trim(std::size_t target_bytes) noexcept {
    std::size_t least = least_target_.load();
    while (target_bytes <= least && least != no_trim &&
           !least_target_.compare_exchange_weak(least, no_trim)) {
    }
  }
  /// The lowest requested target; `no_trim` without a request.
  [[nodiscard]] std::size_t least_target_bytes() const noexcept { return least_target_.load(); }

 private:
  Sync::template atomic<std::size_t> max_align_;
  Sync::template atomic<std::size_t> least_target_{no_trim};
};
using pending_work = basic_pending_work<std_atomics>;

/// Contents of a free block.
struct free_block {
  free_block* next;
};
static_assert(sizeof(free_block) <= size_classes::granule_bytes);

/// A list of free blocks of one size, linked through their first words.
struct block_chain {
  free_block* first = nullptr;
  std::size_t blocks = 0;
};

/// Poisons the bytes of a freed block. Access them only through an `opened_block`.
inline void poison_freed([[maybe_unused]] void* block, std::size_t bytes) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(block);
  if constexpr (check_level >= 2) {
    unpoison(first, bytes);
    std::memset(block, freed_fill, bytes);
  }
  poison(first, bytes);
}

/// Unpoisons the first bytes of a free block, as a `Block`, during its lifetime.
template <class Block>
class opened_block {
 public:
  [[nodiscard]] explicit opened_block(Block* block) noexcept : block_{block} {
    unpoison(reinterpret_cast<std::uintptr_t>(block), sizeof(Block));
    mark_defined(reinterpret_cast<std::uintptr_t>(block), sizeof(Block));
  }
  opened_block(opened_block const&) = delete;
  opened_block& operator=(opened_block const&) = delete;
  ~opened_block() { poison(reinterpret_cast<std::uintptr_t>(block_), sizeof(Block)); }
  Block* operator->() const noexcept { return block_; }

 private:
  Block* block_;
};

/// Returns the next block of a list.
[[nodiscard]] inline free_block* next_of(free_block* block) noexcept { return opened_block{block}->next; }

/// Makes `block` the first block of a list.
inline void link(free_block* block, free_block* next) noexcept { opened_block{block}->next = next; }

/// Returns the last block of a non-empty list. O(blocks).
[[nodiscard]] inline free_block* last_of(free_block* block) noexcept {
  while (free_block* const next = next_of(block)) block = next;
  return block;
}

/// Cuts off the first blocks of a non-empty list: at least one, at most `max_blocks`. O(max_blocks).
[[nodiscard]] inline block_chain cut_front(free_block*& list, std::size_t max_blocks) noexcept {
  block_chain front{list, 1};
  free_block* last = list;
  list = next_of(last);
  for (; list != nullptr && front.blocks < max_blocks; list = next_of(last)) {
    last = list;
    ++front.blocks;
  }
  link(last, nullptr);
  return front;
}

/// Prefetches the block that is allocated next, because that call reads its first word. Blocks freed long ago
/// are not in the caches. Null is allowed.
inline void prefetch(free_block const* block) noexcept { __builtin_prefetch(block, 1); }

/// Decides when a pool trims. A slab returns only when all its blocks are free, so a trim may leave slabs
/// that a later trim can return. Bytes are those of blocks of the size classes. One thread at a time.
class trim_policy {
 public:
  explicit trim_policy(std::size_t max_cached_bytes) noexcept : max_cached_bytes_{max_cached_bytes} {}

  /// Bytes that a trim at the limit leaves cached: half of the limit, so that trims are rare.
  /// The limit therefore causes at most one trim for each half limit of deallocated bytes.
  [[nodiscard]] std::size_t target_bytes() const noexcept { return max_cached_bytes_ / 2; }
  /// Records a trim, and the live bytes at the trim.
  void trimmed(std::size_t live_bytes) noexcept { live_at_trim_ = live_bytes; }

  /// Returns the cached bytes above which a trim is due: the limit, or less while slabs are stranded. With
  /// stranded slabs, a trim is due once the live bytes have fallen by half since the last trim: stranded
  /// slabs may be free then. The fall must also be at least an eighth of the limit, or seven eighths of the
  /// live bytes if these are fewer. The freed bytes then pay for the trim, which visits free blocks of at
  /// most the limit. A pool that holds no more than its limit never trims early.
  [[nodiscard]] std::size_t due_at(std::size_t cached_bytes, std::size_t live_bytes,
                                   std::size_t stranded_bytes) const noexcept {
    const std::size_t free_then = cached_bytes + live_bytes;  // if all blocks were free
    if (stranded_bytes == 0 || live_at_trim_ == 0 || free_then + stranded_bytes <= max_cached_bytes_) {
      return max_cached_bytes_;
    }
    const std::size_t least = (std::min)(max_cached_bytes_ / 8, live_at_trim_ - live_at_trim_ / 8);
    const std::size_t live_then = live_at_trim_ - (std::max)(live_at_trim_ - live_at_trim_ / 2, least);
    return (std::min)(max_cached_bytes_, free_then - (std::min)(free_then, live_then + 1));
  }

 private:
  std::size_t max_cached_bytes_;
  std::size_t live_at_trim_ = 0;
};

/// Result of a deallocation: the block is in its list; it is in its list, and the cached bytes exceed the
/// watermark; or nothing was done.
enum class free_result { listed, over_watermark, not_listed };

/// Blocks allocated and deallocated so far, and allocations that called the upstream.
struct block_counts {
  std::uint64_t allocations = 0, deallocations = 0, misses = 0;
};

/// LIFO lists of free blocks, and counts of allocations and deallocations.
///
/// Invariant, for each size class: `net_received + deallocations - allocations == length of the list`.
///
/// One thread at a time, except `pending`; any thread may read the counts.
class block_cache {
 public:
  explicit block_cache(size_classes const& classes) noexcept
      : classes_{classes}, table_end_{classes.table_end()}, pending_{classes.fast_alignment()} {}

  /// Takes a block; null if the list is empty, or the fast path does not serve the request (size, alignment,
  /// pending work). O(1).
  [[nodiscard]] void* try_allocate(std::size_t bytes, std::size_t align) noexcept {
    const std::size_t last = size_classes::last_offset(bytes, align);
    if (!is_fast(last, align)) [[unlikely]]
      return nullptr;
    return pop_block(classes_.index_at(last), bytes);
  }
  [[nodiscard]] void* pop_block(std::size_t index, std::size_t bytes) noexcept {
    free_block* const block = first_[index];
    if (block == nullptr) [[unlikely]]
      return nullptr;
    free_block* const next = next_of(block);
    prefetch(next);
    first_[index] = next;
    allocations_[index].add(1);
    cached_bytes_.subtract(classes_.bytes(index));
    requested_bytes_.add(bytes);
    unpoison(reinterpret_cast<std::uintptr_t>(block), bytes);
    return block;
  }

  /// Adds a block to its list. O(1).
  [[nodiscard]] free_result try_deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
    const std::size_t last = size_classes::last_offset(bytes, align);
    if (!is_fast(last, align)) [[unlikely]]
      return free_result::not_listed;
    return push_block(classes_.index_at(last), block, bytes);
  }
  [[nodiscard]] free_result push_block(std::size_t index, void* block, std::size_t bytes) noexcept {
    const std::size_t block_bytes = classes_.bytes(index);
    auto* const freed = static_cast<free_block*>(block);
    poison_freed(block, block_bytes);
    link(freed, first_[index]);
    first_[index] = freed;
    deallocations_[index].add(1);
    requested_bytes_.subtract(bytes);
    return cached_bytes_.add(block_bytes) > watermark_ ? free_result::over_watermark : free_result::listed;
  }

  /// Puts a chain into an empty list. The caller counts its bytes.
  void push_all(std::size_t index, block_chain chain) noexcept {
    first_[index] = chain.first;
    net_received_[index] += chain.blocks;
  }
  /// Takes a whole list. The caller counts its bytes.
  [[nodiscard]] block_chain pop_all(std::size_t index) noexcept {
    const block_chain all = list(index);
    first_[index] = nullptr;
    net_received_[index] -= all.blocks;
    return all;
  }

  [[nodiscard]] block_chain list(std::size_t index) const noexcept {
    return {first_[index], listed_blocks(index)};
  }
  [[nodiscard]] std::size_t listed_blocks(std::size_t index) const noexcept {
    return net_received_[index] + deallocations(index) - allocations(index);
  }
  /// Blocks taken by `try_allocate`; `deallocations` are blocks added by `try_deallocate`. Any thread.
  [[nodiscard]] std::uint64_t allocations(std::size_t index) const noexcept {
    return allocations_[index].value();
  }
  [[nodiscard]] std::uint64_t deallocations(std::size_t index) const noexcept {
    return deallocations_[index].value();
  }
  [[nodiscard]] size_classes const& classes() const noexcept { return classes_; }

  /// Clears all lists; live blocks count as deallocated.
  void forget() noexcept {
    first_ = {};
    net_received_ = {};
    for (std::size_t i = 0; i < classes_.count(); ++i) deallocations_[i].set(allocations(i));
    cached_bytes_.set(0);
    requested_bytes_.set(0);
  }

  /// Adds the counts of a cache whose thread has ended, without its blocks.
  void add_counts(block_cache const& other) noexcept {
    for (std::size_t i = 0; i < classes_.count(); ++i) {
      const std::uint64_t allocations = other.allocations(i), deallocations = other.deallocations(i);
      allocations_[i].add(allocations);
      deallocations_[i].add(deallocations);
      net_received_[i] += allocations - deallocations;
    }
    cached_bytes_.add(other.cached_bytes());
    requested_bytes_.add(other.requested_bytes());
  }

  /// Bytes counted as cached here. `try_deallocate` adds and `try_allocate` subtracts; the owner counts all
  /// other changes.
  [[nodiscard]] std::size_t cached_bytes() const noexcept { return cached_bytes_.value(); }
  void add_cached(std::size_t bytes) noexcept { cached_bytes_.add(bytes); }
  void subtract_cached(std::size_t bytes) noexcept { cached_bytes_.subtract(bytes); }
  /// Requested bytes minus deallocated bytes. May wrap below 0 for one cache, but not for all caches of a
  /// pool.
  [[nodiscard]] std::size_t requested_bytes() const noexcept { return requested_bytes_.value(); }
  /// Sets the cached bytes above which `try_deallocate` reports.
  void set_watermark(std::size_t bytes) noexcept { watermark_ = bytes; }

  /// Work for the owner. While work is posted, `try_allocate` and `try_deallocate` fail, so the owner takes
  /// its slow path. Any thread.
  [[nodiscard]] pending_work& pending() noexcept { return pending_; }
  /// Returns true if work was posted since the last call. Owner only.
  [[nodiscard]] bool consume_pending_work() noexcept { return pending_.consume(classes_.fast_alignment()); }

 private:
  [[nodiscard]] bool is_fast(std::size_t last, std::size_t align) const noexcept {
    return last < table_end_ && pending_.serves(align);
  }

  template <class T>
  using per_class = std::array<T, size_classes::max_count>;

  // One array for each member, not one record for each class: indexing words needs no extra instruction.
  per_class<free_block*> first_{};
  per_class<single_writer<std::uint64_t>> allocations_;    // by `try_allocate`
  per_class<single_writer<std::uint64_t>> deallocations_;  // by `try_deallocate`
  per_class<std::uint64_t> net_received_{};                // by `push_all`, minus blocks taken by `pop_all`
  size_classes classes_;
  std::size_t table_end_;  // classes_.table_end()
  pending_work pending_;
  std::size_t watermark_ = 0;
  single_writer<std::size_t> cached_bytes_, requested_bytes_;
};

}  // namespace tidemark::detail
