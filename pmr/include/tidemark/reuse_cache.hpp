// SPDX-License-Identifier: Apache-2.0
/// @file
/// `reuse_cache`: blocks that come back by exact size, also where the host cannot touch them. The cache owns
/// the blocks given back to it until its upstream has them again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <mutex>
#include <type_traits>

#include <tidemark/config.hpp>
#include <tidemark/detail/block_ledger.hpp>
#include <tidemark/detail/kept_blocks.hpp>
#include <tidemark/macros.hpp>
#include <tidemark/reuse_cache_options.hpp>
#include <tidemark/reuse_cache_stats.hpp>
#include <tidemark/reuse_fence.hpp>

namespace tidemark {

/// Keeps the blocks that are given back, and hands them out again to requests of exactly their size and
/// alignment: once the work that still uses them is done.
///
/// Use it for tensors, which repeat their sizes exactly and for which a pool's size classes waste memory;
/// and in front of any slow upstream, above all one that allocates on a device, whose work goes on after
/// the call that frees its memory. It never touches a block: addresses need not mean anything to the host.
/// For many small blocks of many sizes `pool` is better, for blocks that die together an `arena`.
///
/// ```cpp
/// reuse_cache tensors{{.cached_bytes_max = 64 * MiB, .upstream = &device_memory}};
/// void* gradient = tensors.allocate(4096, 256);
/// tensors.deallocate_after(gradient, 4096, 256, event);  // from when the event is done,
/// void* next = tensors.allocate(4096, 256);              // and not before, this may be `gradient`
/// ```
/// A block that is *ready*, given back without a fence or behind one that was seen to be done, goes to the
/// next request of its size: the last one first, or with `reuse_order::oldest` the first one. A block that is
/// *pending*, behind a fence not seen to be done, goes to nobody, the upstream included. Fences are asked
/// when a request finds no ready block (those of its size, at most 32), in `collect` (all), and, where there
/// is a limit, in each deallocation (2 of any size); each time others, so that none is passed over for long,
/// in whatever order they become done.
///
/// Ready blocks are kept up to `cached_bytes_max` bytes and `bucket_blocks_max` blocks of a size. Beyond,
/// those that have been ready for longest go to the upstream, or with `eviction_order::largest` the largest
/// ones, and no more than need be; of a size always the oldest. A block that alone exceeds the limit goes
/// itself. Pending blocks do not count and stay; one that is seen to be done counts from then on. Where the
/// upstream throws std::bad_alloc, `collect()`, and then `collect(true)`, make room, and it is asked again
/// each time; or `reuse_cache_options::relief` does, and it is asked once more.
///
/// Invariants, checked by `check_invariants()`: those of `reuse_cache_stats`, and
/// - `bytes_cached == sum over ready blocks`, `bytes_pending == sum over pending blocks`
/// - `bytes_cached <= cached_bytes_max` and `ready blocks of a size <= bucket_blocks_max`, where these are
///   not 0
///
/// Complexity: allocate and deallocate O(1) expected above the upstream's and at most 32 fences', plus what
/// goes to the upstream, O(1) each, or O(log(sizes)) amortised with `eviction_order::largest`; records are
/// allocated as more blocks are kept than ever before, none once warm.
/// Thread-safety: any thread, any function, but for construction, destruction and `check_invariants()`. One
/// lock guards the records, and is held while `reuse_fence::done` and the bookkeeping resource are called.
/// The upstream, and what may take long of fences, are called without it: threads hit while one waits, both
/// may call back, and the upstream must be thread-safe if the threads that use the cache are several.
///
/// Level 2 knows the blocks that are handed out, and reports what may not be given back so.
class reuse_cache final : public std::pmr::memory_resource {
 public:
  /// Alignment of every block, at least, where none is asked for.
  static constexpr std::size_t default_alignment = alignof(std::max_align_t);

  /// Blocks of the default resource, kept without limit.
  reuse_cache() : reuse_cache{reuse_cache_options{}} {}
  /// The same of `upstream`; null: the default resource.
  explicit reuse_cache(std::pmr::memory_resource* upstream)
      : reuse_cache{reuse_cache_options{.upstream = upstream}} {}
  /// As `options` say. @throws what the bookkeeping resource throws.
  explicit reuse_cache(reuse_cache_options const& options);
  reuse_cache(reuse_cache const&) = delete;
  reuse_cache& operator=(reuse_cache const&) = delete;
  /// Waits for all fences and gives what is kept back to the upstream. Blocks still handed out stay with
  /// their users, and can no longer be given back; level 2 reports them (`violation_kind::leak`).
  ~reuse_cache() override;

  /// A block: one that is kept, or else of the upstream.
  /// @param bytes exactly so many, also 0.
  /// @param align a power of two.
  /// @throws what the upstream throws, if it is std::bad_alloc after room was made and the upstream asked
  /// again, as the class comment says; std::bad_alloc for sizes beyond PTRDIFF_MAX. Nothing is handed out
  /// then, and the cache can be used as before.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment);

  /// Gives a block back that nothing uses any more, with the size and alignment it was asked for with.
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept {
    deallocate_after(block, bytes, align, {});
  }

  /// Gives a block back that is in use until `fence` is done: it goes to no request and not to the upstream
  /// before. The cache destroys the fence, on the thread that sees it to be done. If there is no memory for
  /// a record the block goes straight to the upstream, after a wait for the fence. Level 2 reports a block
  /// given back twice, of another size, interior or foreign, and then only destroys the fence.
  void deallocate_after(void* block, std::size_t bytes, std::size_t align, reuse_fence fence) noexcept;

  /// Gives all ready blocks back to the upstream, and the pending ones whose fences are done; with `force`
  /// those of the other fences too, each after a wait. As a callback of `on_memory_pressure` it works as it
  /// is. The memory for records is kept. @return bytes given back. O(kept blocks).
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
  [[nodiscard]] void* take_kept(std::size_t bytes, std::size_t align) noexcept;
  [[nodiscard]] TIDEMARK_COLD void* take_new(std::size_t bytes, std::size_t align);
  [[nodiscard]] void* ask_upstream(std::size_t bytes, std::size_t align);
  [[nodiscard]] bool make_room(int refusals) noexcept;
  void give(void* block, std::size_t bytes, std::size_t align, reuse_fence fence) noexcept;
  std::size_t return_to_upstream(detail::kept_chain& leaving) noexcept;
  void return_to_upstream(void* block, std::size_t bytes, std::size_t align,
                          reuse_fence& fence) const noexcept;
  void count_handed_out(std::size_t bytes) noexcept;  // with mutex_ held
  [[nodiscard]] char const* broken_invariant() const noexcept;
  [[nodiscard]] bool may_deallocate(void* block, std::size_t bytes, std::size_t align) noexcept;
  void record_handed_out(void* block, std::size_t bytes, std::size_t align);

  void* do_allocate(std::size_t bytes, std::size_t align) override { return allocate(bytes, align); }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  reuse_cache_options options_;

  mutable std::mutex mutex_;  // for what follows
  detail::kept_blocks kept_;
  std::uint64_t deallocations_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t hits_ = 0;
  std::uint64_t misses_ = 0;
  std::size_t used_bytes_ = 0;
  std::size_t peak_blocks_ = 0;
  std::size_t peak_bytes_ = 0;
  std::size_t held_bytes_ = 0;

  std::mutex ledger_mutex_;      // level 2 only; one of its own, so that a violation handler may look
  detail::block_ledger ledger_;  // level 2 only
};

static_assert(std::is_base_of_v<std::pmr::memory_resource, reuse_cache>);
static_assert(!std::is_copy_constructible_v<reuse_cache>, "blocks know their resource by its address");

}  // namespace tidemark
