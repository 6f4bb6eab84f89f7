// SPDX-License-Identifier: Apache-2.0
/// @file
/// `kept_blocks`: the blocks that a reuse cache keeps, and the order in which they leave. Owns its records,
/// not the blocks.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory_resource>
#include <mutex>
#include <span>
#include <vector>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/reuse_fence.hpp>

namespace tidemark::detail {

struct blocks_of_size;

/// The record of a block. It lies beside the block, because the host may be unable to write the block.
struct kept_block {
  /// Position in a list.
  struct links {
    kept_block* previous = nullptr;
    kept_block* next = nullptr;
  };

  void* block = nullptr;
  std::size_t bytes = 0;              // as requested
  std::size_t align = 0;              // as requested
  reuse_fence fence;                  // empty if ready
  void const* order = nullptr;        // the fence's order, read once
  bool is_queried = false;            // a thread queries the fence without the lock; the block must stay
  blocks_of_size* of_size = nullptr;  // its size and alignment; may dangle once the block has left the entry
  links in_all;                       // in the pending, leaving or spare list
  links in_size;                      // in the ready or pending list of `of_size`
};

/// An intrusive list through one pair of links. It allocates nothing, and each step is O(1).
template <kept_block::links kept_block::* Links>
class kept_list {
 public:
  [[nodiscard]] bool empty() const noexcept { return front_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] kept_block* front() const noexcept { return front_; }
  [[nodiscard]] static kept_block* after(kept_block const& block) noexcept { return (block.*Links).next; }

  void push_back(kept_block& block) noexcept {
    block.*Links = {.previous = back_, .next = nullptr};
    (back_ != nullptr ? (back_->*Links).next : front_) = &block;
    back_ = &block;
    ++size_;
  }
  /// @pre the block is in this list
  void remove(kept_block& block) noexcept {
    const kept_block::links around = block.*Links;
    (around.previous != nullptr ? (around.previous->*Links).next : front_) = around.next;
    (around.next != nullptr ? (around.next->*Links).previous : back_) = around.previous;
    --size_;
  }
  /// Moves the first block to the end. @pre not empty
  void rotate() noexcept {
    kept_block& first = *front_;
    remove(first);
    push_back(first);
  }
  /// Moves all blocks of `other` to the end of this list.
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

/// Blocks in the order in which they were added, or in which they leave.
using kept_chain = kept_list<&kept_block::in_all>;

/// Remaining queries of one call, so that the call queries no fence twice.
struct pending_looks {
  std::size_t in_all;     // fences
  std::size_t of_queues;  // queues whose first fence was not yet found unfinished
  std::size_t of_others;  // fences without an order
};

/// Blocks behind fences. Each order of fences has a queue, of which only the first fence is queried. Fences
/// without an order are in a list, and are queried in rotation. Queues and list are queried alternately.
///
/// Invariants: no queue is empty; queues have distinct orders; a fence is in the queue of its order, or in
/// the list if it has no order; `size() == sum over queues and list`.
///
/// Complexity: O(queues) to add and to remove a block. Queues are few: the streams that have blocks here.
template <kept_block::links kept_block::* Links>
class pending_blocks {
 public:
  explicit pending_blocks(std::pmr::memory_resource* bookkeeping) : queues_{bookkeeping} {}

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Makes room for a block of any order. @throws whatever the bookkeeping resource throws
  void reserve_one() {
    if (queues_.size() == queues_.capacity()) queues_.reserve(2 * queues_.size() + 1);
  }
  /// @pre `reserve_one()` was called
  void push_back(kept_block& block) noexcept {
    ++size_;
    if (block.order == nullptr) return others_.push_back(block);
    auto found = find(block.order);
    if (found == queues_.end())
      found = queues_.insert(queues_.end(), queue{.order = block.order, .blocks = {}});
    found->blocks.push_back(block);
  }
  /// @pre the block is here, with its fence
  void remove(kept_block& block) noexcept {
    --size_;
    if (block.order == nullptr) return others_.remove(block);
    const auto found = find(block.order);
    found->blocks.remove(block);
    if (!found->blocks.empty()) return;
    const auto index = static_cast<std::size_t>(found - queues_.begin());
    queues_.erase(found);
    if (index < turn_) --turn_;
    if (turn_ == queues_.size()) turn_ = 0;
  }

  /// Returns the queries of one call, at most `at_most`.
  [[nodiscard]] pending_looks looks(std::size_t at_most) const noexcept {
    return {.in_all = at_most, .of_queues = queues_.size(), .of_others = others_.size()};
  }
  /// Returns the next block to query, marked as queried; null if `left` allows no more queries. Successive
  /// calls choose other fences. The caller queries the fence without a lock, then calls `end_query`.
  [[nodiscard]] kept_block* begin_query(pending_looks& left) noexcept {
    while (left.in_all > 0 && (left.of_queues > 0 || left.of_others > 0)) {
      --left.in_all;
      is_turn_of_queues_ = !is_turn_of_queues_;
      const bool of_queue = left.of_queues > 0 && (is_turn_of_queues_ || left.of_others == 0);
      // Other threads may have emptied either since the last query.
      if (of_queue ? queues_.empty() : others_.empty()) {
        (of_queue ? left.of_queues : left.of_others) = 0;
        continue;
      }
      kept_block& first = *(of_queue ? queues_[turn_].blocks : others_).front();
      if (!of_queue) {
        --left.of_others;
        others_.rotate();
      } else if (first.is_queried) {  // another thread queries this fence
        --left.of_queues;
        turn_ = (turn_ + 1) % queues_.size();
      }
      if (first.is_queried) continue;
      first.is_queried = true;
      return &first;
    }
    return nullptr;
  }
  /// Ends a query, and removes the block if its fence is done. @pre `begin_query` returned the block
  void end_query(kept_block& block, bool is_done, pending_looks& left) noexcept {
    block.is_queried = false;
    if (block.order != nullptr) {
      const auto found = find(block.order);
      if (!is_done) turn_ = static_cast<std::size_t>(found - queues_.begin() + 1) % queues_.size();
      if (!is_done || found->blocks.size() == 1) left.of_queues -= std::min<std::size_t>(left.of_queues, 1);
    }
    if (is_done) remove(block);
  }
  /// Clears the marks of queries in a forked child, because no other thread runs there. O(blocks).
  void forget_queries() noexcept {
    for_each([](kept_block& block) { block.is_queried = false; });
  }
  /// Removes and returns a block that no thread queries, without a query; null if there is none. Blocks of a
  /// queue leave in order.
  [[nodiscard]] kept_block* take_any() noexcept {
    kept_block* found = first_unqueried(others_);
    for (auto of = queues_.begin(); found == nullptr && of != queues_.end(); ++of)
      found = first_unqueried(of->blocks);
    if (found != nullptr) remove(*found);
    return found;
  }

  /// Calls `visit` for each block. O(blocks).
  template <class Visit>
  void for_each(Visit visit) const {
    for_each_of(others_, visit);
    for (queue const& each : queues_) for_each_of(each.blocks, visit);
  }
  /// True if the invariants hold. O(blocks * queues).
  [[nodiscard]] bool is_valid() const noexcept {
    std::size_t blocks = others_.size();
    bool valid = turn_ == 0 || turn_ < queues_.size();
    for_each_of(others_, [&](kept_block const& block) { valid = valid && block.order == nullptr; });
    for (queue const& each : queues_) {
      blocks += each.blocks.size();
      valid = valid && !each.blocks.empty() && each.order != nullptr &&
              std::ranges::count(queues_, each.order, &queue::order) == 1;
      for_each_of(each.blocks, [&](kept_block const& block) { valid = valid && block.order == each.order; });
    }
    return valid && blocks == size_;
  }

 private:
  using list = kept_list<Links>;
  struct queue {
    void const* order;
    list blocks;  // in order of addition
  };

  [[nodiscard]] auto find(void const* order) noexcept {
    return std::ranges::find(queues_, order, &queue::order);
  }
  [[nodiscard]] static kept_block* first_unqueried(list const& blocks) noexcept {
    kept_block* block = blocks.front();
    while (block != nullptr && block->is_queried) block = list::after(*block);
    return block;
  }
  template <class Visit>
  static void for_each_of(list const& blocks, Visit visit) {
    for (kept_block* block = blocks.front(); block != nullptr; block = list::after(*block)) visit(*block);
  }

  std::pmr::vector<queue> queues_;
  list others_;                     // fences without an order, the next to query first
  std::size_t size_ = 0;            // of queues and list
  std::size_t turn_ = 0;            // index of the next queue to query
  bool is_turn_of_queues_ = false;  // true if the last turn was a queue's, false if the list's
};

/// Size and alignment of blocks, ordered by bytes first.
struct kept_size {
  std::size_t bytes, align;
  auto operator<=>(kept_size const&) const = default;
  bool operator==(kept_size const&) const = default;  // explicit: nvcc warns about the implicit one
};

/// The kept blocks of one size and alignment.
struct blocks_of_size {
  using allocator_type = std::pmr::polymorphic_allocator<>;  // makes maps pass their allocator on

  explicit blocks_of_size(allocator_type bookkeeping) : pending{bookkeeping.resource()} {}

  kept_list<&kept_block::in_size> ready;  // oldest first
  pending_blocks<&kept_block::in_size> pending;
  bool is_ready_size = false;  // true if the entry is in `kept_blocks::ready_sizes_`

  [[nodiscard]] bool empty() const noexcept { return ready.empty() && pending.empty(); }
};

/// Blocks by exact size and alignment, ready or behind a fence. It never calls the upstream, and calls only
/// `done` of fences, with the caller's lock released. Blocks that leave go to a chain of the caller, and
/// finished fences move to the caller. A block stays while its fence is queried.
///
/// Invariants: each record is in exactly one list: ready, pending, spare, or a chain of the caller;
/// `ready_bytes() == sum over ready <= max_cached_bytes`, `pending_bytes() == sum over pending`; a ready
/// block has no fence, a pending block has a fence; the lists of a size have blocks of this size; a size with
/// a ready block is in `ready_sizes_`; `entry == nullptr || entry == &sizes.at(size)` for each of `recent_`
/// (6 KiB); those of `pending_blocks`.
///
/// Complexity, unless stated otherwise: O(1) for a recent size, otherwise O(log(sizes)); O(orders) for a
/// block that becomes pending or stops being pending; amortised O(log(sizes)) for a block that leaves over
/// the limit. One thread at a time.
class kept_blocks {
 public:
  /// Maximum number of fences queried for one request.
  static constexpr std::size_t max_looks = 32;
  /// Maximum remembered sizes without a kept block, so that a size that comes and goes does not allocate each
  /// time.
  static constexpr std::size_t max_empty_sizes = 4096;

  /// @param max_cached_bytes, max_blocks_per_size limits; 0: no limit
  kept_blocks(std::size_t max_cached_bytes, std::size_t max_blocks_per_size,
              std::pmr::memory_resource* bookkeeping)
      : max_cached_bytes_{max_cached_bytes},
        max_blocks_per_size_{max_blocks_per_size},
        records_{bookkeeping},
        pending_{bookkeeping},
        ready_sizes_{bookkeeping},
        other_sizes_{bookkeeping} {}
  /// The caller's lock, which is released while a fence is queried.
  using held_lock = std::unique_lock<fork_safe<>>;

  kept_blocks(kept_blocks const&) = delete;
  kept_blocks& operator=(kept_blocks const&) = delete;

  /// Removes the oldest ready block of exactly this size and alignment.
  /// @return its record, to be passed to `recycle`; null if no block is ready
  [[nodiscard]] kept_block* take_ready(std::size_t bytes, std::size_t align) noexcept;

  /// Like `take_ready`, but otherwise takes a block whose fence is found done. Queries the first fence of
  /// each order of this size, at most `max_looks` fences, in rotation.
  [[nodiscard]] kept_block* take(std::size_t bytes, std::size_t align, held_lock& lock) noexcept;

  /// Keeps a block, behind `fence` unless that is empty.
  /// @param order the order of the fence
  /// @param leaving receives blocks that exceed the limits, possibly this block
  /// @return false if there is no memory for the record; nothing has changed then
  [[nodiscard]] bool keep(void* block, std::size_t bytes, std::size_t align, reuse_fence& fence,
                          void const* order, kept_chain& leaving) noexcept;

  /// Queries at most `fences.size()` pending fences: the first of each order, in rotation. Finished fences
  /// move to `fences`, and their blocks become ready.
  void look(std::span<reuse_fence> fences, kept_chain& leaving, held_lock& lock) noexcept;

  /// Moves all ready blocks to `leaving`, the oldest of each size first. O(blocks + sizes).
  void take_out_ready(kept_chain& leaving) noexcept;
  /// Moves all pending blocks to `leaving`, with their fences, without a query. O(blocks).
  void take_out_pending(kept_chain& leaving) noexcept;
  /// Moves pending blocks with finished fences to `leaving`, of each order up to the first unfinished fence.
  /// O(blocks).
  void take_out_done(kept_chain& leaving, held_lock& lock) noexcept;

  [[nodiscard]] bool has_pending() const noexcept { return !pending_.empty(); }
  /// Like `pending_blocks::forget_queries`.
  void forget_queries() noexcept { pending_.forget_queries(); }
  [[nodiscard]] bool has_pending(std::size_t bytes, std::size_t align) noexcept {
    blocks_of_size const* const of_size = find({bytes, align});
    return of_size != nullptr && !of_size->pending.empty();
  }

  /// Stores records of blocks that were reused or returned, for reuse. @pre their fences are empty
  void recycle(kept_chain& done) noexcept { spare_.append(done); }
  void recycle(kept_block& done) noexcept { spare_.push_back(done); }

  [[nodiscard]] std::size_t ready_bytes() const noexcept { return ready_bytes_; }
  [[nodiscard]] std::size_t peak_ready_bytes() const noexcept { return peak_ready_bytes_; }
  [[nodiscard]] std::size_t pending_bytes() const noexcept { return pending_bytes_; }

  /// Returns the first broken invariant; null if all hold. O(records).
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  using sizes = std::pmr::map<kept_size, blocks_of_size>;

  /// Cache of the entry of a recently requested size, found in O(1).
  struct recent_size {
    kept_size size;
    blocks_of_size* entry = nullptr;
  };
  static constexpr std::size_t recent_sizes = 256;

  [[nodiscard]] recent_size& recent(kept_size wanted) noexcept {
    // Multiplicative hashing (Knuth, TAOCP 6.4) by the golden ratio: the highest 8 bits.
    return recent_[(std::uint64_t{wanted.bytes} * 0x9e37'79b9'7f4a'7c15U) >> 56U];
  }
  [[nodiscard]] blocks_of_size* find(kept_size wanted) noexcept {
    recent_size& last = recent(wanted);
    if (last.entry != nullptr && last.size == wanted) return last.entry;
    for (sizes* const of : {&ready_sizes_, &other_sizes_}) {
      const auto found = of->find(wanted);
      if (found == of->end()) continue;
      last = {wanted, &found->second};
      return last.entry;
    }
    return nullptr;
  }
  [[nodiscard]] blocks_of_size& size_entry(kept_size wanted);
  template <kept_block::links kept_block::* Links>
  [[nodiscard]] kept_block* take_done(pending_blocks<Links>& from, pending_looks& left,
                                      held_lock& lock) noexcept;
  void remove_pending(kept_block& block) noexcept;  // @pre the block is removed from `pending_`
  void add_ready(kept_block& block, kept_chain& leaving) noexcept;
  void remove_ready(kept_block& block) noexcept;
  void evict(kept_block& block, kept_chain& leaving) noexcept;
  [[nodiscard]] kept_block& next_to_leave() noexcept;

  std::size_t max_cached_bytes_, max_blocks_per_size_;
  std::pmr::deque<kept_block> records_;  // a deque, because growth must not move records
  kept_chain spare_;
  pending_blocks<&kept_block::in_all> pending_;
  sizes ready_sizes_;                                  // all sizes with a ready block, and some that had one
  sizes other_sizes_;                                  // all other sizes, some without kept blocks
  std::array<recent_size, recent_sizes> recent_ = {};  // entries of both maps, whose addresses are stable
  std::size_t max_sizes_ = max_empty_sizes;            // at this number of sizes, empty sizes are erased
  std::size_t ready_bytes_ = 0;
  std::size_t peak_ready_bytes_ = 0;
  std::size_t pending_bytes_ = 0;
};

}  // namespace tidemark::detail
