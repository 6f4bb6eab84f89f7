// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which blocks a reuse cache keeps, and in what order they leave. Owns its records, not the blocks.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory_resource>
#include <span>
#include <unordered_map>

#include <tidemark/reuse_cache_options.hpp>
#include <tidemark/reuse_fence.hpp>

namespace tidemark::detail {

struct kept_bucket;

/// The record of a block, beside it and not in it: the block may be where the host cannot write.
struct kept_block {
  /// A place in a list.
  struct links {
    kept_block* previous = nullptr;
    kept_block* next = nullptr;
  };

  void* block = nullptr;
  std::size_t bytes = 0;          // as asked for
  std::size_t align = 0;          // as asked for
  reuse_fence fence;              // empty: ready
  kept_bucket* bucket = nullptr;  // of its size and alignment; may be gone once the block has left it
  links in_all;                   // ready, pending, leaving or spare: always in one of these lists
  links in_bucket;                // ready or pending: in one of the bucket's
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

/// Blocks in the order in which they came, or leave.
using kept_chain = kept_list<&kept_block::in_all>;

/// What the blocks of a bucket have in common; ordered by bytes first.
struct kept_size {
  std::size_t bytes, align;
  friend auto operator<=>(kept_size const&, kept_size const&) = default;
};

/// Buckets, those of the largest blocks first.
using kept_index = std::pmr::map<kept_size, kept_bucket*, std::greater<>>;

/// The kept blocks of one size and alignment.
struct kept_bucket {
  kept_list<&kept_block::in_bucket> ready;    // the oldest first
  kept_list<&kept_block::in_bucket> pending;  // the first is the next whose fence is asked
  kept_index::node_type unlisted;  // its entry in the index while it is not there, and nothing is ready

  [[nodiscard]] bool empty() const noexcept { return ready.empty() && pending.empty(); }
};

/// Blocks by exact size and alignment, ready or behind a fence. Calls no upstream, and of a fence only
/// `done`: what leaves is put into a chain that the caller sees to, and a fence that is done into the
/// caller's hands.
///
/// Invariants: each record is in exactly one of the lists ready, pending, spare, or a chain of the caller's;
/// `ready_bytes() == sum over ready <= cached_bytes_max`, `pending_bytes() == sum over pending`; a ready
/// block's fence is empty, a pending one's is not; each bucket lists the blocks of its size in both lists;
/// with `eviction_order::largest` each bucket is in the index or has its entry, and is there if a block is
/// ready.
///
/// Complexity: O(1) expected where not said otherwise; with `eviction_order::largest` besides O(log(sizes))
/// for each block that leaves and for each size that is new, amortised. One thread at a time.
class kept_blocks {
 public:
  /// At most so many fences are asked for one request.
  static constexpr std::size_t looks_max = 32;
  /// So many sizes of which no block is kept are remembered, lest a size that comes and goes allocates each
  /// time.
  static constexpr std::size_t empty_buckets_max = 4096;

  /// @param options limits, orders and the bookkeeping resource, which is not null
  explicit kept_blocks(reuse_cache_options const& options);
  kept_blocks(kept_blocks const&) = delete;
  kept_blocks& operator=(kept_blocks const&) = delete;

  /// A block of exactly this size and alignment, of those that are ready the one whose turn it is, or else
  /// the first whose fence turns out to be done; asks `looks_max` fences at most, other ones each time.
  /// @return its record, to be given to `recycle`, or null.
  [[nodiscard]] kept_block* take(std::size_t bytes, std::size_t align) noexcept;

  /// Keeps a block, behind `fence` unless that is empty.
  /// @param leaving what must go for it, perhaps itself, is added here
  /// @return false, with nothing changed, if there is no memory for the record.
  [[nodiscard]] bool keep(void* block, std::size_t bytes, std::size_t align, reuse_fence& fence,
                          kept_chain& leaving) noexcept;

  /// Asks as many pending fences as `fences` has room for, other ones each time. Those that are done are
  /// moved there, and their blocks become ready.
  void look(std::span<reuse_fence> fences, kept_chain& leaving) noexcept;

  /// Adds to `leaving` what is ready, the oldest first, and what is pending: all of it, or only that whose
  /// fence is done. They leave with their fences. O(blocks).
  void take_out(bool also_not_done, kept_chain& leaving) noexcept;

  /// Records whose blocks have been seen to, for use again. @pre their fences are empty.
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
      return static_cast<std::size_t>((of.bytes ^ of.align << 48) *
                                      0x9E3779B97F4A7C15u);  // 2^64 / golden ratio
    }
  };
  using buckets = std::pmr::unordered_map<kept_size, kept_bucket, size_hash>;

  [[nodiscard]] kept_bucket& bucket_of(kept_size wanted);
  void add_ready(kept_block& block, kept_chain& leaving) noexcept;
  void remove_ready(kept_block& block) noexcept;
  void remove_pending(kept_block& block) noexcept;
  void evict(kept_block& block, kept_chain& leaving) noexcept;
  [[nodiscard]] kept_block& next_to_leave() noexcept;
  [[nodiscard]] char const* broken_index() const noexcept;

  std::size_t cached_bytes_max_;
  std::size_t bucket_blocks_max_;
  bool oldest_first_;                    // of those of a size that are ready, which one `take` takes
  bool largest_first_;                   // of all that are ready, which one leaves where they are too much
  std::pmr::deque<kept_block> records_;  // a deque, because it grows without moving them
  kept_chain spare_;
  kept_chain ready_;    // became ready first: first
  kept_chain pending_;  // the first is the next whose fence is asked
  buckets buckets_;
  kept_index index_;  // for largest_first_, else empty; hits leave buckets there that they have emptied
  std::size_t buckets_max_ = empty_buckets_max;  // at so many, empty ones are forgotten
  std::size_t ready_bytes_ = 0;
  std::size_t peak_ready_bytes_ = 0;
  std::size_t pending_bytes_ = 0;
};

}  // namespace tidemark::detail
