// SPDX-License-Identifier: Apache-2.0
/// @file
/// `basic_pool`: the common part of `pool` and `device_pool`: limits, trims, statistics and checks. Its free
/// lists own the memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/detail/block_ledger.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/detail/frame_table.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/detail/thread_ownership.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/pool/detail/block_cache.hpp>
#include <tidemark/pool/pool_options.hpp>

namespace tidemark::detail {

/// A pool for one thread.
///
/// @tparam FreeLists free blocks in lists through the blocks (`pool_blocks`), or in records beside the blocks
/// (`device_heap`). `try_allocate` and `try_deallocate` are the fast paths. `allocate_slow` and
/// `deallocate_slow` do all other work, also for blocks beyond the size classes.
///
/// Invariants, checked by `check_invariants()`: those of `pool_stats` and of the free lists.
///
/// Thread-safety: one thread at a time, which level 2 checks. The first user owns the pool until
/// `release_thread_ownership()`.
template <class FreeLists>
class basic_pool : public forwarding_resource<basic_pool<FreeLists>> {
 public:
  /// Alignment of requests without an alignment argument.
  static constexpr std::size_t default_alignment = FreeLists::default_alignment;

  /// Allocates a block.
  /// @param bytes may be 0; the block then takes the smallest class and has its own address
  /// @param align a power of two
  /// @throws whatever the upstream throws, after one retry with all free memory returned; std::bad_alloc for
  /// sizes near the maximum. Nothing is allocated then, and the pool remains usable.
  // No gnu::alloc_size, because compilers would assume that a block of 0 bytes has no byte to write.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment,
      [[maybe_unused]] call_site where = std::source_location::current()) TIDEMARK_LIFETIMEBOUND {
    if constexpr (records_blocks) return allocate_checked(bytes, align, where);
    if (void* block = lists_.try_allocate(bytes, align)) [[likely]]
      return block;
    return allocate_slow(bytes, align);
  }

  /// Deallocates a block, with the size and alignment of its allocation. Ignores null. Level 2 and
  /// AddressSanitizer builds report, and then ignore, a block that is deallocated twice, of another size,
  /// interior or foreign.
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept {
    if (block == nullptr) [[unlikely]]
      return;
    if constexpr (check_level >= 2) owner_.require_owner(FreeLists::kind, name(), "deallocate");
    if constexpr (records_blocks) {
      if (!ledger_.remove(FreeLists::kind, name(), block, bytes, align)) return;
    }
    const free_result result = lists_.try_deallocate(block, bytes, align);
    if (result != free_result::listed) [[unlikely]]
      deallocate_slow(block, bytes, align, result);
  }

  /// Returns cached memory to the upstream until `cached_bytes <= target_bytes`: first free chunks of large
  /// blocks, then free slabs. If that is not enough, free blocks whose slab has live blocks are stranded
  /// (`stranded_bytes`); they are reused before the upstream is called. @return bytes returned to the
  /// upstream. O(free blocks * log(slabs)).
  std::size_t trim(std::size_t target_bytes = 0) noexcept {
    if constexpr (check_level >= 2) owner_.require_owner(FreeLists::kind, name(), "trim");
    const std::size_t returned = trim_to((std::min)(target_bytes, max_cached_bytes_));
    update_watermark();
    return returned;
  }

  /// Calls `trim(0)`. No memory is cached afterwards; live blocks and counts stay.
  void clear() noexcept { (void)trim(0); }
  /// Calls `clear()`, for a resource in front of the pool.
  void release_unused() noexcept override { clear(); }

  /// Returns all memory to the upstream, including live blocks, which count as deallocated. The pool remains
  /// usable.
  void release() noexcept {
    if constexpr (check_level >= 2) owner_.require_owner(FreeLists::kind, name(), "release");
    if constexpr (records_blocks) ledger_.clear();
    before_free_all();
    lists_.release();
    trim_times_.trimmed(0);
    enforce_limit();  // memory that a device's driver refuses to take is stranded
  }

  /// Returns a snapshot of the counts. O(classes).
  [[nodiscard]] pool_stats stats() const noexcept;

  /// Resets allocations, deallocations, hits and misses to 0, and the peak to the currently cached bytes.
  void reset_stats() noexcept {
    at_reset_ = lists_.counts();
    peak_cached_bytes_ = 0;
    update_watermark();
  }

  /// The name used in messages.
  [[nodiscard]] char const* name() const noexcept { return name_; }

  /// Releases ownership; the next thread that uses the pool owns it.
  void release_thread_ownership() noexcept { owner_.release(); }

  /// Reports a violation for each broken invariant of the class comment. O(free blocks * log(slabs)).
  void check_invariants() const noexcept;

 protected:
  /// @param arguments arguments of the free lists
  template <class... Arguments>
  basic_pool(std::size_t max_cached_bytes, char const* name, Arguments&&... arguments)
      : lists_{std::forward<Arguments>(arguments)...},
        max_cached_bytes_{max_cached_bytes},
        trim_times_{max_cached_bytes},
        name_{name_or(name, FreeLists::kind)} {
    if constexpr (check_level >= 2) untrack_frames_of(*this);
    update_watermark();
  }
  ~basic_pool() override {
    const std::size_t frames = before_free_all();
    if constexpr (records_blocks)
      report_lost_blocks(FreeLists::kind, name(), ledger_, frames, FreeLists::host_accessible);
  }

  // Containers call this: the thread's innermost `allocation_site` names the place.
  void* do_allocate(std::size_t bytes, std::size_t align) final {
    return allocate(bytes, align, call_site{});
  }

  // A new slab leaves free blocks, even if the request then fails.
  void enforce_limit() noexcept {
    if (lists_.cached_bytes() > max_cached_bytes_) trim_to(max_cached_bytes_);
    update_watermark();
  }
  [[nodiscard]] FreeLists& lists() noexcept { return lists_; }
  [[nodiscard]] FreeLists const& lists() const noexcept { return lists_; }

 private:
  // Reports live frames of coroutines. @return number of frames
  std::size_t before_free_all() const noexcept {
    if constexpr (check_level >= 2) return report_frames_of(*this, FreeLists::kind, name());
    return 0;
  }
  [[nodiscard]] TIDEMARK_COLD void* allocate_slow(std::size_t bytes, std::size_t align) {
    void* block = nullptr;
    try {
      block = lists_.allocate_slow(bytes, align);
    } catch (...) {
      enforce_limit();
      throw;
    }
    enforce_limit();
    return block;
  }
  TIDEMARK_COLD void deallocate_slow(void* block, std::size_t bytes, std::size_t align,
                                     free_result result) noexcept {
    lists_.deallocate_slow(block, bytes, align, result);
    if (lists_.cached_bytes() > trim_due_at()) trim_to(trim_times_.target_bytes());
    update_watermark();
  }
  // A block that cannot be recorded is deallocated again.
  [[nodiscard]] void* allocate_checked(std::size_t bytes, std::size_t align, call_site where) {
    if constexpr (check_level >= 2) owner_.require_owner(FreeLists::kind, name(), "allocate");
    require_power_of_two(FreeLists::kind, name(), align);
    void* block = lists_.try_allocate(bytes, align);
    if (block == nullptr) block = allocate_slow(bytes, align);
    try {
      ledger_.add(pooled_block(block, bytes, align, ledger_, where));
    } catch (...) {
      const free_result result = lists_.try_deallocate(block, bytes, align);
      if (result != free_result::listed) deallocate_slow(block, bytes, align, result);
      throw;
    }
    return block;
  }
  [[nodiscard]] std::size_t trim_due_at() const noexcept {
    return trim_times_.due_at(lists_.cached_bytes(), lists_.live_bytes(), lists_.stranded_block_bytes());
  }
  std::size_t trim_to(std::size_t target_bytes) noexcept {
    const std::size_t returned = lists_.release_free(target_bytes);
    lists_.strand(target_bytes);
    trim_times_.trimmed(lists_.live_bytes());
    return returned;
  }
  // The fast path reaches the slow path at the next peak, or when a trim is due.
  void update_watermark() noexcept {
    peak_cached_bytes_ = (std::max)(peak_cached_bytes_, lists_.cached_bytes());
    lists_.set_watermark((std::min)(peak_cached_bytes_, trim_due_at()));
  }

  FreeLists lists_;
  std::size_t max_cached_bytes_;
  std::size_t peak_cached_bytes_ = 0;
  block_counts at_reset_{};  // counts at the last `reset_stats`
  trim_policy trim_times_;
  char const* name_;
  thread_ownership owner_;  // level 2 only
  block_ledger ledger_;     // used if `records_blocks`
};

template <class FreeLists>
pool_stats basic_pool<FreeLists>::stats() const noexcept {
  const block_counts total = lists_.counts();
  pool_stats stats{.name = name(),
                   .allocations = total.allocations - at_reset_.allocations,
                   .deallocations = total.deallocations - at_reset_.deallocations,
                   .misses = total.misses - at_reset_.misses,
                   .used_blocks = total.allocations - total.deallocations,
                   .requested_bytes = lists_.requested_bytes(),
                   .cached_bytes = lists_.cached_bytes(),
                   .peak_cached_bytes = peak_cached_bytes_,
                   .stranded_bytes = lists_.stranded_bytes(),
                   .held_bytes = lists_.held_bytes()};
  stats.hits = stats.allocations - stats.misses;
  stats.used_bytes = stats.held_bytes - stats.cached_bytes - stats.stranded_bytes;
  return stats;
}

template <class FreeLists>
void basic_pool<FreeLists>::check_invariants() const noexcept {
  const invariant_check expect{FreeLists::kind, name()};
  expect.report(lists_.broken_invariant());
  const pool_stats now = stats();
  expect(now.cached_bytes <= now.peak_cached_bytes, "cached_bytes <= peak_cached_bytes");
  expect(now.cached_bytes <= max_cached_bytes_, "cached_bytes <= max_cached_bytes");
  expect(now.requested_bytes <= now.used_bytes, "requested_bytes <= used_bytes");
  expect(now.misses <= now.allocations, "misses <= allocations");
}

}  // namespace tidemark::detail
