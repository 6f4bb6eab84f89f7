// SPDX-License-Identifier: Apache-2.0
/// @file
/// `reuse_cache`: blocks that are reused by exact size, also in memory that the host cannot touch. The cache
/// owns its free blocks.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>

#include <tidemark/core/detail/block_ledger.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/memory_pressure.hpp>
#include <tidemark/core/reuse_fence.hpp>
#include <tidemark/core/units.hpp>

namespace tidemark {

namespace detail {
class cached_blocks;  // src/pool/cached_blocks.hpp
struct cached_list;
class reuse_cache_owner;  // pool/detail/reuse_cache_owner.hpp
}  // namespace detail

/// Options of a reuse cache.
struct reuse_cache_options {
  /// Maximum bytes of ready blocks; 0: no limit. Pending blocks do not count. Above the limit the largest
  /// blocks return to the upstream, the oldest of a size first. A block that alone exceeds the limit returns
  /// at once.
  std::size_t max_cached_bytes = 1 * GiB;
  /// Maximum number of ready blocks of one size and alignment; 0: no limit. Above the limit the oldest block
  /// returns to the upstream.
  std::size_t max_blocks_per_size = 0;
  /// The name in messages and statistics; must outlive the cache.
  char const* name = "reuse_cache";
  /// The source of blocks; null: `std::pmr::get_default_resource()`. Must outlive the cache, and be
  /// thread-safe if several threads use the cache.
  std::pmr::memory_resource* upstream = nullptr;
  /// The source of the cache's records, which the host writes; null: `std::pmr::new_delete_resource()`. Must
  /// outlive the cache. Called under the cache's lock; calling back is reported as `violation_kind::reentry`.
  /// A warm cache needs no further records.
  std::pmr::memory_resource* bookkeeping = nullptr;
};

/// A snapshot of a reuse cache. Bytes are as requested. A block is either live or free, never both.
///
/// At any time:
/// - `hits + misses == allocations`
/// - `allocations - deallocations == used_blocks <= peak_blocks`, and `used_bytes <= peak_bytes`
/// - `cached_bytes <= peak_cached_bytes`, and `cached_bytes <= reuse_cache_options::max_cached_bytes` if that
///   is not 0
///
/// and while no call is active:
/// - `held_bytes == used_bytes + cached_bytes + pending_bytes`. During a call `held_bytes` may be more:
///   it includes blocks that are being returned to the upstream.
struct reuse_cache_stats {
  char const* name = "";              ///< the cache's name
  std::uint64_t allocations = 0;      ///< blocks allocated so far
  std::uint64_t deallocations = 0;    ///< blocks deallocated so far
  std::uint64_t refused = 0;          ///< allocations that failed so far
  std::uint64_t hits = 0;             ///< allocations served without a call of the upstream
  std::uint64_t misses = 0;           ///< allocations that called the upstream
  std::size_t used_blocks = 0;        ///< live blocks
  std::size_t peak_blocks = 0;        ///< largest `used_blocks` so far
  std::size_t used_bytes = 0;         ///< bytes of live blocks
  std::size_t peak_bytes = 0;         ///< largest `used_bytes` so far
  std::size_t cached_bytes = 0;       ///< bytes of free blocks that are ready for reuse
  std::size_t peak_cached_bytes = 0;  ///< largest `cached_bytes` so far
  std::size_t pending_bytes = 0;      ///< bytes of free blocks whose fence was not yet found to be done
  std::size_t held_bytes = 0;         ///< bytes taken from the upstream and not returned
};

/// Keeps deallocated blocks, and reuses them for requests of exactly their size and alignment once the work
/// that uses them is done. Never touches a block.
///
/// Use it for tensors, which repeat their sizes, and in front of a slow upstream, such as a device. A `pool`
/// is better for many small blocks of many sizes.
///
/// ```cpp
/// reuse_cache tensors{{.max_cached_bytes = 64 * MiB, .upstream = &device_memory}};
/// void* gradient = tensors.allocate(4096, 256);
/// gpu::event read{stream};                          // behind the work that reads it
/// tensors.deallocate_after(gradient, 4096, 256, std::move(read).as_fence());
/// void* next = tensors.allocate(4096, 256);         // `gradient` if the event is done, and not before
/// ```
/// A block is *pending* until its fence is found to be done, and then *ready*.
///
/// Invariants, checked by `check_invariants()`: those of `reuse_cache_stats`, and `ready blocks of a size <=
/// max_blocks_per_size` (0: no limit).
///
/// Complexity: O(log(sizes)) plus the upstream's and the queries'. Thread-safety: any thread, except
/// construction, destruction and `check_invariants()`. The upstream and fences are called without a lock
/// and may call back.
class reuse_cache final : public detail::forwarding_resource<reuse_cache> {
 public:
  /// Alignment of requests without an alignment argument, and minimum alignment of every block.
  static constexpr std::size_t default_alignment = alignof(std::max_align_t);

  /// Makes a cache over the default resource that keeps at most 1 GiB.
  reuse_cache() : reuse_cache{reuse_cache_options{}} {}
  /// Makes the same cache over `upstream`; null: the default resource.
  explicit reuse_cache(std::pmr::memory_resource* upstream)
      : reuse_cache{reuse_cache_options{.upstream = upstream}} {}
  /// Makes a cache with `options`. If the upstream throws std::bad_alloc, the cache calls `collect()`, then
  /// `collect(true)`, and the upstream again after each.
  /// @param owner null; tidemark's own classes replace these calls. @throws whatever the bookkeeping resource
  /// throws.
  explicit reuse_cache(reuse_cache_options const& options, detail::reuse_cache_owner* owner = nullptr);
  /// Rejected at compile time, with a message that shows the right form.
  explicit reuse_cache(std::integral auto bytes) : reuse_cache{} {
    static_assert(
        detail::right_form<decltype(bytes)>,
        "a reuse_cache takes its limit as an option: write reuse_cache c{{.max_cached_bytes = 64 * MiB}}");
  }
  /// Waits for all fences and returns all free blocks to the upstream. Live blocks stay with their users, and
  /// can no longer be deallocated; level 2 reports them (`violation_kind::leak`).
  ~reuse_cache() override;

  /// Returns the block of this size that has been ready for longest, or else a block of the upstream. If the
  /// size has pending blocks but no ready block, queries fences. In each order (`reuse_fence::order`) the
  /// queries stop at the first fence that is not done. They stop altogether after 32 such fences.
  /// @param bytes size, also 0.
  /// @param align a power of two.
  /// @throws the upstream's exception, if it is std::bad_alloc after `collect(true)`; std::bad_alloc for sizes
  /// above PTRDIFF_MAX. The cache is unchanged then.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment) TIDEMARK_LIFETIMEBOUND;

  /// Deallocates a block that nothing uses any more. Does nothing for null.
  /// @param bytes, align as allocated
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept {
    deallocate_after(block, bytes, align, {});
  }

  /// Deallocates a block that is in use until `fence` is done: no request and no upstream gets the block
  /// before. The thread that finds the fence done destroys it. If memory for a record is exhausted, the block
  /// returns to the upstream after a wait for the fence. Level 2 reports a block that is deallocated twice,
  /// with another size, interior or foreign; then, and for null, only the fence is destroyed.
  ///
  /// Queries fences if ready and pending bytes exceed `max_cached_bytes`, or if only `max_blocks_per_size`
  /// limits the cache. The queries stop after 2 fences that are not done. Complexity: O(log(sizes) + orders)
  /// plus the queries.
  void deallocate_after(void* block, std::size_t bytes, std::size_t align, reuse_fence fence) noexcept;
  /// Rejected: a null fence.
  template <std::same_as<std::nullptr_t> Null>
  TIDEMARK_REJECTS(void, "nullptr is not a fence: write deallocate(block, bytes, align)")
  deallocate_after(void*, std::size_t, std::size_t, Null) TIDEMARK_REJECTED;

  /// Returns ready blocks to the upstream, and pending blocks whose fences are done: in each order up to the
  /// first fence that is not done. Can be a callback of `on_memory_pressure`. Keeps the memory of records.
  /// @param force waits for the other fences and returns their blocks too, without a query
  /// @return bytes returned to the upstream. O(kept blocks).
  std::size_t collect(bool force = false) noexcept;

  /// A snapshot in numbers. O(1).
  [[nodiscard]] reuse_cache_stats stats() const noexcept;

  /// The options in effect, with default resources in place of null.
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
  void adapt_to_child() noexcept;
  [[nodiscard]] void* allocate_cached(std::size_t bytes, std::size_t align) noexcept;
  template <class Queries>
  void query(Queries queries) noexcept;
  [[nodiscard]] TIDEMARK_COLD void* allocate_new(std::size_t bytes, std::size_t align);
  [[nodiscard]] void* allocate_with_retries(std::size_t bytes, std::size_t align);
  [[nodiscard]] bool make_room(int refusals) noexcept;
  void cache_or_return(void* block, std::size_t bytes, std::size_t align, reuse_fence fence) noexcept;
  std::size_t return_to_upstream(detail::cached_list& evicted) noexcept;
  void return_to_upstream(void* block, std::size_t bytes, std::size_t align,
                          reuse_fence& fence) const noexcept;
  void count_allocation(std::size_t bytes) noexcept;  // with mutex_ held
  void track(void* block, std::size_t bytes, std::size_t align);

  reuse_cache_options options_;
  detail::reuse_cache_owner* owner_;  // may be null
  std::atomic<bool> must_collect_{false};

  mutable detail::fork_safe<> mutex_;  // guards the next two members
  reuse_cache_stats counts_;
  std::unique_ptr<detail::cached_blocks> cached_;
  bool is_in_child_ = false;  // blocks that other threads were returning to the upstream stay held

  detail::fork_safe<> ledger_mutex_;  // level 2 only; guards `ledger_`, apart from `mutex_`
  detail::block_ledger ledger_;       // level 2 only

  pressure_subscription pressure_;
};

}  // namespace tidemark
