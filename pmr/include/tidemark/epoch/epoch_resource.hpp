// SPDX-License-Identifier: Apache-2.0
/// @file
/// `epoch_resource`: memory that the end of an epoch reclaims, except kept blocks. Owns records, and chunks
/// of the upstream while they have blocks. All other blocks belong to the upstream.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <vector>

#include <tidemark/core/config.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/detail/size_classes.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/epoch/detail/address_table.hpp>
#include <tidemark/epoch/detail/block_group.hpp>
#include <tidemark/epoch/detail/storage.hpp>
#include <tidemark/epoch/detail/tracked_block.hpp>

namespace tidemark {

/// Options of `epoch_resource`.
struct epoch_options {
  /// True if the host may touch the upstream's memory. If false, small blocks do not lie in slabs. The
  /// resource writes into no block; sanitizers still record small blocks.
  bool host_memory = true;
  /// Source of host memory for records; null: `std::pmr::new_delete_resource()`. Each address that ever had a
  /// record takes 48 bytes, and up to 64 bytes in tables. Each range of 16 KiB that was ever a slab takes 650
  /// bytes. The resource itself takes 12 KiB.
  std::pmr::memory_resource* bookkeeping = nullptr;
  /// Source of the blocks; null: `std::pmr::get_default_resource()`.
  std::pmr::memory_resource* upstream = nullptr;
  /// Used in messages and statistics; must outlive the resource.
  char const* name = "epochs";
};

/// Result of the end of one epoch, or of closing a `buffer_group`.
struct epoch_summary {
  std::size_t reclaimed = 0;        ///< blocks returned to the upstream
  std::size_t reclaimed_bytes = 0;  ///< bytes requested for these; for slab blocks, the size of the class
  std::size_t promoted = 0;         ///< kept blocks: moved to the outer epoch, or untracked
  std::size_t promoted_bytes = 0;   ///< bytes of these, counted like `reclaimed_bytes`
};

/// Counts of an `epoch_resource`, over blocks that are or were tracked. Blocks allocated without an open
/// epoch are not counted; use a `statistics_resource` as the upstream to count all blocks.
///
/// Invariant: `allocations + adopted == deallocations + reclaimed + let_go + used_blocks`.
struct epoch_stats {
  char const* name = "";            ///< the resource's name
  std::uint64_t allocations = 0;    ///< blocks allocated in epochs so far
  std::uint64_t adopted = 0;        ///< blocks taken over by a `buffer_group`
  std::uint64_t deallocations = 0;  ///< blocks deallocated before their epoch ended
  std::uint64_t reclaimed = 0;      ///< blocks reclaimed at the end of an epoch or buffer group
  std::uint64_t promoted = 0;       ///< kept blocks at the ends of epochs; a block may count several times
  std::uint64_t let_go = 0;  ///< blocks promoted by an outermost epoch, and blocks moved to a `buffer_group`
  std::uint64_t late = 0;    ///< deallocations of blocks that were already reclaimed
  std::size_t used_blocks = 0;  ///< blocks tracked now
  std::size_t used_bytes = 0;   ///< bytes of these, counted as in `epoch_summary`
  /// Peak of `used_bytes`, as the sum of each thread's peak; exact if only one thread opens epochs.
  std::size_t peak_bytes = 0;
};

/// Allocates from an upstream. While the calling thread has an `epoch` open, the resource tracks each block.
/// The end of the epoch reclaims all tracked blocks, except kept blocks.
///
/// Use it for a phase, such as a training step, whose blocks are freed in any order and of which a few
/// outlive the phase. An `arena` is faster for blocks freed in stack order.
///
/// ```cpp
/// pool blocks;
/// epoch_resource memory{&blocks};
/// buffer<float> weights{memory, 4096};  // no epoch: its own until it is destroyed
/// for (int step = 0; step < 100; ++step) {
///   epoch e{memory, "step"};
///   buffer<float> hidden{memory, 4096}, loss{memory, 1};  // hidden dies here, whatever happens
///   if (step == 99) e.keep(loss);                         // loss outlives the step
/// }
/// ```
/// Blocks are never touched: the upstream may be device memory (`epoch_options`).
///
/// Invariants, checked by `check_invariants()`: those of `epoch_stats` and `detail::block_group`.
///
/// Each call is O(1) expected, amortised; the end of an epoch is O(its blocks). Thread-safety: any thread, if
/// the upstream allows it, but not during construction and destruction. An epoch belongs to its thread.
class epoch_resource final : public detail::forwarding_resource<epoch_resource> {
 public:
  /// @param upstream source of memory; null: as `epoch_options::upstream`. Must outlive the resource. Must
  /// not be rewound or cleared while an epoch is open or small blocks are kept.
  explicit epoch_resource(std::pmr::memory_resource* upstream = nullptr)
      : epoch_resource{epoch_options{}, upstream} {}
  /// Uses `options`, and `upstream` unless it is null. @throws whatever the bookkeeping resource throws
  // The constructor and the virtual functions are inline. The vtable and these functions are then in the
  // program's own object files, and an executable reads a thread_local variable without a call (decision 61).
  explicit epoch_resource(epoch_options const& options, std::pmr::memory_resource* upstream = nullptr)
      : options_{completed(options, upstream)},
        table_{options_.bookkeeping},
        small_classes_{name(), {}, detail::epoch_slab::min_block_bytes},
        max_small_bytes_{options_.host_memory ? detail::epoch_slab::max_block_bytes : 0},
        slab_table_{options_.bookkeeping} {
    attach();
  }
  /// Rejected at compile time, with a message that shows the right form.
  explicit epoch_resource(std::integral auto bytes) : epoch_resource{nullptr} {
    static_assert(detail::right_form<decltype(bytes)>,
                  "an epoch_resource has no size: write epoch_resource memory{&upstream}, or with options");
  }
  /// Reports epochs and buffer groups that still exist, and reclaims their blocks. These epochs and groups
  /// may be destroyed afterwards, and `epoch::end` then does nothing. Buffers must not outlive the resource.
  /// Blocks kept in slabs are returned to the upstream.
  ~epoch_resource() override { detach(); }

  /// Allocates a block from the upstream, and tracks the block if this thread has an epoch open. A tracked
  /// block of at most 1 KiB lies in a slab, on host memory. The size classes of slabs
  /// are multiples of 8 from 16 to 64, then eight to each doubling. Slabs are cut from upstream chunks of 64
  /// KiB to 1 MiB. The chunks are returned when no epoch of the thread is open; a kept block holds its chunk.
  /// @throws whatever the upstream throws; std::bad_alloc if there is no memory for records. Nothing has
  /// changed then.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t)) TIDEMARK_LIFETIMEBOUND {
    // Without a branch hint: calls through `std::pmr` are more often in an epoch.
    if (detail::block_group* const group = own_group()) return allocate_in_epoch(*group, bytes, align);
    return allocate_untracked(bytes, align);
  }

  /// Returns a block to the upstream; ignores null. Any thread, also while the block's epoch ends.
  ///
  /// A late deallocation of a reclaimed block, for example by a container that outlives its epoch, is counted
  /// and ignored. It is recognised until the upstream allocates the same address again through this resource.
  /// After that, the late call would free the new block. A `test_resource` as the upstream delays the reuse.
  /// A `buffer` is always safe to destroy.
  ///
  /// A Bloom filter selects the addresses to look up, without a lock. Level 2 reports late deallocations, and
  /// wrong sizes and second deallocations of small blocks. The upstream checks the calls for other blocks.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t)) noexcept {
    if (block == nullptr) return;
    // Read before the epochs of this thread, because no block is tracked while the filter is empty.
    if (filter_.is_empty()) return options_.upstream->deallocate(block, bytes, align);
    detail::block_group* const newest = detail::open_groups;
    if (newest != nullptr) deallocate_in_epoch(*newest, block, bytes, align);
    else deallocate_outside_epochs(nullptr, block, bytes, align);
  }

  /// Number of epochs open on this thread.
  [[nodiscard]] std::size_t depth() const noexcept {
    detail::block_group const* const group = own_group();
    return group == nullptr ? 0 : group->depth();
  }

  /// Returns a snapshot of the counts. O(maximum threads with open epochs at once).
  [[nodiscard]] epoch_stats stats() const noexcept;

  /// The options in effect.
  [[nodiscard]] epoch_options const& options() const noexcept { return options_; }
  /// The resource that memory comes from.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return options_.upstream; }
  /// The name used in messages.
  [[nodiscard]] char const* name() const noexcept { return options_.name; }

  /// Reports a violation for each broken invariant of the class comment. O(blocks). @pre no other thread uses
  /// the resource
  void check_invariants() const noexcept;

 private:
  friend class epoch;
  friend class buffer_group;
  friend struct detail::storage;
  friend detail::fork_safe<>;

  static epoch_options completed(epoch_options options, std::pmr::memory_resource* upstream);
  void attach();
  void detach() noexcept;

  [[nodiscard]] detail::block_group* own_group() const noexcept { return find_own(detail::open_groups); }
  [[nodiscard]] detail::block_group* find_own(detail::block_group* newest) const noexcept {
    detail::block_group* group = newest;
    while (group != nullptr && group->resource() != this) group = group->outer_on_thread;
    return group;
  }
  // False only if the address needs no lookup. A lookup is needed for the record of a block in a group, of a
  // reclaimed block and of a kept block with handles, and for every range that was ever a slab. One branch
  // tests both counts.
  [[nodiscard]] bool may_matter(void const* block) const noexcept {
    return (filter_.count(detail::address_of(block)) | filter_.count(detail::epoch_slab::range_of(block))) !=
           0;
  }
  [[nodiscard]] void* allocate_from_upstream(std::size_t bytes, std::size_t align) {
    detail::require_possible(name(), bytes, align);
    return options_.upstream->allocate(bytes, align);
  }
  // Called after the upstream allocates `block`: clears the mark of a small block reclaimed at this address.
  void remove_reclaimed_small(void const* block) noexcept {
    if (!had_slabs_.load(std::memory_order_relaxed)) return;
    if (detail::epoch_slab* const range = find_range(block)) [[unlikely]] {
      if (range->use.load(std::memory_order_acquire) == detail::epoch_slab::range_use::upstreams)
        range->remove_reclaimed(block);
    }
  }
  // Deallocates any block, while this thread has an epoch of any resource open.
  void deallocate_in_epoch(detail::block_group& newest, void* block, std::size_t bytes,
                           std::size_t align) noexcept;
  // Deallocates any block. @param own the thread's group; null without an open epoch
  // Not inline, because `deallocate` is inlined only while it is short.
  void deallocate_outside_epochs(detail::block_group* own, void* block, std::size_t bytes,
                                 std::size_t align) noexcept;
  // Deallocates a block in a slab, a block with a record, or any other block.
  void deallocate_by_range(detail::block_group* own, void* block, std::size_t bytes,
                           std::size_t align) noexcept;
  // Deallocates a live block of a slab that the thread's group holds. @return false if there is no such block
  [[nodiscard]] bool deallocate_own(detail::block_group& group, detail::epoch_slab& slab, void* block,
                                    std::size_t bytes, std::size_t align) noexcept;
  // Returns the record of the block's range; null if the range was never a slab.
  [[nodiscard]] detail::epoch_slab* find_range(void const* block) const noexcept {
    const std::uintptr_t range = detail::epoch_slab::range_of(block);
    return filter_.count(range) != 0 ? slab_table_.find(range) : nullptr;
  }
  // Returns the size class of a small block; `none` for a block that does not lie in a slab. A request of 0
  // bytes counts as 1 byte.
  [[nodiscard]] std::size_t small_class(std::size_t bytes, std::size_t align) const noexcept {
    const std::size_t last = detail::size_classes::last_offset(bytes + (bytes == 0 ? 1 : 0), align);
    return last < max_small_bytes_ ? small_classes_.index_at(last) : detail::size_classes::none;
  }
  [[nodiscard]] void* allocate_in_epoch(detail::block_group& group, std::size_t bytes, std::size_t align) {
    if constexpr (check_level >= 2) detail::require_power_of_two("epoch_resource", name(), align);
    const std::size_t index = small_class(bytes, align);
    if (index != detail::size_classes::none) [[likely]] {
      if (void* const block = group.try_allocate_small(index, bytes)) [[likely]]
        return block;
    }
    return allocate_slow(group, bytes, align);
  }
  // Allocates a small block from a free slab or a new chunk. Calls `allocate_in` for other blocks, and if the
  // upstream has no memory for a chunk.
  [[nodiscard]] void* allocate_slow(detail::block_group& group, std::size_t bytes, std::size_t align);
  // Deallocates a slab block of another thread, or a kept block. Also handles late and wrong calls.
  TIDEMARK_COLD void deallocate_from_outside(detail::epoch_slab& slab, void* block, std::size_t bytes,
                                             std::size_t align) noexcept;
  void return_chunks(detail::epoch_slab* chunk) noexcept;
  void report_late(void* block, char const* by) const noexcept;
  [[nodiscard]] detail::tracked_block& allocate_in(detail::block_group& group, std::size_t bytes,
                                                   std::size_t align);
  [[nodiscard]] void* allocate_untracked(std::size_t bytes, std::size_t align) {
    void* const block = allocate_from_upstream(bytes, align);
    if (!filter_.is_empty() && may_matter(block)) [[unlikely]]
      remove_previous(block);
    return block;
  }
  void remove_previous(void* block) noexcept;
  [[nodiscard]] bool untrack(void* block) noexcept;
  // Ends a generation of a block, because the block is deallocated or its address is allocated again. Returns
  // false if the generation has ended already.
  bool end_generation(detail::tracked_block& block, std::uint64_t generation) noexcept;
  // Removes a held block from its group. Returns false if another thread changed the block meanwhile.
  bool remove(detail::tracked_block& block, detail::block_state before, detail::block_state then) noexcept {
    // Groups live as long as the resource. The holder exists, although another thread may use it now.
    detail::block_group* const holder = block.holder.load(std::memory_order_relaxed);
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): a held block has a holder
    return holder->remove(block, before, then, holder == own_group());
  }

  // Called by `epoch` and `buffer_group`.
  [[nodiscard]] detail::block_group& acquire_group();
  [[nodiscard]] TIDEMARK_COLD detail::block_group& acquire_another_group();
  void release_group(detail::block_group& group) noexcept;
  [[nodiscard]] detail::block_group& group_of_this_thread();
  void release_group_of_this_thread(detail::block_group& group) noexcept;
  epoch_summary end_frame(detail::block_group& group) noexcept;
  void adapt_to_child() noexcept;  // called in a forked child

  epoch_options options_;
  detail::address_table<detail::tracked_block, 4> table_;
  detail::size_classes small_classes_;
  std::size_t max_small_bytes_;  // 0: no slabs, because the host must not touch the memory
  detail::epoch_slab_table slab_table_;
  std::atomic<bool> had_slabs_{false};  // set before the first slab is made
  // Ranges in `slab_table_`, and addresses whose records matter. An address stays in the filter when its
  // block is deallocated early in an epoch, because an epoch mostly allocates the address again. The next
  // look-up erases the address.
  detail::counting_filter filter_;
  std::atomic<std::uint64_t> late_{0};
  detail::reclaim_log ended_generations_;

  std::atomic<detail::block_group*> last_released_{
      nullptr};                               // usually free, and then acquired without the lock
  mutable detail::fork_safe<> groups_mutex_;  // guards `groups_`
  std::vector<std::unique_ptr<detail::block_group>> groups_;
};

}  // namespace tidemark
