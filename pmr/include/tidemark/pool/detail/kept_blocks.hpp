// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which blocks a reuse cache keeps, and in what order they leave. Owns its records, not the blocks.
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
  void const* order = nullptr;        // the fence's, which is queried once
  bool is_queried = false;            // a thread asks the fence, without the lock: the block stays
  blocks_of_size* of_size = nullptr;  // of its size and alignment; may be gone once the block has left it
  links in_all;                       // pending, leaving or spare
  links in_size;                      // ready or pending: in one of `of_size`
};

/// A list through one pair of links of the blocks: it allocates nothing and each step is O(1).
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

/// How many more fences one call may query, so that it queries none twice.
struct pending_looks {
  std::size_t in_all;     // fences
  std::size_t of_queues;  // queues whose first fence was not found to be not done
  std::size_t of_others;  // fences without an order
};

/// Blocks behind fences: a queue for each order of fences, of which only the first is queried, and a list of
/// those without an order, which take turns. Queues and list are queried alternately.
///
/// Invariants: no queue is empty; no two have one order; a block in a queue has a fence of that order, one in
/// the list has a fence without; `size() == sum over all`.
///
/// Complexity: O(queues) to add and to remove a block, which are the streams that have blocks here: few.
template <kept_block::links kept_block::* Links>
class pending_blocks {
 public:
  explicit pending_blocks(std::pmr::memory_resource* bookkeeping) : queues_{bookkeeping} {}

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Makes room for a block of whatever order. @throws what the bookkeeping resource throws.
  void reserve_one() {
    if (queues_.size() == queues_.capacity()) queues_.reserve(2 * queues_.size() + 1);
  }
  /// @pre there is room for it.
  void push_back(kept_block& block) noexcept {
    ++size_;
    if (block.order == nullptr) return others_.push_back(block);
    auto found = find(block.order);
    if (found == queues_.end())
      found = queues_.insert(queues_.end(), queue{.order = block.order, .blocks = {}});
    found->blocks.push_back(block);
  }
  /// @pre it is here, with its fence.
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

  /// For one call that queries at most `at_most` fences.
  [[nodiscard]] pending_looks looks(std::size_t at_most) const noexcept {
    return {.in_all = at_most, .of_queues = queues_.size(), .of_others = others_.size()};
  }
  /// The next block whose fence is to be asked, marked as queried; null if `left` allows no more queries.
  /// Other fences each time. The caller asks the fence without a lock and calls `end_query`.
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
      } else if (first.is_queried) {  // by another thread
        --left.of_queues;
        turn_ = (turn_ + 1) % queues_.size();
      }
      if (first.is_queried) continue;
      first.is_queried = true;
      return &first;
    }
    return nullptr;
  }
  /// A query has ended. Removes the block if its fence is done. @pre `begin_query` has returned the block.
  void end_query(kept_block& block, bool is_done, pending_looks& left) noexcept {
    block.is_queried = false;
    if (block.order != nullptr) {
      const auto found = find(block.order);
      if (!is_done) turn_ = static_cast<std::size_t>(found - queues_.begin() + 1) % queues_.size();
      if (!is_done || found->blocks.size() == 1) left.of_queues -= std::min<std::size_t>(left.of_queues, 1);
    }
    if (is_done) remove(block);
  }
  /// In a child: no thread queries a fence there. O(blocks).
  void forget_queries() noexcept {
    for_each([](kept_block& block) { block.is_queried = false; });
  }
  /// Any block that no thread queries, of each queue the first one, removed without a query; null if there is
  /// none.
  [[nodiscard]] kept_block* take_any() noexcept {
    kept_block* found = first_unqueried(others_);
    for (auto of = queues_.begin(); found == nullptr && of != queues_.end(); ++of)
      found = first_unqueried(of->blocks);
    if (found != nullptr) remove(*found);
    return found;
  }

  /// Calls `visit` with each block. O(blocks).
  template <class Visit>
  void for_each(Visit visit) const {
    for_each_of(others_, visit);
    for (queue const& each : queues_) for_each_of(each.blocks, visit);
  }
  /// Whether the invariants hold. O(blocks * queues).
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
    list blocks;  // the first was added first
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
  list others_;                     // without an order: the first is the next whose fence is queried
  std::size_t size_ = 0;            // in all
  std::size_t turn_ = 0;            // the queue whose first fence is queried next
  bool is_turn_of_queues_ = false;  // and not of the others, when a fence was queried last
};

/// Size and alignment of blocks; ordered by bytes first.
struct kept_size {
  std::size_t bytes, align;
  auto operator<=>(kept_size const&) const = default;
  bool operator==(kept_size const&) const = default;  // named, because nvcc warns of an implicit one
};

/// The kept blocks of one size and alignment.
struct blocks_of_size {
  using allocator_type = std::pmr::polymorphic_allocator<>;  // so that a map passes its own on

  explicit blocks_of_size(allocator_type bookkeeping) : pending{bookkeeping.resource()} {}

  kept_list<&kept_block::in_size> ready;  // the oldest first
  pending_blocks<&kept_block::in_size> pending;
  bool is_ready_size = false;  // `kept_blocks::ready_sizes_` has this entry

  [[nodiscard]] bool empty() const noexcept { return ready.empty() && pending.empty(); }
};

/// Blocks by exact size and alignment, ready or behind a fence. Calls no upstream, and of a fence only
/// `done`, with the caller's lock released: blocks that leave are put into a chain of the caller's, and
/// fences that are done are moved to the caller. A block whose fence is asked stays where it is meanwhile.
///
/// Invariants: each record is in exactly one of the lists ready, pending, spare, or a chain of the caller's;
/// `ready_bytes() == sum over ready <= max_cached_bytes`, `pending_bytes() == sum over pending`; a ready
/// block's fence is empty, a pending one's is not; both lists of a size have blocks of that size; a size with
/// a ready block is in `ready_sizes_`; for each of `recent_`, which takes 6 KiB of the object,
/// `entry == nullptr || entry == &sizes.at(size)`, with the sizes of both maps; those of `pending_blocks`.
///
/// Complexity: O(1) for a size among the last ones, else O(log(sizes)), where not said otherwise; O(orders) for
/// each block that becomes pending or is no longer; amortised O(log(sizes)) for a block that leaves for others.
/// One thread at a time.
class kept_blocks {
 public:
  /// Maximum number of fences queried for one request.
  static constexpr std::size_t max_looks = 32;
  /// At most `max_empty_sizes` sizes without a kept block are remembered, so that a size that comes and
  /// goes does not allocate each time.
  static constexpr std::size_t max_empty_sizes = 4096;

  /// @param max_cached_bytes, max_blocks_per_size limits; 0: without limit
  kept_blocks(std::size_t max_cached_bytes, std::size_t max_blocks_per_size,
              std::pmr::memory_resource* bookkeeping)
      : max_cached_bytes_{max_cached_bytes},
        max_blocks_per_size_{max_blocks_per_size},
        records_{bookkeeping},
        pending_{bookkeeping},
        ready_sizes_{bookkeeping},
        other_sizes_{bookkeeping} {}
  /// The lock of the caller, which is released while a fence is asked.
  using held_lock = std::unique_lock<fork_safe<>>;

  kept_blocks(kept_blocks const&) = delete;
  kept_blocks& operator=(kept_blocks const&) = delete;

  /// Of the ready blocks of exactly this size and alignment the one that has been ready for longest.
  /// @return its record, to be given to `recycle`, or null.
  [[nodiscard]] kept_block* take_ready(std::size_t bytes, std::size_t align) noexcept;

  /// The same, or else the first block whose fence turns out to be done: of each order it queries the first
  /// one of this size, and `max_looks` fences at most, other ones each time.
  [[nodiscard]] kept_block* take(std::size_t bytes, std::size_t align, held_lock& lock) noexcept;

  /// Keeps a block, behind `fence` unless that is empty.
  /// @param order the fence's
  /// @param leaving what must go for it, perhaps itself, is added here
  /// @return false, with nothing changed, if there is no memory for the record.
  [[nodiscard]] bool keep(void* block, std::size_t bytes, std::size_t align, reuse_fence& fence,
                          void const* order, kept_chain& leaving) noexcept;

  /// Queries as many pending fences as `fences` has room for, the first of each order and other ones each
  /// time. Those that are done are moved there, and their blocks become ready.
  void look(std::span<reuse_fence> fences, kept_chain& leaving, held_lock& lock) noexcept;

  /// Adds to `leaving` what is ready, of each size the oldest first. O(blocks + sizes).
  void take_out_ready(kept_chain& leaving) noexcept;
  /// Adds to `leaving` what is pending, with the fences, and without a query. O(blocks).
  void take_out_pending(kept_chain& leaving) noexcept;
  /// The same, but only what has a fence that is done, of each order up to the first that is not. O(blocks).
  void take_out_done(kept_chain& leaving, held_lock& lock) noexcept;

  [[nodiscard]] bool has_pending() const noexcept { return !pending_.empty(); }
  /// As `pending_blocks::forget_queries`.
  void forget_queries() noexcept { pending_.forget_queries(); }
  [[nodiscard]] bool has_pending(std::size_t bytes, std::size_t align) noexcept {
    blocks_of_size const* const of_size = find({bytes, align});
    return of_size != nullptr && !of_size->pending.empty();
  }

  /// Records whose blocks have been reused or returned, for use again. @pre their fences are empty.
  void recycle(kept_chain& done) noexcept { spare_.append(done); }
  void recycle(kept_block& done) noexcept { spare_.push_back(done); }

  [[nodiscard]] std::size_t ready_bytes() const noexcept { return ready_bytes_; }
  [[nodiscard]] std::size_t peak_ready_bytes() const noexcept { return peak_ready_bytes_; }
  [[nodiscard]] std::size_t pending_bytes() const noexcept { return pending_bytes_; }

  /// The first invariant that does not hold, or null. O(records).
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  using sizes = std::pmr::map<kept_size, blocks_of_size>;

  /// The entry of a size that was asked for lately, found in O(1).
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
  void remove_pending(kept_block& block) noexcept;  // which is out of the list of all
  void add_ready(kept_block& block, kept_chain& leaving) noexcept;
  void remove_ready(kept_block& block) noexcept;
  void evict(kept_block& block, kept_chain& leaving) noexcept;
  [[nodiscard]] kept_block& next_to_leave() noexcept;

  std::size_t max_cached_bytes_, max_blocks_per_size_;
  std::pmr::deque<kept_block> records_;  // a deque, because it grows without moving them
  kept_chain spare_;
  pending_blocks<&kept_block::in_all> pending_;
  sizes ready_sizes_;                                  // all with a ready block, and some that had one
  sizes other_sizes_;                                  // also some of which nothing is kept any more
  std::array<recent_size, recent_sizes> recent_ = {};  // entries of both maps, which do not move in memory
  std::size_t max_sizes_ = max_empty_sizes;            // at this many, empty ones are forgotten
  std::size_t ready_bytes_ = 0;
  std::size_t peak_ready_bytes_ = 0;
  std::size_t pending_bytes_ = 0;
};

}  // namespace tidemark::detail
