// SPDX-License-Identifier: Apache-2.0
/// @file
/// `block_cache`: free blocks by size class, for one thread: the fast path of every pool; and how other
/// threads post work to that thread. Owns no memory.
#pragma once

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

/// The trims that were requested and are not done yet: of several, the one with the least target counts.
///
/// Any thread.
template <class Sync>
class basic_trim_requests {
 public:
  static constexpr std::size_t none = (std::numeric_limits<std::size_t>::max)();

  /// Requests a trim, or none.
  // Sequentially consistent: a target that the owner has taken in the meantime must not be read, because the
  // new one would be left out for its sake.
  void add(std::size_t target_bytes) noexcept {
    std::size_t least = least_.load();
    while (target_bytes < least && !least_.compare_exchange_weak(least, target_bytes)) {
    }
  }
  /// Takes all of them. @return the least target, to which the caller trims; `none` if there are none.
  [[nodiscard]] std::size_t take() noexcept { return least_.exchange(none); }
  /// Removes all of them if a trim to this target, which the caller does after this, serves the least.
  void remove_served(std::size_t target_bytes) noexcept {
    std::size_t least = least_.load();
    while (target_bytes <= least && least != none && !least_.compare_exchange_weak(least, none)) {
    }
  }
  /// The least target; `none` if there are none.
  [[nodiscard]] std::size_t least_target_bytes() const noexcept { return least_.load(); }

 private:
  Sync::template atomic<std::size_t> least_{none};
};
using trim_requests = basic_trim_requests<std_atomics>;

/// Work for the owner of a cache, which it finds by a comparison that its fast path makes anyway: of the
/// alignment with the largest that is served, which is 0 while work is pending (decision 9).
///
/// `serves`, `take` and `take_trim`: the owner. All else: any thread.
template <class Sync>
class basic_pending_work {
 public:
  /// @param max_align what the fast path serves while nothing is pending
  explicit basic_pending_work(std::size_t max_align) noexcept : max_align_{max_align} {}

  /// Whether the fast path serves the alignment.
  [[nodiscard]] bool serves(std::size_t align) const noexcept {
    return align <= max_align_.load(std::memory_order_relaxed);
  }
  /// The owner comes to its slow path in its next call.
  void post() noexcept { max_align_.store(0); }  // no alignment is so small
  /// The same, and trims to `target_bytes` there, or to less.
  void post_trim(std::size_t target_bytes) noexcept {
    trims_.add(target_bytes);  // first: the owner looks for it once it has taken what was posted
    post();
  }
  [[nodiscard]] bool is_posted() const noexcept { return max_align_.load(std::memory_order_relaxed) == 0; }
  /// Takes what was posted; the fast path goes on. @return whether anything was, since the last call.
  [[nodiscard]] bool take(std::size_t max_align) noexcept {
    return is_posted() && max_align_.exchange(max_align) == 0;
  }
  /// After `take`. @return the target of the trim to do; `trim_requests::none` if there is none.
  [[nodiscard]] std::size_t take_trim() noexcept { return trims_.take(); }

 private:
  Sync::template atomic<std::size_t> max_align_;
  basic_trim_requests<Sync> trims_;
};
using pending_work = basic_pending_work<std_atomics>;

/// What a free block holds.
struct free_block {
  free_block* next;
};
static_assert(sizeof(free_block) <= size_classes::granule_bytes);

/// A list of free blocks of one size, linked through their first words.
struct block_chain {
  free_block* first = nullptr;
  std::size_t blocks = 0;
};

/// A block was freed: its bytes are not to be touched, except through an `opened_block`.
inline void poison_freed([[maybe_unused]] void* block, std::size_t bytes) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(block);
  if constexpr (check_level >= 2) {
    unpoison(first, bytes);
    std::memset(block, freed_fill, bytes);
  }
  poison(first, bytes);
}

/// A free block may be touched, as a `Block`, while this lives.
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

/// The next block of a list.
[[nodiscard]] inline free_block* next_of(free_block* block) noexcept { return opened_block{block}->next; }

/// Makes `block` the first of a list.
inline void link(free_block* block, free_block* next) noexcept { opened_block{block}->next = next; }

/// Cuts the first blocks off a list that is not empty, `max_blocks` at most, and at least one. O(max_blocks).
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

/// Prefetches the block that is allocated next, whose first word that call waits for: blocks freed long ago
/// have left the caches. Null is no fault.
inline void prefetch([[maybe_unused]] free_block const* block) noexcept {
#if defined(__GNUC__) || defined(__clang__)
  __builtin_prefetch(block, 1);
#endif
}

/// What became of a deallocated block: it is in its list; it is, and more is cached than the watermark; or
/// nothing was done.
enum class free_result { listed, over_watermark, not_listed };

/// Blocks allocated and deallocated so far, and the allocations for which the upstream was called.
struct block_counts {
  std::uint64_t allocations = 0, deallocations = 0, misses = 0;
};

/// Free blocks in lists, last in, first out, and the counts of what went in and out.
///
/// Invariant, per size class: `net_received + deallocations - allocations` is the length of the list. It ends
/// with `add_counts`, after which only counts are of use.
///
/// One thread at a time, except `post`, `post_trim` and what counts, which any thread may read.
class block_cache {
 public:
  explicit block_cache(size_classes const& classes) noexcept
      : classes_{classes}, table_end_{classes.table_end()}, pending_{classes.fast_alignment()} {}

  /// A block; null if the fast path cannot serve it (size, alignment, pending work) or its list is empty.
  /// O(1).
  [[nodiscard]] void* take(std::size_t bytes, std::size_t align) noexcept {
    const std::size_t last = size_classes::last_offset(bytes, align);
    if (!is_fast(last, align)) [[unlikely]]
      return nullptr;
    return take_from(classes_.index_at(last), bytes);
  }
  [[nodiscard]] void* take_from(std::size_t index, std::size_t bytes) noexcept {
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

  /// Takes a block back. O(1).
  [[nodiscard]] free_result give(void* block, std::size_t bytes, std::size_t align) noexcept {
    const std::size_t last = size_classes::last_offset(bytes, align);
    if (!is_fast(last, align)) [[unlikely]]
      return free_result::not_listed;
    return give_to(classes_.index_at(last), block, bytes);
  }
  [[nodiscard]] free_result give_to(std::size_t index, void* block, std::size_t bytes) noexcept {
    const std::size_t block_bytes = classes_.bytes(index);
    auto* const freed = static_cast<free_block*>(block);
    poison_freed(block, block_bytes);
    link(freed, first_[index]);
    first_[index] = freed;
    deallocations_[index].add(1);
    requested_bytes_.subtract(bytes);
    return cached_bytes_.add(block_bytes) > watermark_ ? free_result::over_watermark : free_result::listed;
  }

  /// Counts a block as deallocated that is put into no list, where only counts are of use.
  void count_deallocation(std::size_t index, std::size_t bytes) noexcept {
    deallocations_[index].add(1);
    requested_bytes_.subtract(bytes);
  }

  /// Puts a chain into an empty list. Its bytes are the caller's to count.
  void put_all(std::size_t index, block_chain chain) noexcept {
    first_[index] = chain.first;
    net_received_[index] += chain.blocks;
  }
  /// Takes a whole list. Its bytes are the caller's to count.
  [[nodiscard]] block_chain take_all(std::size_t index) noexcept {
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
  /// Blocks taken from the list by `take`, and given to it by `give`. Any thread.
  [[nodiscard]] std::uint64_t allocations(std::size_t index) const noexcept {
    return allocations_[index].value();
  }
  [[nodiscard]] std::uint64_t deallocations(std::size_t index) const noexcept {
    return deallocations_[index].value();
  }
  [[nodiscard]] size_classes const& classes() const noexcept { return classes_; }

  /// Forgets all lists; live blocks count as deallocated.
  void forget() noexcept {
    first_ = {};
    net_received_ = {};
    for (std::size_t i = 0; i < classes_.count(); ++i) deallocations_[i].set(allocations(i));
    cached_bytes_.set(0);
    requested_bytes_.set(0);
  }

  /// Adds what another cache has counted, whose thread is gone.
  void add_counts(block_cache const& other) noexcept {
    for (std::size_t i = 0; i < classes_.count(); ++i) {
      allocations_[i].add(other.allocations(i));
      deallocations_[i].add(other.deallocations(i));
    }
    cached_bytes_.add(other.cached_bytes());
    requested_bytes_.add(other.requested_bytes());
  }

  /// Bytes that are counted as cached here: `give` adds, `take` subtracts, and the owner counts all other
  /// changes.
  [[nodiscard]] std::size_t cached_bytes() const noexcept { return cached_bytes_.value(); }
  void add_cached(std::size_t bytes) noexcept { cached_bytes_.add(bytes); }
  void subtract_cached(std::size_t bytes) noexcept { cached_bytes_.subtract(bytes); }
  /// Bytes requested, less those deallocated: of one cache it may wrap below 0, over all caches of a pool it
  /// does not.
  [[nodiscard]] std::size_t requested_bytes() const noexcept { return requested_bytes_.value(); }
  /// `give` reports when more than this is cached.
  void set_watermark(std::size_t bytes) noexcept { watermark_ = bytes; }

  /// Posts work to the owner, or a trim: its next `take` or `give` fails, so that it comes to its slow path.
  /// Any thread.
  void post() noexcept { pending_.post(); }
  void post_trim(std::size_t target_bytes) noexcept { pending_.post_trim(target_bytes); }
  [[nodiscard]] bool has_pending_work() const noexcept { return pending_.is_posted(); }
  /// Whether work was posted since the last call. The owner's.
  [[nodiscard]] bool take_pending_work() noexcept { return pending_.take(classes_.fast_alignment()); }
  /// After it: the target of the trim that was posted; `trim_requests::none` if none was. The owner's.
  [[nodiscard]] std::size_t take_trim() noexcept { return pending_.take_trim(); }

 private:
  [[nodiscard]] bool is_fast(std::size_t last, std::size_t align) const noexcept {
    return last < table_end_ && pending_.serves(align);
  }

  template <class T>
  using per_class = std::array<T, size_classes::max_count>;

  // An array a member, and not a record a class: an index into words needs no instruction of its own.
  per_class<free_block*> first_{};
  per_class<single_writer<std::uint64_t>> allocations_;    // from this list
  per_class<single_writer<std::uint64_t>> deallocations_;  // into this list
  per_class<std::uint64_t> net_received_{};  // put into the list otherwise, less those taken out
  size_classes classes_;
  std::size_t table_end_;  // classes_.table_end()
  pending_work pending_;
  std::size_t watermark_ = 0;
  single_writer<std::size_t> cached_bytes_;
  single_writer<std::size_t> requested_bytes_;
};

}  // namespace tidemark::detail
