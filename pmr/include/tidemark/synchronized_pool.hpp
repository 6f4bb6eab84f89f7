// SPDX-License-Identifier: Apache-2.0
/// @file
/// `synchronized_pool`: blocks that come back by size, for any number of threads. The pool owns the
/// memory it took.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <mutex>

#include <tidemark/config.hpp>
#include <tidemark/detail/block_cache.hpp>
#include <tidemark/detail/block_ledger.hpp>
#include <tidemark/detail/chain_stack.hpp>
#include <tidemark/detail/depot.hpp>
#include <tidemark/detail/large_blocks.hpp>
#include <tidemark/detail/size_classes.hpp>
#include <tidemark/detail/slab_store.hpp>
#include <tidemark/macros.hpp>
#include <tidemark/memory_pressure.hpp>
#include <tidemark/pool_options.hpp>
#include <tidemark/pool_stats.hpp>
#include <tidemark/units.hpp>

namespace tidemark {

class synchronized_pool;

namespace detail {

struct thread_cache;
class thread_cache_list;

/// Where a thread finds its cache of a pool without a search: an entry is right if it bears the pool's
/// number, which no other pool ever bears.
struct cache_slot {
  unsigned long long pool = 0;
  thread_cache* cache = nullptr;
};
inline constexpr std::size_t cache_slot_count = 8;  // more pools than that in turn cost a search now and then
// 128 bytes are what the C library keeps free for initial-exec in a shared library loaded later.
TIDEMARK_INITIAL_EXEC extern constinit thread_local std::array<cache_slot, cache_slot_count> cache_slots;

/// A thread's free blocks of one pool: in lists, and in spare chains, so that a thread that frees and
/// allocates about as much as its lists may hold does not go to the depot each time. The pool owns it; the
/// thread alone uses it.
///
/// Invariant: `spare_bytes` is the sum over spare chains, which `blocks.cached_bytes()` includes.
struct thread_cache {
  static constexpr std::size_t no_trim = std::numeric_limits<std::size_t>::max();

  explicit thread_cache(size_classes const& classes) noexcept : blocks{classes} {}

  block_cache blocks;
  std::array<chain_stack, size_classes::count_max> spares{};
  std::size_t spare_bytes = 0;
  // Once more is cached here, more may be in all than ever before. Lowered by any thread that looks.
  std::atomic<std::size_t> bytes_at_peak{0};
  // The least target of the trims that other threads asked for and this one has not done; `no_trim`: none.
  std::atomic<std::size_t> trim_target_bytes{no_trim};
  thread_cache* previous = nullptr;
  thread_cache* next = nullptr;
};

}  // namespace detail

/// `pool` for any number of threads: each has a cache of its own in front of a shared depot, so that threads
/// meet once in many calls. A block may be freed by any thread.
///
/// It takes the place of `std::pmr::synchronized_pool_resource`. For one thread `pool` is faster.
///
/// ```cpp
/// synchronized_pool messages;
/// std::jthread producer{[&] { queue.push(messages.allocate(256)); }};
/// std::jthread consumer{[&] { messages.deallocate(queue.pop(), 256); }};
/// ```
/// A thread's cache holds up to 4 MiB of free blocks, and less where many threads share `max_cached_bytes`:
/// half of it is for the caches, half for the depot. What a cache has too much goes to the depot a whole list
/// at a time; what is too much there goes to the upstream. Free blocks beyond the largest class are in the
/// depot at once, and are taken and given back under its lock. A cache goes to the depot when its thread
/// ends. A trim by one thread, or pressure, reaches the caches of the others in their next call.
///
/// Invariants: those of `pool_stats` when no call is going on and all threads have noticed a trim, or a new
/// thread's share of `max_cached_bytes`. With one thread `peak_cached_bytes` is exact; with more it may be up
/// to 64 KiB a thread below the truth, and by a list of 128 KiB that was on its way while somebody looked,
/// for each thread looks at the sum only now and then.
///
/// The upstream is called under a lock, so it need not be thread-safe itself. Complexity: as `pool`.
/// Thread-safety: any thread, any function, but for construction, destruction and `release()`, which want the
/// pool for themselves.
class synchronized_pool final : public std::pmr::memory_resource {
 public:
  /// Alignment of every block, at least, where none is asked for.
  static constexpr std::size_t default_alignment = alignof(std::max_align_t);
  /// Most bytes of free blocks in a thread's cache.
  static constexpr std::size_t thread_cache_bytes_max = 4 * MiB;

  /// As those of `pool`. @throws as there.
  synchronized_pool() : synchronized_pool{pool_options{}} {}
  explicit synchronized_pool(std::pmr::memory_resource* upstream)
      : synchronized_pool{pool_options{}, upstream} {}
  explicit synchronized_pool(pool_options const& options) : synchronized_pool{options, options.upstream} {}
  synchronized_pool(pool_options const& options, std::pmr::memory_resource* upstream);
  explicit synchronized_pool(std::pmr::pool_options const& options,
                             std::pmr::memory_resource* upstream = std::pmr::get_default_resource());
  synchronized_pool(synchronized_pool const&) = delete;
  synchronized_pool& operator=(synchronized_pool const&) = delete;
  /// Gives everything back to the upstream, also what is still handed out. Threads that used the pool may
  /// live on.
  ~synchronized_pool() override;

  /// As `pool::allocate`; besides std::bad_alloc if there is no memory for a new thread's cache.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_size(2), gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment) {
    if constexpr (check_level >= 2) return allocate_checked(bytes, align);
    if (const detail::cache_slot slot = own_slot(); slot.pool == id_) [[likely]] {
      if (void* block = slot.cache->blocks.take(bytes, align)) [[likely]]
        return block;
    }
    return allocate_slow(bytes, align);
  }

  /// As `pool::deallocate`, from any thread.
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept {
    if constexpr (check_level >= 2) {
      if (!may_deallocate(block, bytes, align)) return;
    }
    detail::given result = detail::given::not_fast;
    if (const detail::cache_slot slot = own_slot(); slot.pool == id_) [[likely]] {
      result = slot.cache->blocks.give(block, bytes, align);
    }
    if (result != detail::given::kept) [[unlikely]]
      deallocate_slow(block, bytes, align, result);
  }

  /// As `pool::trim`, for the depot and the calling thread's cache at once. The caches of other threads go to
  /// the depot, and it to `target_bytes`, in each one's next call. @return bytes given back by this call.
  std::size_t trim(std::size_t target_bytes = 0) noexcept;

  /// `trim(0)`.
  void clear() noexcept { (void)trim(0); }

  /// As `pool::release`. @pre no other thread is using the pool.
  void release() noexcept;

  /// A snapshot, also while other threads use the pool: hits and misses add up, and no number is negative,
  /// but what is handed out may be too high by what was allocated while it was read. O(threads * classes).
  [[nodiscard]] pool_stats stats() const noexcept;

  /// As `pool::reset_stats`.
  void reset_stats() noexcept;

  /// As those of `pool`.
  [[nodiscard]] pool_options const& options() const noexcept { return options_; }
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return store_.upstream(); }
  [[nodiscard]] char const* name() const noexcept { return options_.name; }

  /// Threads that have a cache now.
  [[nodiscard]] std::size_t thread_count() const noexcept;

  /// As `pool::check_invariants`. @pre no other thread is using the pool.
  void check_invariants() const noexcept;

 private:
  friend class detail::thread_cache_list;

  struct counts {
    std::uint64_t allocations = 0, deallocations = 0, misses = 0;
  };
  // Of one class, in no thread's cache any more.
  struct ended_counts {
    std::uint64_t allocations = 0, deallocations = 0;
  };

  // Where the calling thread's cache is noted, if it is. A copy: two loads, and no address to compute.
  [[nodiscard]] detail::cache_slot own_slot() const noexcept {
    return detail::cache_slots[id_ % detail::cache_slot_count];
  }
  [[nodiscard]] detail::thread_cache* find_cache() const noexcept {
    return own_slot().pool == id_ ? own_slot().cache : nullptr;
  }
  [[nodiscard]] detail::thread_cache* find_cache_anywhere() const noexcept;
  [[nodiscard]] detail::thread_cache& cache_of_this_thread();
  [[nodiscard]] TIDEMARK_COLD void* allocate_slow(std::size_t bytes, std::size_t align);
  TIDEMARK_COLD void deallocate_slow(void* block, std::size_t bytes, std::size_t align,
                                     detail::given result) noexcept;
  [[nodiscard]] void* allocate_checked(std::size_t bytes, std::size_t align);
  [[nodiscard]] bool may_deallocate(void* block, std::size_t bytes, std::size_t align) noexcept;
  [[nodiscard]] void* allocate_large(detail::thread_cache& cache, std::size_t bytes, std::size_t align);
  void deallocate_large(detail::thread_cache* cache, void* block, std::size_t bytes) noexcept;
  void deallocate_without_cache(std::size_t index, void* block, std::size_t bytes) noexcept;

  // What a thread does with its cache.
  enum class refill_source { own, shared, upstream };
  refill_source refill(detail::thread_cache& cache, std::size_t index);
  void settle(detail::thread_cache& cache) noexcept;
  void note_peak(detail::thread_cache& cache) noexcept;
  void note_peak_if_due(detail::thread_cache& cache) noexcept;
  void update_watermark(detail::thread_cache& cache) const noexcept;
  void make_spare(detail::thread_cache& cache, std::size_t index) noexcept;
  void leave_spare(detail::thread_cache& cache, std::size_t index) noexcept;
  [[nodiscard]] detail::block_chain take_spare(detail::thread_cache& cache, std::size_t index) noexcept;
  void leave_all(detail::thread_cache& cache) noexcept;
  void attend(detail::thread_cache& cache) noexcept;

  // What is shared.
  template <class Ask>
  auto ask_upstream(Ask ask);                                         // with store_mutex_ held
  std::size_t release_free_slabs(std::size_t target_bytes) noexcept;  // with store_mutex_ held
  void strand(std::size_t target_bytes) noexcept;                     // with store_mutex_ held
  template <class Excess, class Take>
  void take_out(Excess excess_bytes, Take take) noexcept;  // with store_mutex_ held
  void leave(std::size_t index, detail::block_chain chain) noexcept;
  std::size_t trim_shared(std::size_t target_bytes) noexcept;
  void keep_to_limit() noexcept;
  void change_shared(detail::thread_cache* cache, std::size_t more, std::size_t less) noexcept;
  std::size_t release_large(std::size_t target_bytes) noexcept;  // with store_mutex_ held
  void publish() noexcept;                                       // with store_mutex_ held
  void measure(detail::thread_cache const* own) noexcept;        // with caches_mutex_ held
  [[nodiscard]] bool half_is_gone() const noexcept;
  void request_trim(std::size_t target_bytes) noexcept;
  [[nodiscard]] std::size_t cached_bytes() const noexcept;  // with caches_mutex_ held
  void update_share() noexcept;                             // with caches_mutex_ held
  void end(detail::thread_cache* cache) noexcept;
  // A snapshot of all counts.
  struct tally {
    counts total{};
    std::size_t used_bytes = 0, requested_bytes = 0, cached_bytes = 0, stranded_bytes = 0, held_bytes = 0;
  };
  [[nodiscard]] tally count() const noexcept;
  [[nodiscard]] std::size_t depot_bytes_max() const noexcept { return options_.max_cached_bytes / 2; }
  // A quarter of a cache's share is for its lists, a quarter for the chain that it takes at a miss, the rest
  // for spare chains. Chains are small enough to stay in a core's cache on their way from thread to thread.
  [[nodiscard]] std::size_t chain_bytes_max() const noexcept { return chain_bytes_max(share_bytes_); }
  [[nodiscard]] static std::size_t chain_bytes_max(std::size_t share_bytes) noexcept {
    return std::min<std::size_t>(share_bytes / 4, 128 * KiB);
  }
  [[nodiscard]] std::size_t spare_bytes_max() const noexcept {
    const std::size_t share = share_bytes_;  // once, because it changes as threads come and go
    return share - 2 * chain_bytes_max(share);
  }

  void* do_allocate(std::size_t bytes, std::size_t align) override { return allocate(bytes, align); }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    deallocate(block, bytes, align);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  unsigned long long id_;
  detail::size_classes classes_;
  pool_options options_;
  detail::depot depot_;
  std::atomic<std::size_t> shared_bytes_{0};  // cached in no thread's cache: in the depot, uncarved, or large
  std::atomic<std::size_t> share_bytes_{0};   // what a thread's cache may hold
  std::atomic<bool> pressed_{false};          // memory was short, and the depot was not emptied since
  std::atomic<std::size_t> pins_{0};          // threads that are ending and leave their caches just now
  // Of the store, to be read without its lock.
  std::atomic<std::size_t> stranded_bytes_{0};
  std::atomic<std::size_t> reachable_bytes_{0};  // in blocks, but the stranded and the large that are live
  std::atomic<std::size_t> live_bytes_{0};       // as last measured: of those, what is cached nowhere
  // The same at the first measurement after a trim. 0: nothing was live, so that no half of it can go.
  static constexpr std::size_t not_measured = std::numeric_limits<std::size_t>::max();
  std::atomic<std::size_t> live_at_trim_{not_measured};

  std::atomic<std::uint64_t> misses_{0};

  mutable std::mutex store_mutex_;  // for the next three
  detail::slab_store store_;
  detail::large_blocks large_;
  counts of_large_{};

  // For what follows. It may be taken while store_mutex_ is held, which is never taken inside.
  mutable std::mutex caches_mutex_;
  detail::thread_cache* caches_ = nullptr;  // of all threads
  std::size_t cache_count_ = 0;
  std::array<ended_counts, detail::size_classes::count_max> ended_{};
  std::size_t ended_requested_bytes_ = 0;
  mutable std::size_t peak_cached_bytes_ = 0;  // a snapshot may be the first to see it
  counts at_reset_{};

  std::mutex ledger_mutex_;      // level 2 only
  detail::block_ledger ledger_;  // level 2 only
  pressure_subscription pressure_;
};

}  // namespace tidemark
