// SPDX-License-Identifier: Apache-2.0
/// @file
/// `synchronized_pool`: blocks that are reused by size, for any number of threads. The pool owns the memory
/// it took.
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
#include <tidemark/core/units.hpp>
#include <tidemark/pool/detail/block_cache.hpp>
#include <tidemark/pool/detail/block_store.hpp>
#include <tidemark/pool/detail/depot.hpp>
#include <tidemark/pool/detail/thread_cache.hpp>
#include <tidemark/pool/memory_pressure.hpp>
#include <tidemark/pool/pool_options.hpp>

namespace tidemark {

/// `pool` for any number of threads: each has a cache of its own in front of a shared depot, so that threads
/// meet once in many calls. A block may be freed by any thread.
///
/// It takes the place of `std::pmr::synchronized_pool_resource`, from which it differs as `pool` does from
/// its counterpart, and by caches in the heap that stay with their threads;
/// `compat::synchronized_pool_resource` is the standard's class. For one thread `pool` is faster.
///
/// ```cpp
/// synchronized_pool messages;
/// std::jthread producer{[&] { queue.push(messages.allocate(256)); }};
/// std::jthread consumer{[&] { messages.deallocate(queue.pop(), 256); }};
/// ```
/// A thread's cache holds 256 KiB of free blocks, and besides the bytes that the thread has taken and not
/// given back, up to 4 MiB, and less where many threads share `max_cached_bytes`: half of it at most is for
/// the caches, the rest is shared. A thread that frees the blocks of others passes them on, therefore. A
/// cache that is full passes half of it on, whole lists at a time: to the depot, and blocks beyond the
/// largest class to the heap. What is more than these may hold goes to the upstream. Of blocks beyond the
/// largest class a cache keeps those of up to a sixteenth of what it may hold (256 KiB, or less where many
/// threads share), for requests of the same size by its thread, unless the heap would have to grow for
/// another request of that thread; all others are allocated and deallocated under one lock. A cache is left
/// to the others when its thread ends. A trim by one thread, or pressure, reaches the caches of the others in
/// their next call.
///
/// Invariants: those of `pool_stats` when no call is going on and all threads have noticed a trim, or a new
/// thread's share of `max_cached_bytes`.
///
/// `peak_cached_bytes` is approximate: the most that was cached when the sum was read, which each snapshot
/// does, each thread that passes blocks on or ends, and each call that gives a large block back to the heap
/// or makes it grow. So it is no less than `cached_bytes` in any snapshot, and what one thread freed and
/// allocated again in between (4 MiB at most) may be missing from it.
///
/// The upstream is called under a lock, so it need not be thread-safe itself. Complexity: as `pool`.
/// Thread-safety: any thread, any function, except construction, destruction and `release()`, during which no
/// other thread may use the pool. A child that is forked may do the same. The caches of threads that do not
/// exist there are lost to it: their blocks stay counted as cached, and their memory with the pool, until
/// `release()` or its end.
class synchronized_pool final : public detail::forwarding_resource<synchronized_pool> {
 public:
  /// Alignment of every block, at least, where none is given.
  static constexpr std::size_t default_alignment = alignof(std::max_align_t);
  /// Most bytes of free blocks in a thread's cache.
  static constexpr std::size_t max_thread_cache_bytes = 4 * MiB;

  /// As those of `pool`. @throws as there.
  synchronized_pool() : synchronized_pool{pool_options{}} {}
  /// From `upstream`.
  explicit synchronized_pool(std::pmr::memory_resource* upstream)
      : synchronized_pool{pool_options{}, upstream} {}
  /// As `options` say.
  explicit synchronized_pool(pool_options const& options) : synchronized_pool{options, options.upstream} {}
  /// As `options` say, but from `upstream`.
  // The constructor and the virtual functions are inline: the program's own object files contain the vtable
  // and the functions behind it, and an executable reads a thread_local variable without a call (decision
  // 61).
  synchronized_pool(pool_options const& options, std::pmr::memory_resource* upstream)
      : classes_{options.name, options.size_classes, detail::chain_stack::min_block_bytes},
        options_{detail::completed(options, upstream, classes_)},
        depot_{classes_},
        store_{classes_, depot_, options_, options_.max_cached_bytes / 2, options_.max_cached_bytes / 2} {
    attach();
  }
  /// A wrong form: does not compile, and says which form is right.
  explicit synchronized_pool(std::integral auto bytes) : synchronized_pool{} {
    static_assert(
        detail::right_form<decltype(bytes)>,
        "a pool takes its limit as an option: write synchronized_pool p{{.max_cached_bytes = 64 * MiB}}");
  }
  /// As the standard's pools are made; see `pool`.
  explicit synchronized_pool(std::derived_from<std::pmr::pool_options> auto const& options)
      : synchronized_pool{detail::from_standard(options)} {}
  /// The same, from `upstream`.
  synchronized_pool(std::derived_from<std::pmr::pool_options> auto const& options,
                    std::pmr::memory_resource* upstream)
      : synchronized_pool{detail::from_standard(options), upstream} {}
  /// As that of `pool`. Threads that used the pool may live on.
  ~synchronized_pool() override { detach(); }

  /// As `pool::allocate`; besides std::bad_alloc if there is no memory for a new thread's cache.
  // Without gnu::alloc_size: compilers would take a block of 0 bytes for one without a byte to write.
  [[nodiscard, gnu::returns_nonnull, gnu::alloc_align(3)]] void* allocate(
      std::size_t bytes, std::size_t align = default_alignment,
      [[maybe_unused]] detail::call_site where = std::source_location::current()) TIDEMARK_LIFETIMEBOUND {
    if constexpr (detail::records_blocks) return allocate_checked(bytes, align, where);
    if (const own_cache slot = threads_.own_slot(); slot.owner == threads_.number()) [[likely]] {
      if (void* block = slot.part->blocks.take(bytes, align)) [[likely]]
        return block;
    }
    return allocate_not_listed(bytes, align);
  }

  /// As `pool::deallocate`, from any thread.
  void deallocate(void* block, std::size_t bytes, std::size_t align = default_alignment) noexcept {
    if (block == nullptr) [[unlikely]]
      return;
    if constexpr (detail::records_blocks) {
      detail::late_reports late;
      const std::scoped_lock lock{ledger_mutex_};
      if (!ledger_.remove(late, "synchronized_pool", name(), block, bytes, align)) return;
    }
    auto result = detail::free_result::not_listed;
    if (const own_cache slot = threads_.own_slot(); slot.owner == threads_.number()) [[likely]] {
      result = slot.part->blocks.give(block, bytes, align);
    }
    if (result != detail::free_result::listed) [[unlikely]]
      deallocate_not_listed(block, bytes, align, result);
  }

  /// As `pool::trim`, for the depot and the calling thread's cache at once. The caches of other threads go to
  /// the depot, and it to `target_bytes`, in each one's next call. @return bytes returned by this call.
  std::size_t trim(std::size_t target_bytes = 0) noexcept;

  /// `trim(0)`.
  void clear() noexcept { (void)trim(0); }
  /// `clear()`, for a resource in front of this one.
  void release_unused() noexcept override { clear(); }

  /// As `pool::release`. @pre no other thread is using the pool.
  void release() noexcept;

  /// A snapshot, also while other threads use the pool: hits and misses add up, and no number is negative,
  /// but what is live may be too high by what was allocated while it was read. O(threads * classes).
  [[nodiscard]] pool_stats stats() const noexcept;

  /// As `pool::reset_stats`.
  void reset_stats() noexcept;

  /// As those of `pool`.
  [[nodiscard]] pool_options const& options() const noexcept { return options_; }
  /// Where memory comes from.
  [[nodiscard]] std::pmr::memory_resource* upstream_resource() const noexcept { return options_.upstream; }
  /// The name that it was made with.
  [[nodiscard]] char const* name() const noexcept { return options_.name; }

  /// Threads that have a cache now.
  [[nodiscard]] std::size_t thread_count() const noexcept;

  /// As `pool::check_invariants`. @pre no other thread is using the pool.
  void check_invariants() const noexcept;

 private:
  using thread_caches = detail::thread_parts<synchronized_pool, detail::thread_cache>;
  using own_cache = thread_caches::slot;
  friend thread_caches;
  friend detail::fork_safe<detail::adaptive_mutex>;

  // A thread and its cache.
  [[nodiscard]] detail::thread_cache& cache_of_this_thread();
  [[nodiscard]] bool is_for_caches(std::size_t bytes, std::size_t align) const noexcept;
  [[nodiscard]] TIDEMARK_COLD void* allocate_not_listed(std::size_t bytes, std::size_t align);
  TIDEMARK_COLD void deallocate_not_listed(void* block, std::size_t bytes, std::size_t align,
                                           detail::free_result result) noexcept;
  [[nodiscard]] TIDEMARK_COLD void* allocate_slow(std::size_t bytes, std::size_t align);
  TIDEMARK_COLD void deallocate_slow(void* block, std::size_t bytes, std::size_t align,
                                     detail::free_result result) noexcept;
  // The caller is a container: its innermost `allocation_site` names the place.
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    return allocate(bytes, align, detail::call_site{});
  }
  [[nodiscard]] void* allocate_checked(std::size_t bytes, std::size_t align, detail::call_site where);
  [[nodiscard]] void* allocate_large(detail::thread_cache& cache, std::size_t bytes, std::size_t align);
  void deallocate_large(detail::thread_cache* cache, void* block, std::size_t bytes,
                        std::size_t align) noexcept;
  void refill(detail::thread_cache& cache, std::size_t index);
  void settle(detail::thread_cache& cache, std::size_t more_bytes = 0) noexcept;
  void leave_down_to(detail::thread_cache& cache, std::size_t target_bytes) noexcept;
  void leave_lists(detail::thread_cache& cache) noexcept;
  // These return what went to the upstream.
  std::size_t leave_all(detail::thread_cache& cache) noexcept;
  std::size_t return_heap_blocks(detail::thread_cache& cache,
                                 std::size_t max_bytes) noexcept;  // with store_mutex_ held
  void drain_pending_work(detail::thread_cache& cache) noexcept;
  void attach();
  void detach() noexcept;
  void end(detail::thread_cache& cache) noexcept;
  [[nodiscard]] bool look(detail::thread_cache* cache) noexcept;

  // What is shared.
  [[nodiscard]] bool refuse_reentry(char const* operation) const noexcept;
  void leave(detail::thread_cache& from, std::size_t index, detail::block_chain chain) noexcept;
  void deallocate_without_cache(std::size_t index, void* block, std::size_t bytes) noexcept;
  std::size_t relieve_upstream() noexcept;  // with store_mutex_ held
  std::size_t trim_shared(std::size_t target_bytes) noexcept;
  void keep_to_limit() noexcept;
  void request_trim(std::size_t target_bytes) noexcept;
  void publish() noexcept;  // with store_mutex_ held

  // With caches_mutex_ held.
  template <class Of>
  [[nodiscard]] std::size_t sum_over_caches(Of of) const noexcept {
    std::size_t sum = of(ended_);
    for (detail::thread_cache const& cache : caches_) sum += of(cache);
    return sum;
  }
  [[nodiscard]] std::size_t cached_bytes() const noexcept;
  [[nodiscard]] std::size_t heap_block_bytes() const noexcept;
  [[nodiscard]] std::size_t live_bytes() const noexcept;  // in the classes
  void note_peak() const noexcept;
  [[nodiscard]] std::size_t count_caches() const noexcept {
    return static_cast<std::size_t>(std::distance(caches_.begin(), caches_.end()));
  }
  void update_share() noexcept;

  [[nodiscard]] pool_stats count() const noexcept;
  [[nodiscard]] char const* broken_invariant() const noexcept;  // with both locks held

  void adapt_to_child() noexcept;

  thread_caches threads_{*this};
  detail::size_classes classes_;
  pool_options options_;
  detail::depot depot_;
  detail::trim_requests trims_;  // those that have not reached the depot
  // Of the store, to be read without its lock.
  std::atomic<std::size_t> stranded_bytes_{0};
  std::atomic<std::size_t> reachable_bytes_{0};

  // A fork takes the newest lock first: in the order in which they are taken elsewhere.
  detail::fork_safe<> ledger_mutex_;  // where blocks are recorded, as ledger_
  detail::block_ledger ledger_;
  bool is_in_child_ = false;  // blocks of threads that are not there are no leaks, and on their way nowhere

  // For what follows. It may be taken while store_mutex_ is held, which is never taken inside.
  mutable detail::fork_safe<> caches_mutex_;
  // Of all threads. The links of a std::list are written in the standard library, unseen by MemorySanitizer.
  std::forward_list<detail::thread_cache> caches_;
  // What threads have counted that have ended. Its cached bytes are those that are lost in a child.
  detail::thread_cache ended_{classes_, depot_.share_bytes()};
  std::size_t live_at_trim_ = 0;               // live_bytes() after the last trim
  mutable std::size_t peak_cached_bytes_ = 0;  // a snapshot may be the first to see it
  detail::block_counts at_reset_{};
  std::forward_list<detail::thread_cache>
      lost_caches_;  // in a child: of threads that are not there, maybe torn

  mutable detail::fork_safe<detail::adaptive_mutex> store_mutex_;  // for the store
  detail::block_store<detail::depot> store_;

  detail::pressure_handle pressure_;
};

}  // namespace tidemark
