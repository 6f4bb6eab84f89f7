// SPDX-License-Identifier: Apache-2.0
/// @file
/// `reuse_cache`: blocks that are reused by exact size, also where the host cannot touch them. The cache owns
/// the free blocks that it keeps.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <type_traits>

#include <tidemark/core/detail/block_ledger.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/reuse_fence.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/pool/detail/kept_blocks.hpp>
#include <tidemark/pool/memory_pressure.hpp>

namespace tidemark {

/// What makes room where the upstream of a reuse cache has none.
struct reuse_relief {
  /// Frees what it can; returns whether it is of any use to call the upstream once more.
  bool (*call)(void* context) noexcept = nullptr;
  /// What it is called with.
  void* context = nullptr;
};

/// What surrounds the queries of fences: it prepares a thread for them once, and not for each.
struct reuse_query_scope {
  /// Calls `queries(state)` once, or not at all where no fence may be queried now.
  void (*call)(void* context, void (*queries)(void* state) noexcept, void* state) noexcept = nullptr;
  /// What it is called with.
  void* context = nullptr;
};

/// How a reuse cache is made.
struct reuse_cache_options {
  /// Blocks that are ready to be used again are kept up to this many bytes in all; 0: without limit. What a
  /// fence still guards does not count: it is kept anyway.
  std::size_t max_cached_bytes = 1 * GiB;
  /// The same in blocks of one size and alignment; 0: without limit.
  std::size_t max_blocks_per_size = 0;
  /// What is called where the upstream throws std::bad_alloc, before it is called for the second and last
  /// time. It is called without a lock, by any thread that allocates, and may use the cache. Null:
  /// `collect()`, and if the upstream throws again `collect(true)`, so that it is called up to three times.
  reuse_relief relief = {};
  /// What surrounds the queries of a call. It is called without a lock, by any thread. Null: fences are
  /// queried as they are.
  reuse_query_scope query_scope = {};
  /// In messages and statistics; must outlive the cache.
  char const* name = "reuse_cache";
  /// Where blocks come from; null: `std::pmr::get_default_resource()`. Must outlive the cache.
  std::pmr::memory_resource* upstream = nullptr;
  /// Where the cache's own records come from, which the host writes; null: `std::pmr::new_delete_resource()`.
  /// Must outlive the cache. It is called under the cache's lock; calling back is
  /// reported as `violation_kind::reentry`.
  std::pmr::memory_resource* bookkeeping = nullptr;
};

/// A snapshot of a reuse cache. Bytes are as requested; live blocks and kept blocks are never mixed.
///
/// At any time:
/// - `hits + misses == allocations`
/// - `allocations - deallocations == used_blocks <= peak_blocks`, and `used_bytes <= peak_bytes`
/// - `cached_bytes <= peak_cached_bytes`, and `cached_bytes <= reuse_cache_options::max_cached_bytes` if that
///   is not 0
///
/// and whenever no call is going on:
/// - `held_bytes == used_bytes + cached_bytes + pending_bytes`; while blocks are on their way to the upstream
///   it is more
struct reuse_cache_stats {
  char const* name = "";              ///< the cache's name
  std::uint64_t allocations = 0;      ///< blocks allocated so far
  std::uint64_t deallocations = 0;    ///< blocks deallocated so far
  std::uint64_t refused = 0;          ///< allocations that failed so far
  std::uint64_t hits = 0;             ///< of the allocations, those served without a call of the upstream
  std::uint64_t misses = 0;           ///< of the allocations, those that called it
  std::size_t used_blocks = 0;        ///< live blocks
  std::size_t peak_blocks = 0;        ///< most that were live at once
  std::size_t used_bytes = 0;         ///< of live blocks
  std::size_t peak_bytes = 0;         ///< most that were live at once
  std::size_t cached_bytes = 0;       ///< of free blocks, ready to be allocated
  std::size_t peak_cached_bytes = 0;  ///< most that were cached at once
  std::size_t pending_bytes = 0;      ///< of free blocks whose fence was not yet found to be done
  std::size_t held_bytes = 0;         ///< of blocks taken from the upstream and not returned to it
};

/// Keeps deallocated blocks and allocates them again to requests of exactly their size and alignment, once
/// the work that still uses them is done.
///
/// Use it for tensors, which repeat their sizes exactly and for which a pool's size classes waste memory;
/// and in front of any slow upstream, above all one that allocates on a device, whose work goes on after
/// the call that frees its memory. It never touches a block: addresses need not mean anything to the host.
/// For many small blocks of many sizes `pool` is better, for blocks that die together an `arena`.
///
/// ```cpp
/// reuse_cache tensors{{.max_cached_bytes = 64 * MiB, .upstream = &device_memory}};
/// void* gradient = tensors.allocate(4096, 256);
/// gpu::event read{stream};                          // behind the work that reads it
/// tensors.deallocate_after(gradient, 4096, 256, std::move(read).as_fence());
/// void* next = tensors.allocate(4096, 256);         // `gradient` if the event is done, and not before
/// ```
/// A block that is *ready*, deallocated without a fence or behind one that was found to be done, goes to the
/// next request of its size: the one that has been ready for longest first. A block that is *pending*, behind
/// a fence not found to be done, goes nowhere, not to the upstream either. Fences are
/// queried when a request finds no ready block (those of its size, at most 32), in `collect` (all), and,
/// where the limit is below 1 GiB or as much is kept, in each deallocation (2 of any size); each time
/// others, so that none is passed over for long, in whatever order they become done. Of fences with one order
/// (`reuse_fence::order`), such as events of one stream, only the first is queried, and the next if that is
/// done.
///
/// Ready blocks are kept up to `max_cached_bytes` bytes and `max_blocks_per_size` blocks of a size. Beyond,
/// the largest go to the upstream, which are the fewest, and no more than need be; of a size always the
/// oldest. A block that alone exceeds the limit goes itself. Pending blocks do not count and stay; one that
/// is found to be done counts from then on. Where the upstream throws std::bad_alloc, `collect()`, and then
/// `collect(true)`, make room, and it is called again each time; or `reuse_cache_options::relief` does, and
/// it is called once more.
///
/// Under memory pressure (`signal_memory_pressure`) a cache without a `relief` of its own does `collect()`:
/// at once if the upstream is `std::pmr::new_delete_resource()` or `global_pool()`, which are for any thread;
/// else in the next deallocation, or in the next request that would call the upstream.
///
/// Invariants, checked by `check_invariants()`: those of `reuse_cache_stats`, and
/// - `cached_bytes == sum over ready blocks`, `pending_bytes == sum over pending blocks`
/// - `cached_bytes <= max_cached_bytes` and `ready blocks of a size <= max_blocks_per_size`, where these are
///   not 0
///
/// Complexity: allocate and deallocate O(1) for a size among the last requested ones, else O(log(sizes)),
/// above the upstream's and at most 32 fences', plus what goes to the upstream, amortised O(log(sizes)) for a
/// block that leaves over the limit, and O(orders) for a block that becomes pending or is no longer. A request
/// queries as many fences as its size's pending blocks have orders, and those without. Records are allocated
/// as more blocks are kept than ever before, none once warm.
/// Thread-safety: any thread, any function, except construction, destruction and `check_invariants()`. One
/// lock guards the records, and is held while the bookkeeping resource is called. The upstream, the relief
/// and fences are called without it: threads hit while one waits, all may call back, and the upstream must be
/// thread-safe if the threads that use the cache are several. A child that is forked may do the same;
/// `held_bytes` includes there what other threads were just giving to the upstream, and level 2 reports no
/// leaks there.
///
/// Level 2 knows the live blocks, and reports a wrong deallocation.
class reuse_cache final : public detail::forwarding_resource<reuse_cache> {
 public:
  /// Alignment of every block, at least, where none is given.
  static constexpr std::size_t default_alignment = alignof(std::max_align_t);

  /// Blocks of the default resource, kept up to 1 GiB.
  reuse_cache() : reuse_cache{reuse_cache_options{}} {}
  /// The same of `upstream`; null: the default resource.
  explicit reuse_cache(std::pmr::memory_resource* upstream)
      : reuse_cache{reuse_cache_options{.upstream = upstream}} {}
  /// As `options` say. @throws what the bookkeeping resource throws.
  explicit reuse_cache(reuse_cache_options const& options);
  /// A wrong form: does not compile, and says which form is right.
  explicit reuse_cache(std::integral auto bytes) : reuse_cache{} {
    static_assert(
        detail::right_form<decltype(bytes)>,
        "a reuse_cache takes its limit as an option: write reuse_cache c{{.max_cached_bytes = 64 * MiB}}");
  }
  /// Waits for all fences and returns what is kept to the upstream. Live blocks stay with their users, and
  /// can no longer be deallocated; level 2 reports them (`violation_kind::leak`).
  ~reuse_cache() override;

  /// A block: one that is kept, or else of the upstream.
  /// @param bytes exactly so many, also 0.
  /// @param align a power of two.
  /// @throws what the upstream throws, if it is std::bad_alloc after room was made and the upstream called
  /// again, as the class comment says; std::bad_alloc for sizes beyond PTRDIFF_MAX. Nothing is allocated
  /// then, and the cache can be used as before.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment) TIDEMARK_LIFETIMEBOUND;

  /// Takes a block back that nothing uses any more, with the size and alignment it was allocated with. Does
  /// nothing for null.
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept {
    deallocate_after(block, bytes, align, {});
  }

  /// Takes a block back that is in use until `fence` is done: it goes to no request and not to the upstream
  /// before. The cache destroys the fence, on the thread that sees it to be done. If there is no memory for
  /// a record the block goes straight to the upstream, after a wait for the fence. Level 2 reports a block
  /// that is deallocated twice, of another size, interior or foreign. Then, and for null, only the fence is
  /// destroyed.
  void deallocate_after(void* block, std::size_t bytes, std::size_t align, reuse_fence fence) noexcept;

  /// Returns all ready blocks to the upstream, and the pending ones whose fences are done; with `force` those
  /// of the other fences too, each after a wait. In each order it stops at the first block whose fence is not
  /// done. It can be a callback of `on_memory_pressure`. The memory for records is kept.
  /// @return bytes returned to the upstream. O(kept blocks).
  std::size_t collect(bool force = false) noexcept;

  /// A snapshot in numbers. O(1).
  [[nodiscard]] reuse_cache_stats stats() const noexcept;

  /// The options that hold, with the resources that null stood for.
  [[nodiscard]] reuse_cache_options const& options() const noexcept { return options_; }
  /// The resource that blocks come from.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return options_.upstream; }
  /// The name in messages.
  [[nodiscard]] char const* name() const noexcept { return options_.name; }

  /// Reports a violation if an invariant of the class comment does not hold. O(kept blocks). @pre no other
  /// thread is using the cache.
  void check_invariants() const noexcept;

 private:
  friend detail::fork_safe<>;

  void respond_to_pressure() noexcept;
  void collect_if_posted() noexcept {
    if (must_collect_.load(std::memory_order_relaxed)) [[unlikely]]
      (void)collect(false);
  }
  void adapt_to_child() noexcept {
    is_in_child_ = true;
    kept_.forget_queries();
  }
  [[nodiscard]] void* take_kept(std::size_t bytes, std::size_t align) noexcept;
  [[nodiscard]] void* take_done(std::size_t bytes, std::size_t align) noexcept;
  [[nodiscard]] void* hit(detail::kept_block& taken) noexcept;  // with mutex_ held
  template <class Queries>
  void query(Queries queries) noexcept;
  [[nodiscard]] TIDEMARK_COLD void* take_new(std::size_t bytes, std::size_t align);
  [[nodiscard]] void* ask_upstream(std::size_t bytes, std::size_t align);
  [[nodiscard]] bool make_room(int refusals) noexcept;
  void give(void* block, std::size_t bytes, std::size_t align, reuse_fence fence) noexcept;
  std::size_t return_to_upstream(detail::kept_chain& leaving) noexcept;
  void return_to_upstream(void* block, std::size_t bytes, std::size_t align,
                          reuse_fence& fence) const noexcept;
  void count_allocation(std::size_t bytes) noexcept;  // with mutex_ held
  void track(void* block, std::size_t bytes, std::size_t align);

  reuse_cache_options options_;
  std::size_t look_from_bytes_;  // with more kept, a deallocation queries fences
  std::atomic<bool> must_collect_{false};

  mutable detail::fork_safe<> mutex_;  // for what follows
  detail::kept_blocks kept_;
  reuse_cache_stats counts_;  // all but what `kept_` counts
  bool is_in_child_ = false;  // what other threads were giving to the upstream is held for ever

  detail::fork_safe<> ledger_mutex_;  // level 2 only; one of its own, so that a violation handler may look
  detail::block_ledger ledger_;       // level 2 only

  detail::pressure_handle pressure_;
};

}  // namespace tidemark
