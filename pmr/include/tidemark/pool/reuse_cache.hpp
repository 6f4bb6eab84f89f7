// SPDX-License-Identifier: Apache-2.0
/// @file
/// `reuse_cache`: reuses blocks by exact size, on any memory. Owns the free blocks that it keeps.
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

/// Callback that frees memory if the upstream of a reuse cache has none.
struct reuse_relief {
  /// Frees memory. @return true if the upstream should be called once more
  bool (*call)(void* context) noexcept = nullptr;
  /// Argument of `call`.
  void* context = nullptr;
};

/// Callback around the queries of fences. It prepares a thread once for all queries.
struct reuse_query_scope {
  /// Calls `queries(state)` once, or not at all if no fence may be queried now.
  void (*call)(void* context, void (*queries)(void* state) noexcept, void* state) noexcept = nullptr;
  /// First argument of `call`.
  void* context = nullptr;
};

/// Options of `reuse_cache`.
struct reuse_cache_options {
  /// Maximum bytes of ready blocks in the cache; 0: no limit. Pending blocks do not count. Over the limit,
  /// the largest size leaves first, its oldest block first, and no more than needed. A block that alone
  /// exceeds the limit leaves itself.
  std::size_t max_cached_bytes = 1 * GiB;
  /// Maximum ready blocks of one size and alignment; 0: no limit. The oldest block leaves.
  std::size_t max_blocks_per_size = 0;
  /// Called after the upstream throws std::bad_alloc, and before its second and last call. Called without a
  /// lock, by any thread that allocates; may use the cache. Null: the cache calls `collect()`, after another
  /// failure `collect(true)`, and so the upstream up to three times.
  reuse_relief relief = {};
  /// Called around the queries of one call, without a lock, by any thread. Null: fences are queried directly.
  reuse_query_scope query_scope = {};
  /// Used in messages and statistics; must outlive the cache.
  char const* name = "reuse_cache";
  /// Source of the blocks; null: `std::pmr::get_default_resource()`. Must outlive the cache.
  std::pmr::memory_resource* upstream = nullptr;
  /// Source of host memory for records; null: `std::pmr::new_delete_resource()`. Must outlive the cache.
  /// Called under the cache's lock; a call back into the cache is reported as `violation_kind::reentry`.
  std::pmr::memory_resource* bookkeeping = nullptr;
};

/// A snapshot of a reuse cache. Bytes are as requested.
///
/// At any time:
/// - `hits + misses == allocations`
/// - `allocations - deallocations == used_blocks <= peak_blocks`, and `used_bytes <= peak_bytes`
/// - `cached_bytes <= peak_cached_bytes`, and `cached_bytes <= reuse_cache_options::max_cached_bytes` if that
///   is not 0
///
/// While no call is active:
/// - `held_bytes == used_bytes + cached_bytes + pending_bytes`. During calls, `held_bytes` also counts blocks
///   on their way to the upstream.
struct reuse_cache_stats {
  char const* name = "";              ///< the cache's name
  std::uint64_t allocations = 0;      ///< blocks allocated so far
  std::uint64_t deallocations = 0;    ///< blocks deallocated so far
  std::uint64_t refused = 0;          ///< failed allocations so far
  std::uint64_t hits = 0;             ///< allocations served without a call of the upstream
  std::uint64_t misses = 0;           ///< allocations served by the upstream
  std::size_t used_blocks = 0;        ///< live blocks
  std::size_t peak_blocks = 0;        ///< most blocks live at once
  std::size_t used_bytes = 0;         ///< bytes of live blocks
  std::size_t peak_bytes = 0;         ///< most bytes live at once
  std::size_t cached_bytes = 0;       ///< bytes of free blocks that are ready to be allocated
  std::size_t peak_cached_bytes = 0;  ///< most bytes cached at once
  std::size_t pending_bytes = 0;      ///< bytes of free blocks whose fence was not yet found done
  /// Bytes taken from the upstream and not yet returned. In a forked child, also blocks that other threads
  /// were returning.
  std::size_t held_bytes = 0;
};

/// Keeps deallocated blocks, and reuses them for requests of exactly their size and alignment once the work
/// that uses them is done.
///
/// Use it for tensors, which repeat exact sizes, and in front of a slow upstream, above all of a device. It
/// never touches a block. Prefer `pool` for many small blocks of many sizes, and `arena` for blocks freed
/// together.
///
/// ```cpp
/// reuse_cache tensors{{.max_cached_bytes = 64 * MiB, .upstream = &device_memory}};
/// void* gradient = tensors.allocate(4096, 256);
/// gpu::event read{stream};                          // behind the work that reads it
/// tensors.deallocate_after(gradient, 4096, 256, std::move(read).as_fence());
/// void* next = tensors.allocate(4096, 256);         // `gradient` if the event is done, and not before
/// ```
/// A free block is *ready*, or *pending* behind a fence. Ready blocks of one size are reused in FIFO order. A
/// pending block is neither reused nor returned.
///
/// Invariants, checked by `check_invariants()`: those of `reuse_cache_stats`, and
/// - `cached_bytes == sum over ready blocks`, `pending_bytes == sum over pending blocks`
/// - `cached_bytes <= max_cached_bytes` and `ready blocks of a size <= max_blocks_per_size`, for limits other
///   than 0
///
/// Thread-safety: any thread, except for construction, destruction and `check_invariants()`. The upstream,
/// the relief and fences are called without a lock, and may call back. With several threads the upstream must
/// be thread-safe. A forked child has the same rights.
class reuse_cache final : public detail::forwarding_resource<reuse_cache> {
 public:
  /// Alignment of requests without an alignment argument.
  static constexpr std::size_t default_alignment = alignof(std::max_align_t);

  /// Uses the default resource, and keeps up to 1 GiB.
  reuse_cache() : reuse_cache{reuse_cache_options{}} {}
  /// Uses `upstream`, and keeps up to 1 GiB. Null: the default resource.
  explicit reuse_cache(std::pmr::memory_resource* upstream)
      : reuse_cache{reuse_cache_options{.upstream = upstream}} {}
  /// Uses `options`. @throws whatever the bookkeeping resource throws
  explicit reuse_cache(reuse_cache_options const& options);
  /// Rejected at compile time, with a message that shows the right form.
  explicit reuse_cache(std::integral auto bytes) : reuse_cache{} {
    static_assert(
        detail::right_form<decltype(bytes)>,
        "a reuse_cache takes its limit as an option: write reuse_cache c{{.max_cached_bytes = 64 * MiB}}");
  }
  /// Waits for all fences, and returns all kept blocks to the upstream. Live blocks can no longer be
  /// deallocated; level 2 reports them (`violation_kind::leak`), except in a forked child.
  ~reuse_cache() override;

  /// Reuses a kept block of exactly this size and alignment, or allocates from the upstream. If no block of
  /// the size is ready, the call queries fences of its pending blocks: the first of each order
  /// (`reuse_fence::order`) and unordered fences, at most 32, in rotation.
  /// @param bytes exact size, may be 0
  /// @param align a power of two
  /// @throws whatever the upstream throws; std::bad_alloc only after relief (see
  /// `reuse_cache_options::relief`); std::bad_alloc for sizes beyond PTRDIFF_MAX. Nothing is allocated then,
  /// and the cache remains usable.
  ///
  /// O(1) for a recently requested size, otherwise O(log(sizes)), plus upstream and fences. O(orders) if a
  /// pending block is taken. Records are allocated only when more blocks are kept than ever before.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment) TIDEMARK_LIFETIMEBOUND;

  /// Deallocates an unused block, with the size and alignment of its allocation. Ignores null. O(1) for a
  /// recently requested size, otherwise O(log(sizes)), and amortised O(log(sizes)) for each block that leaves
  /// over the limit.
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept {
    deallocate_after(block, bytes, align, {});
  }

  /// Deallocates a block that is in use until `fence` is done. Until then the block is neither reused nor
  /// returned. The cache destroys the fence, on the thread that finds it done. If there is no memory for a
  /// record, the call waits for the fence and returns the block to the upstream.
  ///
  /// With `max_blocks_per_size` or a limit below 1 GiB, or once as many bytes are kept as a larger limit
  /// allows, each deallocation queries 2 fences of any size, in rotation. O(orders) if the block becomes
  /// pending.
  ///
  /// Level 2 reports a block that is deallocated twice, of another size, interior or foreign. Only the fence
  /// is destroyed then, as for null.
  void deallocate_after(void* block, std::size_t bytes, std::size_t align, reuse_fence fence) noexcept;

  /// Returns all ready blocks to the upstream, and pending blocks whose fences are done; in each order it
  /// stops at the first fence that is not done. With `force`, also waits for the other fences and returns
  /// their blocks. Usable as a callback of `on_memory_pressure`. Keeps the memory of records. @return bytes
  /// returned to the upstream. O(kept blocks).
  ///
  /// Under memory pressure (`signal_memory_pressure`), a cache without a `relief` calls `collect()` itself.
  /// It does so at once if the upstream is `std::pmr::new_delete_resource()` or `global_pool()`, which any
  /// thread may call; otherwise in the next deallocation or miss.
  std::size_t collect(bool force = false) noexcept;

  /// Returns a snapshot of the counts. O(1).
  [[nodiscard]] reuse_cache_stats stats() const noexcept;

  /// The options in effect, with null resources replaced by their defaults.
  [[nodiscard]] reuse_cache_options const& options() const noexcept { return options_; }
  /// The source of the blocks.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return options_.upstream; }
  /// The name used in messages.
  [[nodiscard]] char const* name() const noexcept { return options_.name; }

  /// Reports a violation for each broken invariant of the class comment. O(kept blocks). @pre no other thread
  /// uses the cache
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
  std::size_t look_from_bytes_;  // a deallocation queries fences if at least this many bytes are kept
  std::atomic<bool> must_collect_{false};

  mutable detail::fork_safe<> mutex_;  // guards the next three members
  detail::kept_blocks kept_;
  reuse_cache_stats counts_;  // all counts that `kept_` does not have
  bool is_in_child_ = false;  // blocks that other threads were returning stay held forever

  detail::fork_safe<>
      ledger_mutex_;             // level 2 only; separate, so that a violation handler may call `stats()`
  detail::block_ledger ledger_;  // level 2 only

  detail::pressure_handle pressure_;
};

}  // namespace tidemark
