// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which blocks a reuse cache keeps, and in what order they leave. Owns its records, not the blocks.
#pragma once

#include <compare>
#include <cstddef>
#include <deque>
#include <memory_resource>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/reuse_fence.hpp>

namespace tidemark::detail {

struct blocks_of_size;

/// The record of a block, beside it and not in it: the block may be where the host cannot write.
struct kept_block {
  /// A place in a list.
  struct links {
    kept_block* previous = nullptr;
    kept_block* next = nullptr;
  };

  void* block = nullptr;
  std::size_t bytes = 0;              // as requested
  std::size_t align = 0;              // as requested
  reuse_fence fence;                  // empty: ready
  blocks_of_size* of_size = nullptr;  // of its size and alignment; may be gone once the block has left it
  links in_all;                       // ready, pending, leaving or spare: always in one of these lists
  links in_size;                      // ready or pending: in one of `of_size`
};

/// A list through one pair of links of the blocks: it allocates nothing and each step is O(1).
template <kept_block::links kept_block::* Links>
class kept_list {
 public:
  [[nodiscard]] bool empty() const noexcept { return front_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] kept_block* front() const noexcept { return front_; }
  [[nodiscard]] kept_block* back() const noexcept { return back_; }
  [[nodiscard]] static kept_block* after(kept_block const& block) noexcept { return (block.*Links).next; }

  void push_back(kept_block& block) noexcept {
    block.*Links = {.previous = back_, .next = nullptr};
    (back_ != nullptr ? (back_->*Links).next : front_) = &block;
    back_ = &block;
    ++size_;
  }
  /// @pre it is in this list.
  void remove(kept_block& block) noexcept {
    const kept_block::links around = block.*Links;
    (around.previous != nullptr ? (around.previous->*Links).next : front_) = around.next;
    (around.next != nullptr ? (around.next->*Links).previous : back_) = around.previous;
    --size_;
  }
  /// The first becomes the last. @pre not empty.
  void rotate() noexcept {
    kept_block& first = *front_;
    remove(first);
    push_back(first);
  }
  /// Takes over all of `other`, behind its own.
  void append(kept_list& other) noexcept {
    if (other.empty()) return;
    (other.front_->*Links).previous = back_;
    (back_ != nullptr ? (back_->*Links).next : front_) = other.front_;
    back_ = other.back_;
    size_ += other.size_;
    other = {};
  }

 private:
  kept_block* front_ = nullptr;
  kept_block* back_ = nullptr;
  std::size_t size_ = 0;
};

/// Blocks in the order in which they were added, or leave.
using kept_chain = kept_list<&kept_block::in_all>;

/// Size and alignment of blocks; ordered by bytes first.
struct kept_size {
  std::size_t bytes, align;
  friend auto operator<=>(kept_size const&, kept_size const&) = default;
};

/// The kept blocks of one size and alignment.
struct blocks_of_size {
  kept_list<&kept_block::in_size> ready;    // the oldest first
  kept_list<&kept_block::in_size> pending;  // the first is the next whose fence is queried
  bool is_indexed = false;

  [[nodiscard]] bool empty() const noexcept { return ready.empty() && pending.empty(); }
};

/// Blocks by exact size and alignment, ready or behind a fence. Calls no upstream, and of a fence only
/// `done`: blocks that leave are put into a chain of the caller's, and fences that are done are moved to the
/// caller.
///
/// Invariants: each record is in exactly one of the lists ready, pending, spare, or a chain of the caller's;
/// `ready_bytes() == sum over ready <= max_cached_bytes`, `pending_bytes() == sum over pending`; a ready
/// block's fence is empty, a pending one's is not; both lists of a size have blocks of that size;
/// with `largest_first` each size with a ready block is in the index.
///
/// Complexity: O(1) expected where not said otherwise; with `largest_first` besides O(log(sizes))
/// for each block that leaves and for each size that is new, amortised. One thread at a time.
class kept_blocks {
 public:
  /// At most so many fences are queried for one request.
  static constexpr std::size_t max_looks = 32;
  /// So many sizes of which no block is kept are remembered, so that a size that comes and goes does not
  /// allocate each time.
  static constexpr std::size_t max_empty_sizes = 4096;

  /// Limits, 0 for no limit, and orders.
  struct settings {
    std::size_t max_cached_bytes, max_blocks_per_size;
    bool oldest_first;   // of those of a size that are ready, `take` takes the oldest
    bool largest_first;  // of all that are ready, the largest leave first where they are too much
  };

  kept_blocks(settings const& with, std::pmr::memory_resource* bookkeeping)
      : settings_{with}, records_{bookkeeping}, sizes_{bookkeeping}, index_{bookkeeping} {}
  kept_blocks(kept_blocks const&) = delete;
  kept_blocks& operator=(kept_blocks const&) = delete;

  /// A block of exactly this size and alignment, of those that are ready the one whose turn it is, or else
  /// the first whose fence turns out to be done; queries `max_looks` fences at most, other ones each time.
  /// @return its record, to be given to `recycle`, or null.
  [[nodiscard]] kept_block* take(std::size_t bytes, std::size_t align) noexcept;

  /// Keeps a block, behind `fence` unless that is empty.
  /// @param leaving what must go for it, perhaps itself, is added here
  /// @return false, with nothing changed, if there is no memory for the record.
  [[nodiscard]] bool keep(void* block, std::size_t bytes, std::size_t align, reuse_fence& fence,
                          kept_chain& leaving) noexcept;

  /// Queries as many pending fences as `fences` has room for, other ones each time. Those that are done are
  /// moved there, and their blocks become ready.
  void look(std::span<reuse_fence> fences, kept_chain& leaving) noexcept;

  /// Adds to `leaving` what is ready, the oldest first, and what is pending: all of it, or only that whose
  /// fence is done. They leave with their fences. O(blocks).
  void take_out(bool also_not_done, kept_chain& leaving) noexcept;

  /// Records whose blocks have been reused or returned, for use again. @pre their fences are empty.
  void recycle(kept_chain& done) noexcept { spare_.append(done); }
  void recycle(kept_block& done) noexcept { spare_.push_back(done); }

  [[nodiscard]] std::size_t ready_bytes() const noexcept { return ready_bytes_; }
  [[nodiscard]] std::size_t peak_ready_bytes() const noexcept { return peak_ready_bytes_; }
  [[nodiscard]] std::size_t pending_bytes() const noexcept { return pending_bytes_; }

  /// The first invariant that does not hold, or null. O(records).
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  struct size_hash {
    std::size_t operator()(kept_size const& of) const noexcept {
      return static_cast<std::size_t>(fibonacci_hash(of.bytes ^ of.align << 48));
    }
  };
  using sizes = std::pmr::unordered_map<kept_size, blocks_of_size, size_hash>;

  [[nodiscard]] blocks_of_size& size_entry(kept_size wanted);
  void add_ready(kept_block& block, kept_chain& leaving) noexcept;
  void remove_ready(kept_block& block) noexcept;
  /// The first of a list of pending blocks, if its fence is done; otherwise that becomes the last.
  template <class List>
  [[nodiscard]] kept_block* take_pending(List& among, bool also_not_done = false) noexcept;
  void evict(kept_block& block, kept_chain& leaving) noexcept;
  [[nodiscard]] kept_block& next_to_leave() noexcept;

  settings settings_;
  std::pmr::deque<kept_block> records_;  // a deque, because it grows without moving them
  kept_chain spare_;
  kept_chain ready_;    // became ready first: first
  kept_chain pending_;  // the first is the next whose fence is queried
  sizes sizes_;
  // For `largest_first`, else empty: a heap, the largest size first. Has room for all sizes. Hits leave sizes
  // there that they have emptied.
  std::pmr::vector<std::pair<kept_size, blocks_of_size*>> index_;
  std::size_t max_sizes_ = max_empty_sizes;  // at so many, empty ones are forgotten
  std::size_t ready_bytes_ = 0;
  std::size_t peak_ready_bytes_ = 0;
  std::size_t pending_bytes_ = 0;
};

}  // namespace tidemark::detail
