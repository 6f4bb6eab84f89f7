// SPDX-License-Identifier: Apache-2.0
// The free blocks of a reuse cache. Owns the records of the blocks, not the blocks.
#pragma once

#include <compare>
#include <cstddef>
#include <list>
#include <map>
#include <memory_resource>
#include <mutex>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/reuse_fence.hpp>
#include <tidemark/pool/reuse_cache.hpp>

namespace tidemark::detail {

struct blocks_of_size;

// Size and alignment as requested; ordered by bytes first.
struct cached_size {
  std::size_t bytes = 0, align = 0;
  auto operator<=>(cached_size const&) const = default;
};

// The record of a block. It lies outside the block, because the host may be unable to write the block.
struct cached_block {
  void* block = nullptr;
  cached_size size;
  reuse_fence fence;                  // empty if the block is ready
  blocks_of_size* of_size = nullptr;  // valid while the block is ready or pending
};

// Records move between lists by `splice`, which allocates nothing.
struct cached_list : std::pmr::list<cached_block> {
  using std::pmr::list<cached_block>::list;
};

struct blocks_of_size {
  cached_list ready;        // in FIFO order
  std::size_t pending = 0;  // blocks of this size behind fences

  [[nodiscard]] bool empty() const noexcept { return ready.empty() && pending == 0; }
};

// Ready blocks by exact size, and pending blocks in one queue for each order of fences. Calls no upstream.
// Queries fences with the caller's lock released: a queried block is in no list meanwhile, and counts as
// pending. Functions add blocks that must return to the upstream to `evicted`.
//
// Invariants: each record is in exactly one list (ready, pending, free, the caller's, or a query's);
// `cached_bytes == sum over ready <= max_cached_bytes`; `pending_bytes == sum over pending`; a block has a
// fence if and only if it is pending; `blocks_of_size::pending` counts the pending blocks of its size.
//
// Complexity: O(log(sizes)) for each call and block, O(orders) to add a pending block. One thread at a time.
class cached_blocks {
 public:
  using cache_lock = std::unique_lock<fork_safe<>>;

  // Both belong to the cache. Counts the ready and pending bytes in `counts`.
  cached_blocks(reuse_cache_options const& options, reuse_cache_stats& counts)
      : options_{options},
        counts_{counts},
        sizes_{options.bookkeeping},
        queues_{options.bookkeeping},
        free_records_{options.bookkeeping} {}

  [[nodiscard]] cached_list new_list() const { return cached_list{free_records_.get_allocator()}; }

  // Removes the block of this size that has been ready for longest. @return the block, or null.
  [[nodiscard]] void* pop_ready(cached_size wanted) noexcept;

  // Adds a block: ready if `fence` is empty, else pending.
  // @param order the fence's
  // @return false, with nothing changed, if memory for the record is exhausted.
  [[nodiscard]] bool add(void* block, cached_size size, reuse_fence& fence, void const* order,
                         cached_list& evicted) noexcept;

  // Queries pending fences: each order up to the first fence that is not done, and each fence without an
  // order. Blocks whose fence is done become ready. Stops at a block of the wanted size, which it removes, or
  // after `max_unfinished` pending fences. The next call continues with other fences.
  // @return the block of the wanted size, or null.
  void* poll(std::size_t max_unfinished, cached_size const* wanted, cached_list& evicted,
             cache_lock& lock) noexcept;

  // Removes all ready blocks.
  void remove_all_ready(cached_list& evicted) noexcept;
  // Removes all pending blocks, with their fences, which are not queried.
  void remove_all_pending(cached_list& evicted) noexcept;
  // Stores records for reuse. @pre their fences are empty.
  void recycle(cached_list& done) noexcept { free_records_.splice(free_records_.end(), done); }

  [[nodiscard]] bool has_pending() const noexcept { return pending_blocks_ > 0; }
  [[nodiscard]] bool has_pending(cached_size size) const noexcept {
    const auto found = sizes_.find(size);
    return found != sizes_.end() && found->second.pending > 0;
  }

  // In a forked child: forgets blocks that other threads were querying.
  void recount_pending() noexcept;
  // The first invariant that does not hold, or null. O(records).
  [[nodiscard]] char const* broken_invariant() const noexcept;

 private:
  // Blocks whose fences have one order, in that order; or all blocks whose fences have no order.
  struct pending_queue {
    void const* order;
    cached_list blocks;
    std::size_t queried = 0;  // blocks that threads are querying: the queue keeps its order for them
  };

  [[nodiscard]] blocks_of_size& size_entry(cached_size size);
  [[nodiscard]] pending_queue& queue_of(void const* order);
  [[nodiscard]] static bool query_front(pending_queue& queue, cached_list& queried,
                                        cache_lock& lock) noexcept;
  void count_pending(cached_block const& block) noexcept;
  void uncount_pending(cached_block const& block) noexcept;
  void add_ready(cached_list& block, cached_list& evicted) noexcept;
  void evict(blocks_of_size& from, cached_list& evicted) noexcept;
  [[nodiscard]] blocks_of_size& largest_ready() noexcept;

  reuse_cache_options const& options_;
  reuse_cache_stats& counts_;
  std::pmr::map<cached_size, blocks_of_size> sizes_;
  std::pmr::list<pending_queue> queues_;  // the front is queried next; queues are reused, never erased
  cached_list free_records_;
  std::size_t max_sizes_ = 0;  // beyond this many sizes, empty sizes are erased
  std::size_t pending_blocks_ = 0;
};

}  // namespace tidemark::detail
