// SPDX-License-Identifier: Apache-2.0
/// @file
/// `synchronized_pool`: blocks that are reused by size, for any number of threads. Owns the memory taken from
/// its upstream.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <forward_list>
#include <iterator>
#include <memory_resource>
#include <mutex>

#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/detail/block_ledger.hpp>
#include <tidemark/core/detail/brief_lock.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/detail/size_classes.hpp>
#include <tidemark/core/detail/thread_parts.hpp>
#include <tidemark/core/macros.hpp>
#include <tidemark/core/memory_pressure.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/pool/detail/block_cache.hpp>
#include <tidemark/pool/detail/block_store.hpp>
#include <tidemark/pool/detail/depot.hpp>
#include <tidemark/pool/detail/thread_cache.hpp>
#include <tidemark/pool/pool_options.hpp>

namespace tidemark {

/// `pool` for any number of threads. Each thread has a cache in front of a shared depot, so few calls take a
/// lock. Any thread may free a block.
///
/// Replaces `std::pmr::synchronized_pool_resource`, and differs from it as `pool` does from its counterpart;
/// also, caches stay with their threads. `pool` is faster for one thread.
///
/// ```cpp
/// synchronized_pool messages;
/// std::jthread producer{[&] { queue.push(messages.allocate(256)); }};
/// std::jthread consumer{[&] { messages.deallocate(queue.pop(), 256); }};
/// ```
/// docs/pool.md describes caches, depot and heap.
///
/// Invariants: those of `pool_stats`, while no call is active and once all threads have seen pending trims
/// and changed shares.
///
/// Complexity: as `pool`. Thread-safety: any thread, except for construction, destruction and `release()`.
/// The upstream is called under a lock and need not be thread-safe. A forked child has the same rights (see
/// `thread_count`).
class synchronized_pool final : public detail::forwarding_resource<synchronized_pool> {
 public:
  /// Alignment of requests without an alignment argument.
  static constexpr std::size_t default_alignment = alignof(std::max_align_t);
  /// Maximum bytes of free blocks in one thread's cache. The caches together hold at most half of
  /// `max_cached_bytes`.
  static constexpr std::size_t max_thread_cache_bytes = 4 * MiB;

  /// Constructors as those of `pool`, with the same exceptions.
  synchronized_pool() : synchronized_pool{pool_options{}} {}
  /// Uses `upstream`.
  explicit synchronized_pool(std::pmr::memory_resource* upstream)
      : synchronized_pool{pool_options{}, upstream} {}
  /// Uses `options`.
  explicit synchronized_pool(pool_options const& options) : synchronized_pool{options, options.upstream} {}
  /// Uses `options`, but `upstream`.
  // The constructor and the virtual functions are inline. The vtable and these functions are then in the
  // program's own object files, and an executable reads a thread_local variable without a call (decision 61).
  synchronized_pool(pool_options const& options, std::pmr::memory_resource* upstream)
      : classes_{detail::classes_of(options, detail::chain_stack::min_block_bytes)},
        depot_{classes_},
        trim_times_{options.max_cached_bytes},
        store_{classes_, depot_, detail::completed(options, upstream, classes_), options.max_cached_bytes / 2,
               options.max_cached_bytes / 2} {
    attach();
  }
  /// Rejected at compile time, with a message that shows the right form.
  explicit synchronized_pool(std::integral auto bytes) : synchronized_pool{} {
    static_assert(
        detail::right_form<decltype(bytes)>,
        "a pool takes its limit as an option: write synchronized_pool p{{.max_cached_bytes = 64 * MiB}}");
  }
  /// Uses the standard's options, as `pool` does.
  explicit synchronized_pool(std::derived_from<std::pmr::pool_options> auto const& options)
      : synchronized_pool{detail::from_standard(options)} {}
  /// Uses the standard's options and `upstream`.
  synchronized_pool(std::derived_from<std::pmr::pool_options> auto const& options,
                    std::pmr::memory_resource* upstream)
      : synchronized_pool{detail::from_standard(options), upstream} {}
  /// As the destructor of `pool`. Threads that used the pool may continue.
  ~synchronized_pool() override { detach(); }

  /// As `pool::allocate`; also throws std::bad_alloc if there is no memory for a new thread's cache.
  // No gnu::alloc_size, because compilers would assume that a block of 0 bytes has no byte to write.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment,
      [[maybe_unused]] detail::call_site where = std::source_location::current()) TIDEMARK_LIFETIMEBOUND {
    if constexpr (detail::records_blocks) return allocate_checked(bytes, align, where);
    detail::thread_cache* own = nullptr;
    if (const own_cache slot = threads_.own_slot(); slot.owner == threads_.number()) [[likely]] {
      own = slot.part;
      if (void* block = own->blocks.try_allocate(bytes, align)) [[likely]]
        return block;
    }
    return allocate_slow(bytes, align, own);
  }

  /// As `pool::deallocate`, from any thread.
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept {
    if (block == nullptr) [[unlikely]]
      return;
    if constexpr (detail::records_blocks) {
      detail::late_reports late;
      const std::scoped_lock lock{ledger_mutex_};
      if (!ledger_.remove("synchronized_pool", name(), block, bytes, align)) return;
    }
    auto result = detail::free_result::not_listed;
    detail::thread_cache* own = nullptr;
    if (const own_cache slot = threads_.own_slot(); slot.owner == threads_.number()) [[likely]] {
      own = slot.part;
      result = own->blocks.try_deallocate(block, bytes, align);
    }
    if (result != detail::free_result::listed) [[unlikely]]
      deallocate_slow(block, bytes, align, result, own);
  }

  /// As `pool::trim`, for the depot and the calling thread's cache. Other threads empty their caches, and
  /// trim the depot to `target_bytes`, in their next calls. @return bytes returned by this call
  std::size_t trim(std::size_t target_bytes = 0) noexcept;

  /// Calls `trim(0)`.
  void clear() noexcept { (void)trim(0); }
  /// Calls `clear()`, for a resource in front of the pool.
  void release_unused() noexcept override { clear(); }

  /// As `pool::release`. @pre no other thread uses the pool
  void release() noexcept;

  /// Returns a snapshot, also while other threads use the pool. Hits and misses add up to the allocations,
  /// and no number is negative. Counts of live blocks may include allocations made during the call. O(threads
  /// * classes).
  ///
  /// `peak_cached_bytes` is approximate: the maximum of the sums read so far. The sum is read by each
  /// snapshot, by a thread that fills its cache or ends, and by a call that returns a large block to the
  /// heap or grows the heap. The peak is at least `cached_bytes` of any snapshot. It may miss up to 4 MiB
  /// that one thread freed and reallocated between two reads, and 8 MiB of large blocks that threads passed
  /// on.
  [[nodiscard]] pool_stats stats() const noexcept;

  /// As `pool::reset_stats`.
  void reset_stats() noexcept;

  /// As `pool::options`.
  [[nodiscard]] pool_options const& options() const noexcept { return store_.options(); }
  /// The resource that memory comes from.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return options().upstream; }
  /// The name used in messages.
  [[nodiscard]] char const* name() const noexcept { return options().name; }

  /// Number of threads that have a cache. A thread that ends leaves its cache to the others. In a forked
  /// child, caches of missing threads stay counted as cached, and their memory is unusable until `release()`
  /// or destruction.
  [[nodiscard]] std::size_t thread_count() const noexcept;

  /// As `pool::check_invariants`. @pre no other thread uses the pool
  void check_invariants() const noexcept;

 private:
  using thread_caches = detail::thread_parts<synchronized_pool, detail::thread_cache>;
  using own_cache = thread_caches::slot;
  friend thread_caches;
  friend detail::fork_safe<detail::adaptive_mutex>;

  // The functions below work on a thread and its cache.
  [[nodiscard]] detail::thread_cache& cache_of_this_thread();
  // Maximum bytes of a heap block that threads cache.
  [[nodiscard]] std::size_t max_cached_block_bytes() const noexcept { return depot_.share_bytes() / 16; }
  [[nodiscard]] bool is_for_caches(std::size_t bytes, std::size_t align) const noexcept;
  [[nodiscard]] bool serves_heap_block(detail::thread_cache* own, std::size_t bytes,
                                       std::size_t align) const noexcept;
  // The slow paths get this thread's cache, or null without one, because only an executable reads a
  // thread-local variable without a call (decision 61).
  [[nodiscard, gnu::noinline]] void* allocate_slow(std::size_t bytes, std::size_t align,
                                                   detail::thread_cache* own);
  [[nodiscard]] TIDEMARK_COLD void* allocate_from_store(std::size_t bytes, std::size_t align);
  [[gnu::noinline]] void deallocate_slow(void* block, std::size_t bytes, std::size_t align,
                                         detail::free_result result, detail::thread_cache* own) noexcept;
  TIDEMARK_COLD void deallocate_to_store(void* block, std::size_t bytes, std::size_t align,
                                         detail::free_result result) noexcept;
  // Containers call this: the thread's innermost `allocation_site` names the place.
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    return allocate(bytes, align, detail::call_site{});
  }
  [[nodiscard]] void* allocate_checked(std::size_t bytes, std::size_t align, detail::call_site where);
  [[nodiscard]] void* allocate_large(detail::thread_cache& cache, std::size_t bytes, std::size_t align);
  void pass_on(detail::thread_cache& cache, std::size_t bytes) noexcept;
  void deallocate_large(detail::thread_cache* cache, void* block, std::size_t bytes,
                        std::size_t align) noexcept;
  void refill(detail::thread_cache& cache, std::size_t index);
  void move_to_depot(detail::thread_cache& from, std::size_t index, std::size_t blocks) noexcept;
  void rebalance_cache(detail::thread_cache& cache, std::size_t more_bytes = 0) noexcept;
  void shrink_cache_to(detail::thread_cache& cache, std::size_t target_bytes) noexcept;
  void move_lists_to_depot(detail::thread_cache& cache) noexcept;
  // The next three functions return the bytes returned to the upstream; the last two need store_mutex_.
  std::size_t drain_cache(detail::thread_cache& cache) noexcept;
  std::size_t return_heap_blocks(detail::thread_cache& cache, std::size_t max_bytes) noexcept;
  std::size_t return_heap_blocks(detail::heap_block_cache& blocks, std::size_t max_bytes) noexcept;
  void drain_pending_work(detail::thread_cache& cache) noexcept;
  void attach();
  void detach() noexcept;
  void end(detail::thread_cache& cache) noexcept;

  // The functions below work on shared state.
  [[nodiscard]] bool refuse_reentry(char const* operation) const noexcept;
  void deallocate_without_cache(std::size_t index, void* block, std::size_t bytes) noexcept;
  [[nodiscard]] bool is_trim_due(detail::thread_cache* cache) noexcept;
  std::size_t relieve_upstream() noexcept;  // with store_mutex_ held
  std::size_t trim_shared(std::size_t target_bytes) noexcept;
  void enforce_free_limit() noexcept;
  void request_trim(std::size_t target_bytes) noexcept;
  void publish() noexcept;  // with store_mutex_ held

  // The functions below need caches_mutex_.
  template <class Of>
  [[nodiscard]] std::size_t sum_over_caches(Of of) const noexcept {
    std::size_t sum = of(ended_);
    for (detail::thread_cache const& cache : caches_) sum += of(cache);
    return sum;
  }
  [[nodiscard]] std::size_t cached_bytes() const noexcept;
  // Cached bytes of the size classes, and of the heap outside the threads' caches.
  [[nodiscard]] std::size_t reusable_bytes() const noexcept;
  void update_peak_cached_bytes() const noexcept;
  [[nodiscard]] std::size_t count_caches() const noexcept {
    return static_cast<std::size_t>(std::distance(caches_.begin(), caches_.end()));
  }
  void update_share() noexcept;

  [[nodiscard]] pool_stats count() const noexcept;
  [[nodiscard]] char const* broken_invariant() const noexcept;  // with both locks held

  void adapt_to_child() noexcept;

  thread_caches threads_{*this};
  detail::size_classes classes_;
  detail::depot depot_;
  // Copies of the store's counts, readable without its lock.
  std::atomic<std::size_t> stranded_bytes_{0}, reachable_bytes_{0};
  detail::heap_block_cache
      passed_on_;  // heap blocks on their way from thread to thread; store_mutex_ guards them

  // A fork locks the last member first. Other calls take the locks in the same order.
  detail::fork_safe<> ledger_mutex_;  // guards ledger_; used if blocks are recorded
  detail::block_ledger ledger_;
  bool is_in_child_ = false;  // blocks of missing threads are no leaks; blocks in transit stay live

  // Guards the members below. It may be taken while store_mutex_ is held, but not the other way round.
  mutable detail::fork_safe<> caches_mutex_;
  // Caches of all threads. Not a std::list: MemorySanitizer does not see how the standard library writes its
  // links.
  std::forward_list<detail::thread_cache> caches_;
  // Counts of ended threads. Its cached bytes are bytes lost in a child. Its pending trims are trims that the
  // depot has not made yet.
  detail::thread_cache ended_{classes_, depot_.share_bytes()};
  detail::trim_policy trim_times_;
  mutable std::size_t peak_cached_bytes_ = 0;  // mutable: a snapshot may raise it
  detail::block_counts at_reset_{};

  mutable detail::fork_safe<detail::adaptive_mutex> store_mutex_;  // guards the store
  detail::block_store<detail::depot> store_;

  pressure_subscription pressure_;
};

}  // namespace tidemark
