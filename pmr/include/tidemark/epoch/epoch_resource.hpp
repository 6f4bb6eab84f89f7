// SPDX-License-Identifier: Apache-2.0
/// @file
/// `epoch_resource`: memory that is reclaimed at the end of an epoch, but for what is kept. Owns
/// records, and chunks of the upstream while they have blocks; other blocks are the upstream's.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <memory_resource>
#include <new>
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
  /// Maximum bytes of reclaimed blocks held back from the upstream, in a FIFO quarantine: late deallocations
  /// are recognised, and AddressSanitizer sees late accesses. 0: reclaimed blocks go to the upstream at once.
  /// An upstream that is rewound or cleared must have the blocks back before: call
  /// `epoch_resource::release_quarantine()`, or set 0 here.
  std::size_t max_quarantine_bytes = check_level >= 2 ? 64 * MiB : 0;
  /// The host may touch the upstream's memory. If not, blocks in quarantine are left as they are, and small
  /// blocks do not lie in slabs. Blocks are touched nowhere else.
  bool host_memory = true;
  /// Where the records of blocks are kept, which is host memory; null: `std::pmr::new_delete_resource()`.
  std::pmr::memory_resource* bookkeeping = nullptr;
  /// Where memory comes from; null: `std::pmr::get_default_resource()`.
  std::pmr::memory_resource* upstream = nullptr;
  /// In messages and statistics; must outlive the resource.
  char const* name = "epochs";
};

/// What the end of one epoch, or of a `buffer_group`, did.
struct epoch_summary {
  std::size_t reclaimed = 0;        ///< blocks returned to the upstream or quarantined
  std::size_t reclaimed_bytes = 0;  ///< as requested; of blocks in slabs those of their class
  std::size_t promoted = 0;         ///< blocks kept: now of the epoch around it, or untracked
  std::size_t promoted_bytes = 0;   ///< likewise
};

/// Counts of an `epoch_resource`, of blocks that are or were tracked. Blocks allocated while the thread had
/// no epoch open are not among them; a `statistics_resource` as the upstream counts all.
///
/// Invariant: `allocations + adopted == deallocations + reclaimed + let_go + used_blocks`.
struct epoch_stats {
  char const* name = "";            ///< the resource's name
  std::uint64_t allocations = 0;    ///< blocks allocated in epochs so far
  std::uint64_t adopted = 0;        ///< blocks taken over by a `buffer_group`
  std::uint64_t deallocations = 0;  ///< blocks deallocated before their epoch ended
  std::uint64_t reclaimed = 0;      ///< blocks reclaimed at the end of an epoch or buffer group
  std::uint64_t promoted = 0;       ///< times that a block outlived the end of an epoch because it was kept
  std::uint64_t let_go = 0;     ///< of these, at the outermost level, and blocks moved to a `buffer_group`
  std::uint64_t late = 0;       ///< times that a block was deallocated after it had been reclaimed
  std::size_t used_blocks = 0;  ///< tracked now
  std::size_t used_bytes = 0;   ///< of these, counted as `epoch_summary` does
  /// Most that were tracked at once, as the sum of what was so for each thread: exact if one thread has
  /// epochs.
  std::size_t peak_bytes = 0;
  std::size_t quarantined_bytes = 0;  ///< reclaimed and not yet returned to the upstream
};

/// Allocates from an upstream and records, while the calling thread has an `epoch` open, what it allocated.
/// The end of the epoch reclaims all of it, except what was deallocated before and what was kept.
///
/// Use it where a phase makes temporaries that die with it and a few results that do not, and where they come
/// and go in any order: a training step, a request. Where they die in stack order an `arena` is faster.
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
/// With no epoch open on the thread, allocation and deallocation go straight to the upstream, except for
/// addresses that an epoch may have had, by a Bloom filter: these are looked up first, without a lock, so
/// that a late deallocation is recognised. Level 2 looks all up. Blocks carry no header and are never
/// touched, so the upstream's memory may be a device's; see `epoch_options`.
///
/// **Small blocks.** On host memory without a quarantine, blocks of at most 1 KiB lie in slabs, except those
/// of a `buffer`. Slabs are cut from chunks of 64 KiB to 1 MiB of the upstream. The chunks go back when no
/// epoch of the thread is open; a kept block holds its chunk. The upstream must not be rewound or cleared
/// while an epoch is open or small blocks are kept. Statistics count such a block with the size of its class:
/// a multiple of 8 from 16 to 64, then one of eight to each doubling.
///
/// **A container that outlives its epoch.** Its storage is gone; reading or writing it is an error like any
/// use of freed memory. Deallocating it late, as the container's destructor does, is recognised and ignored
/// as long as the upstream has not allocated the same address again through this resource; after that the
/// address is another block, which would be freed. At check level 2 reclaimed storage stays in quarantine, so
/// that a late deallocation is recognised, and reported, while the storage is there. `buffer` knows its
/// block's generation and is always safe to destroy.
///
/// Invariants, checked by `check_invariants()`: that of `epoch_stats`, and those of `detail::block_group`.
///
/// Memory: 12 KiB, and 48 bytes for each address that ever had a record and up to 64 in tables; the upstream
/// decides how many these are. For each 16 KiB that were ever a slab 650 bytes. Complexity: O(1) expected for
/// each call, amortised; the end of an epoch O(its blocks). Thread-safety: any thread, if the upstream is so.
/// Epochs belong to the thread that opens them; any thread may deallocate blocks, also while their epoch
/// ends: as a `buffer` always, as a raw block as far as a late deallocation is recognised. No other thread
/// may use it during construction and destruction. A forked child may do the same; there, epochs of other
/// threads never end, and no buffer_group may be used that another thread used at that moment.
class epoch_resource final : public detail::forwarding_resource<epoch_resource> {
 public:
  /// @param upstream where memory comes from; null: what the options say. Must outlive this.
  explicit epoch_resource(std::pmr::memory_resource* upstream = nullptr)
      : epoch_resource{epoch_options{}, upstream} {}
  /// As `options` say, from `upstream` unless it is null. @throws what the bookkeeping throws.
  explicit epoch_resource(epoch_options const& options, std::pmr::memory_resource* upstream = nullptr);
  /// A wrong form: does not compile, and says which form is right.
  explicit epoch_resource(std::integral auto bytes) : epoch_resource{nullptr} {
    static_assert(detail::right_form<decltype(bytes)>,
                  "an epoch_resource has no size: write epoch_resource memory{&upstream}, or with options");
  }
  /// Reports epochs and buffer groups that still exist, and reclaims their blocks. They may be destroyed
  /// afterwards, and an epoch ended, which does nothing then; buffers may not. What was kept in slabs goes
  /// back to the upstream with them.
  ~epoch_resource() override;

  /// A block of the upstream, or in a slab of it, tracked if this thread has an epoch open.
  /// @throws what the upstream throws, after releasing the quarantine and trying once more; std::bad_alloc if
  /// there is no memory for records. Nothing has changed then.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = alignof(std::max_align_t)) TIDEMARK_LIFETIMEBOUND {
    if (detail::block_group* const group = own_group()) [[unlikely]]
      return allocate_in_epoch(*group, bytes, align);
    return allocate_untracked(bytes, align);
  }

  /// Returns a block to the upstream; does nothing for null. One that its epoch has reclaimed is left alone,
  /// and counted as late. Level 2 reports it, a tracked block with another size, and a second deallocation of
  /// a block that was ever tracked.
  void deallocate(void* block, std::size_t bytes, std::size_t align = alignof(std::max_align_t)) noexcept {
    if (block == nullptr) return;
    if (may_matter(block)) deallocate_by_range(block, bytes, align);
    else options_.upstream->deallocate(block, bytes, align);
  }

  /// Epochs that are open on this thread.
  [[nodiscard]] std::size_t depth() const noexcept {
    detail::block_group const* const group = own_group();
    return group == nullptr ? 0 : group->depth();
  }

  /// Returns all blocks in quarantine to the upstream. @return bytes. O(blocks). Call it before the upstream
  /// reclaims its memory by itself, as an arena does when it is rewound.
  std::size_t release_quarantine() noexcept { return shrink_quarantine(0); }

  /// A snapshot. O(threads that had epochs open at once).
  [[nodiscard]] epoch_stats stats() const noexcept;

  /// The options that hold.
  [[nodiscard]] epoch_options const& options() const noexcept { return options_; }
  /// The resource that memory comes from.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return options_.upstream; }
  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return options_.name; }

  /// Reports a violation for every invariant of the class comment that does not hold. O(blocks). @pre no
  /// other thread uses the resource.
  void check_invariants() const noexcept;

 private:
  friend class epoch;
  friend class buffer_group;
  friend class detail::storage;
  friend detail::fork_safe<>;

  [[nodiscard]] detail::block_group* own_group() const noexcept { return find_own(detail::open_groups); }
  [[nodiscard]] detail::block_group* find_own(detail::block_group* newest) const noexcept {
    detail::block_group* group = newest;
    while (group != nullptr && group->resource() != this) group = group->outer_on_thread;
    return group;
  }
  // The address may have a record that a group holds, that was reclaimed, or that was kept with handles on
  // it.
  [[nodiscard]] bool must_look_up(void const* block) const noexcept {
    return check_level >= 2 || filter_.count(detail::address_of(block)) != 0;
  }
  // The same, or its range was ever a slab. One branch for both filters.
  [[nodiscard]] bool may_matter(void const* block) const noexcept {
    return check_level >= 2 || (filter_.count(detail::address_of(block)) |
                                range_filter_.count(detail::epoch_slab::range_of(block))) != 0;
  }
  // Inlined by force: compilers leave it out of line, with its second try, at a cost of 17 instructions.
  [[nodiscard, gnu::always_inline]] void* allocate_from_upstream(std::size_t bytes, std::size_t align) {
    detail::require_possible(name(), bytes, align);
    try {
      return options_.upstream->allocate(bytes, align);
    } catch (std::bad_alloc const&) {
      return allocate_again(bytes, align);
    }
  }
  // The upstream has allocated the block: a small block that an epoch reclaimed there is forgotten.
  void forget_reclaimed_small(void const* block) noexcept {
    if (detail::epoch_slab* const range = find_range(block)) [[unlikely]] {
      if (range->use.load(std::memory_order_acquire) == detail::epoch_slab::range_use::upstreams)
        range->forget_reclaimed(block);
    }
  }
  // Deallocates a block in a slab, a block with a record, or any other block.
  void deallocate_by_range(void* block, std::size_t bytes, std::size_t align) noexcept;
  // The record of a block's range, if that was ever a slab.
  [[nodiscard]] detail::epoch_slab* find_range(void const* block) const noexcept {
    const std::uintptr_t range = detail::epoch_slab::range_of(block);
    return range_filter_.count(range) != 0 ? slab_table_.find(range) : nullptr;
  }
  // A block of 0 bytes is as good as one of 1.
  [[nodiscard]] static std::size_t last_offset(std::size_t bytes, std::size_t align) noexcept {
    return detail::size_classes::last_offset(bytes + (bytes == 0 ? 1 : 0), align);
  }
  [[nodiscard]] bool is_small(std::size_t bytes, std::size_t align) const noexcept {
    return last_offset(bytes, align) < max_small_bytes_;
  }
  [[nodiscard]] std::size_t class_of(std::size_t bytes, std::size_t align) const noexcept {
    return small_classes_.index_at(last_offset(bytes, align));
  }
  [[nodiscard]] void* allocate_in_epoch(detail::block_group& group, std::size_t bytes, std::size_t align) {
    if constexpr (check_level >= 2) detail::require_power_of_two("epoch_resource", name(), align);
    if (!is_small(bytes, align)) return allocate_in(group, bytes, align).data();
    if (void* const block = group.take_small(class_of(bytes, align), bytes)) [[likely]]
      return block;
    return allocate_small(group, bytes, align);
  }
  // Allocates from a slab that becomes the group's, or, if the upstream has no memory for a chunk, as
  // `allocate_in`.
  [[nodiscard]] void* allocate_small(detail::block_group& group, std::size_t bytes, std::size_t align);
  [[nodiscard]] bool is_late_small(detail::epoch_slab const& range, void* block, std::size_t bytes,
                                   std::size_t align) const noexcept {
    return range.was_reclaimed(block) && is_small(bytes, align) &&
           range.class_index == class_of(bytes, align);
  }
  // A block that lies or lay in a slab of another thread, or was kept, or a wrong call.
  TIDEMARK_COLD void deallocate_from_outside(detail::epoch_slab& slab, void* block, std::size_t bytes,
                                             std::size_t align) noexcept;
  void add_chunk(detail::block_group& group);
  void return_chunks(detail::block_group& group, bool also_used) noexcept;
  void report_late(void* block, char const* by) const noexcept;
  // Called while the upstream's exception is handled.
  [[nodiscard]] TIDEMARK_COLD void* allocate_again(std::size_t bytes, std::size_t align);
  [[nodiscard]] detail::tracked_block& allocate_in(detail::block_group& group, std::size_t bytes,
                                                   std::size_t align);
  [[nodiscard]] void* allocate_untracked(std::size_t bytes, std::size_t align);
  void forget_previous(void* block) noexcept;
  [[nodiscard]] bool untrack(void* block, std::size_t bytes, std::size_t align) noexcept;
  // Ends a generation of a block, because it is deallocated or its address allocated again. False if that has
  // ended.
  bool end_generation(detail::tracked_block& block, std::uint64_t generation) noexcept;
  // Removes a held block from its group. False if another thread changed it meanwhile.
  bool remove(detail::tracked_block& block, detail::block_state before, detail::block_state then) noexcept;

  // For `epoch` and `buffer_group`.
  [[nodiscard]] detail::block_group& acquire_group();
  [[nodiscard]] TIDEMARK_COLD detail::block_group& acquire_another_group();
  void release_group(detail::block_group& group) noexcept;
  [[nodiscard]] detail::block_group& group_of_this_thread();
  void leave_group_of_this_thread(detail::block_group& group) noexcept;
  epoch_summary end_frame(detail::block_group& group) noexcept;
  // The upstream may allocate its address all the same: then the record is of another generation.
  struct quarantined {
    detail::tracked_block* block;
    detail::block_state state;
    std::size_t bytes;
  };
  void quarantine(detail::tracked_block& block) noexcept;
  std::size_t free_quarantined(quarantined const& entry) noexcept;
  std::size_t shrink_quarantine(std::size_t target_bytes) noexcept;

  void adapt_to_child() noexcept;  // for a fork

  // As `allocate`, but with no guess whether an epoch is open: it is more likely through `std::pmr`.
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    detail::block_group* const group = own_group();
    return group != nullptr ? allocate_in_epoch(*group, bytes, align) : allocate_untracked(bytes, align);
  }

  epoch_options options_;
  detail::address_table<detail::tracked_block, 4> table_;
  detail::size_classes small_classes_;
  std::size_t max_small_bytes_;  // 0: no slabs, because of a quarantine or memory that is not the host's
  detail::epoch_slab_table slab_table_;
  detail::counting_filter range_filter_;  // of its addresses
  // Addresses whose records matter. One stays in it when its block is deallocated early in an epoch, because
  // the address mostly comes again in one; the next look-up erases it.
  detail::counting_filter filter_;
  std::atomic<std::uint64_t> late_{0};
  detail::reclaim_log ended_generations_;

  std::atomic<detail::block_group*> last_released_{
      nullptr};                               // mostly free, and acquired without the lock then
  mutable detail::fork_safe<> groups_mutex_;  // for the next
  std::vector<std::unique_ptr<detail::block_group>> groups_;

  mutable detail::fork_safe<> quarantine_mutex_;  // for the next two
  std::pmr::deque<quarantined> quarantine_;       // the oldest first
  std::size_t quarantined_bytes_ = 0;
};

}  // namespace tidemark
