// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/synchronized_pool.hpp>

#include <algorithm>
#include <cstdint>
#include <new>

#include <tidemark/core/detail/block_ledger.hpp>
#include <tidemark/core/detail/frame_table.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/violation.hpp>

namespace tidemark {

namespace {

// Minimum bytes that one of several threads frees between two checks of the sum over all caches. A check
// reads the cache lines of all threads.
constexpr std::size_t unnoticed_bytes = 32 * KiB;

}  // namespace

// Called by the constructor. From now on, threads, forks and memory pressure may call the pool.
void synchronized_pool::attach() {
  if constexpr (check_level >= 2) detail::untrack_frames_of(*this);
  publish();
  peak_cached_bytes_ = depot_.cached_bytes();
  update_share();
  pressure_ = detail::call_under_pressure(this, [this] { request_trim(0); });
  const std::scoped_lock lock{store_mutex_};
  store_mutex_.adapt_with(*this);  // last, because a child accesses the whole pool
}

// Called by the destructor. From now on, threads, forks and memory pressure do not call the pool.
void synchronized_pool::detach() noexcept {
  std::size_t frames = 0;
  if constexpr (check_level >= 2) frames = detail::report_frames_of(*this, "synchronized_pool", name());
  if constexpr (detail::records_blocks)
    if (!is_in_child_) detail::report_lost_blocks("synchronized_pool", name(), ledger_, frames, true);
  store_mutex_.deregister();
  pressure_ = {};
  threads_.deregister();
}

// ---- a thread and its cache -------------------------------------------------------------------------------

detail::thread_cache& synchronized_pool::cache_of_this_thread() {
  detail::thread_cache* cache = threads_.find();
  if (cache == nullptr) {
    std::forward_list<detail::thread_cache> made;
    cache = &made.emplace_front(classes_, depot_.share_bytes());
    threads_.add(*cache);
    const std::scoped_lock lock{caches_mutex_};
    // A pending trim may have had no thread to do it.
    cache->blocks.pending().post_trim(ended_.blocks.pending().least_target_bytes());
    caches_.splice_after(caches_.before_begin(), made);
    update_share();
  }
  return *cache;
}

// Called when a thread ends. Its blocks go to the depot, its counts to `ended_`.
void synchronized_pool::end(detail::thread_cache& cache) noexcept {
  (void)drain_cache(cache);
  std::forward_list<detail::thread_cache> gone;
  {
    const std::scoped_lock lock{caches_mutex_};
    ended_.add_counts(cache);
    auto before = caches_.before_begin();
    while (&*std::next(before) != &cache) ++before;
    gone.splice_after(gone.before_begin(), caches_, before);
    update_share();
  }
  const std::size_t target = cache.blocks.pending().consume_trim();
  if (target != detail::pending_work::no_trim) (void)trim_shared(target);
  enforce_free_limit();
  if (is_trim_due(nullptr)) (void)trim(store_.max_free_bytes() / 2);  // perhaps no thread is left to check
}

// The caches may hold at most half of max_cached_bytes; the store may hold the rest. A thread with more than
// the new share sees the share in its next call.
void synchronized_pool::update_share() noexcept {
  const std::size_t threads = std::max<std::size_t>(1, count_caches());
  const std::size_t share = std::min(max_thread_cache_bytes, options().max_cached_bytes / 2 / threads);
  store_.set_max_free_bytes(options().max_cached_bytes - threads * share);
  if (depot_.set_share_bytes(share) > share) {
    for (detail::thread_cache& cache : caches_) cache.blocks.pending().post();
  }
}

// True if threads cache heap blocks of this size.
bool synchronized_pool::is_for_caches(std::size_t bytes, std::size_t align) const noexcept {
  return store_.is_of_heap(bytes, align) && bytes <= max_cached_block_bytes();
}

// The upstream must not call back into the pool. Reports such calls if the C library can tell the owner of a
// lock.
bool synchronized_pool::refuse_reentry(char const* operation) const noexcept {
  if (!store_mutex_.is_held_by_this_thread()) return false;
  detail::report_violation(violation_kind::reentry, name(),
                           "synchronized_pool '%s': %s is called by the pool's own upstream, while the pool "
                           "waits for it",
                           name(), operation);
  return true;
}

// Returns true if the heap blocks of this thread's cache may serve the request, and no work is pending.
bool synchronized_pool::serves_heap_block(detail::thread_cache* own, std::size_t bytes,
                                          std::size_t align) const noexcept {
  return own != nullptr && bytes > classes_.largest_bytes() && store_.is_of_heap(bytes, align) &&
         !own->blocks.pending().is_posted();
}

// Tries the thread's own heap blocks first. Other work is in a function of its own, so that this path saves no
// registers: a pair of calls for a block of 64 KiB takes 117 instructions, and 195 in one function.
void* synchronized_pool::allocate_slow(std::size_t bytes, std::size_t align, detail::thread_cache* own) {
  if (serves_heap_block(own, bytes, align)) {
    if (void* const block = own->heap_blocks.try_allocate(bytes, align)) return block;
  }
  return allocate_from_store(bytes, align);
}

void* synchronized_pool::allocate_from_store(std::size_t bytes, std::size_t align) {
  if (refuse_reentry("allocate")) throw std::bad_alloc{};
  detail::thread_cache& cache = cache_of_this_thread();
  drain_pending_work(cache);
  const std::size_t index = classes_.index_of(bytes, align);
  if (index == detail::size_classes::none) return allocate_large(cache, bytes, align);
  if (cache.blocks.listed_blocks(index) == 0) refill(cache, index);
  void* const block = cache.blocks.pop_block(index, bytes);
  enforce_free_limit();  // a new slab leaves free blocks
  // One chain for each class may exceed the cache's share.
  if (cache.share.is_full(cache.blocks.cached_bytes(), cache.heap_blocks.bytes())) rebalance_cache(cache);
  else cache.update_watermark();
  return block;
}

void synchronized_pool::deallocate_slow(void* block, std::size_t bytes, std::size_t align,
                                        detail::free_result result, detail::thread_cache* own) noexcept {
  if (serves_heap_block(own, bytes, align) && bytes <= max_cached_block_bytes() &&
      own->heap_blocks.bytes() + detail::coalescing_heap::range_bytes(bytes) <= own->share.heap_bytes() &&
      own->heap_blocks.try_deallocate(block, bytes)) {
    return;
  }
  deallocate_to_store(block, bytes, align, result);
}

void synchronized_pool::deallocate_to_store(void* block, std::size_t bytes, std::size_t align,
                                            detail::free_result result) noexcept {
  if (refuse_reentry("deallocate")) return;
  detail::thread_cache* cache = nullptr;
  try {
    cache = &cache_of_this_thread();
    drain_pending_work(*cache);
  } catch (std::bad_alloc const&) {  // deallocation also works without a cache
  }
  const std::size_t index = classes_.index_of(bytes, align);
  if (result == detail::free_result::not_listed) {
    if (index == detail::size_classes::none) return deallocate_large(cache, block, bytes, align);
    if (cache == nullptr) return deallocate_without_cache(index, block, bytes);
    result = cache->blocks.push_block(index, block, bytes);
  }
  if (result == detail::free_result::over_watermark) rebalance_cache(*cache);
}

void* synchronized_pool::allocate_large(detail::thread_cache& cache, std::size_t bytes, std::size_t align) {
  const bool is_of_heap = store_.is_of_heap(bytes, align);
  void* block = is_of_heap ? cache.heap_blocks.try_allocate(bytes, align) : nullptr;
  if (block != nullptr) return block;
  {
    const std::scoped_lock lock{store_mutex_};
    if (is_for_caches(bytes, align)) {
      cache.share.on_receive(cache.heap_blocks.take(passed_on_, bytes, cache.heap_room()));
      block = cache.heap_blocks.try_allocate(bytes, align);
      if (block != nullptr) return block;
    }
    if (is_of_heap) block = store_.allocate_from_heap(bytes, align);
    if (block == nullptr) {
      // Merging this thread's heap blocks may free enough; this saves 6 % of the memory on a recorded trace
      // of lld.
      if (is_of_heap) {
        (void)return_heap_blocks(cache, 0);
        (void)return_heap_blocks(passed_on_, 0);
      }
      block = store_.allocate_large(bytes, align, [this] { return relieve_upstream(); });
      const std::scoped_lock caches_lock{caches_mutex_};
      update_peak_cached_bytes();  // includes the rest of a new chunk
    }
    publish();
  }
  if (is_for_caches(bytes, align)) cache.share.on_receive(detail::coalescing_heap::range_bytes(bytes));
  enforce_free_limit();  // an alignment leaves a free range before the block
  return block;
}

// Passes cached heap blocks of one size on to other threads, as far as there is room. They are not merged, so
// that no thread touches their tags. With room for 4 MiB, a consumer of batches of 8 MiB takes twice as long.
void synchronized_pool::pass_on(detail::thread_cache& cache, std::size_t bytes) noexcept {
  const std::scoped_lock lock{store_mutex_};
  const std::size_t most = std::min(2 * max_thread_cache_bytes, store_.room());
  const std::size_t room = most - std::min(most, passed_on_.bytes());
  cache.share.on_pass_on(passed_on_.take(cache.heap_blocks, bytes, room));
}

void synchronized_pool::deallocate_large(detail::thread_cache* cache, void* block, std::size_t bytes,
                                         std::size_t align) noexcept {
  const bool is_cached = cache != nullptr && is_for_caches(bytes, align);
  if (is_cached) {
    cache->update_watermark();  // the lists may hold fewer bytes than before
    const std::size_t range_bytes = detail::coalescing_heap::range_bytes(bytes);
    if (range_bytes > cache->heap_room()) pass_on(*cache, bytes);
    if (range_bytes > cache->heap_room()) rebalance_cache(*cache, range_bytes);
    if (cache->heap_blocks.try_deallocate(block, bytes)) return;
  }
  const std::scoped_lock lock{store_mutex_};
  if (is_cached) {  // blocks of another size occupy the place
    const std::size_t before = cache->heap_blocks.bytes();
    cache->heap_blocks.evict_place(bytes, [this](void* other) { store_.return_to_heap(other, 0); });
    cache->share.on_pass_on(before - cache->heap_blocks.bytes());
    (void)cache->heap_blocks.try_deallocate(block, bytes);
  } else {
    store_.deallocate_large(block, bytes, align);
  }
  publish();
  const std::scoped_lock peak_lock{caches_mutex_};
  update_peak_cached_bytes();
}

// Fills an empty list with a chain of the depot, or blocks of the store.
void synchronized_pool::refill(detail::thread_cache& cache, std::size_t index) {
  detail::block_chain chain = depot_.pop_chain(index);
  if (chain.blocks == 0) {
    const std::scoped_lock lock{store_mutex_};
    chain = depot_.pop_chain(index);  // a trim may have put the chain back before it released the lock
    const std::size_t most = cache.share.chain_bytes();
    if (chain.blocks == 0) chain = store_.refill(index, most, most, [this] { return relieve_upstream(); });
    publish();
  }
  const std::size_t bytes = chain.blocks * classes_.bytes(index);
  depot_.subtract_cached(bytes);
  cache.blocks.add_cached(bytes);
  cache.share.on_receive(bytes);
  cache.blocks.push_all(index, chain);
}

// Moves the newest blocks of a list to the depot. O(blocks).
void synchronized_pool::move_to_depot(detail::thread_cache& from, std::size_t index,
                                      std::size_t blocks) noexcept {
  const std::size_t bytes = blocks * classes_.bytes(index);
  from.blocks.subtract_cached(bytes);
  from.share.on_pass_on(bytes);
  depot_.add_cached(bytes);
  detail::block_chain list = from.blocks.pop_all(index);
  depot_.push_front(index, list, blocks);
  from.blocks.push_all(index, list);
}

// Called if the cache is full, would be full with `more_bytes`, or has reached its watermark, when slabs may
// be free.
void synchronized_pool::rebalance_cache(detail::thread_cache& cache, std::size_t more_bytes) noexcept {
  const bool is_full =
      cache.share.is_full(cache.blocks.cached_bytes(), cache.heap_blocks.bytes() + more_bytes);
  if (is_full) shrink_cache_to(cache, cache.share.limit() / 2);
  enforce_free_limit();
  const bool must_trim = (is_full || stranded_bytes_ != 0) && is_trim_due(&cache);
  cache.update_watermark();
  // Trims all threads, because blocks in other caches may be all that keeps slabs from being returned.
  if (must_trim) (void)trim(store_.max_free_bytes() / 2);
}

// The heap blocks keep half of the target, or more if the blocks of the classes do not fill the other half.
void synchronized_pool::shrink_cache_to(detail::thread_cache& cache, std::size_t target_bytes) noexcept {
  const std::size_t of_classes = cache.blocks.cached_bytes();
  const std::size_t of_heap = std::max(target_bytes / 2, target_bytes - std::min(target_bytes, of_classes));
  if (cache.heap_blocks.bytes() > of_heap) {
    const std::scoped_lock lock{store_mutex_};
    (void)return_heap_blocks(cache, of_heap);
  }
  while (cache.cached_bytes() > target_bytes) {
    for (std::size_t i = classes_.count(); i-- > 0 && cache.cached_bytes() > target_bytes;)
      move_to_depot(cache, i, (cache.blocks.listed_blocks(i) + 1) / 2);
  }
}

void synchronized_pool::move_lists_to_depot(detail::thread_cache& cache) noexcept {
  for (std::size_t i = 0; i < classes_.count(); ++i) move_to_depot(cache, i, cache.blocks.listed_blocks(i));
}

std::size_t synchronized_pool::return_heap_blocks(detail::thread_cache& cache,
                                                  std::size_t max_bytes) noexcept {
  const std::size_t before = cache.heap_blocks.bytes();
  const std::size_t returned = return_heap_blocks(cache.heap_blocks, max_bytes);
  cache.share.on_pass_on(before - cache.heap_blocks.bytes());
  return returned;
}

std::size_t synchronized_pool::return_heap_blocks(detail::heap_block_cache& blocks,
                                                  std::size_t max_bytes) noexcept {
  if (blocks.bytes() <= max_bytes) return 0;
  const std::size_t held_before = store_.held_bytes();
  blocks.shrink(max_bytes, [this](void* block) { store_.return_to_heap(block, 0); });
  publish();
  return held_before - store_.held_bytes();
}

std::size_t synchronized_pool::drain_cache(detail::thread_cache& cache) noexcept {
  move_lists_to_depot(cache);
  const std::scoped_lock lock{store_mutex_};
  return return_heap_blocks(cache, 0);
}

void synchronized_pool::drain_pending_work(detail::thread_cache& cache) noexcept {
  if (!cache.blocks.consume_pending_work()) return;
  const std::size_t target = cache.blocks.pending().consume_trim();
  if (target != detail::pending_work::no_trim) {
    (void)drain_cache(cache);
    (void)trim_shared(target);
  }
  rebalance_cache(cache);
}

// ---- shared state -----------------------------------------------------------------------------------------

// Deallocates for a thread that has no cache and no memory for a cache.
void synchronized_pool::deallocate_without_cache(std::size_t index, void* block, std::size_t bytes) noexcept {
  {
    const std::scoped_lock lock{caches_mutex_};
    (void)ended_.blocks.push_block(index, block, bytes);
    move_to_depot(ended_, index, 1);
    update_peak_cached_bytes();
  }
  enforce_free_limit();
}

// Updates the peak. @return true if slabs of stranded blocks may be free. Otherwise each thread may free its
// part of the missing bytes before it checks again, so one thread alone misses nothing. With several
// threads, a minimum keeps small parts from causing a check in every call. The minimum shrinks with the
// live bytes, because each of few live blocks holds more memory.
bool synchronized_pool::is_trim_due(detail::thread_cache* cache) noexcept {
  const std::scoped_lock lock{caches_mutex_};
  update_peak_cached_bytes();
  const std::size_t reachable = reachable_bytes_;  // first, so that a concurrent trim hides no live bytes
  const std::size_t cached = std::min(reachable, reusable_bytes()), live = reachable - cached;
  const std::size_t due = trim_times_.due_at(cached, live, stranded_bytes_);
  if (stranded_bytes_ != 0 && cached > due) return true;
  if (cache == nullptr) return false;
  const std::size_t threads = count_caches(), least = threads > 1 ? std::min(unnoticed_bytes, live / 8) : 0;
  const std::size_t part = std::max((due - std::min(due, cached)) / threads, least);
  cache->share.report_above(stranded_bytes_ != 0 ? cache->blocks.cached_bytes() + part
                                                 : detail::cache_share::never);
  return false;
}

// Returns cached memory, because the upstream may lack these bytes.
std::size_t synchronized_pool::relieve_upstream() noexcept {
  std::size_t returned = 0;
  if (detail::thread_cache* const own = threads_.find()) {
    move_lists_to_depot(*own);
    returned = return_heap_blocks(*own, 0);
  }
  request_trim(0);
  returned += return_heap_blocks(passed_on_, 0);
  returned += store_.release_free(0);
  publish();
  return returned;
}

std::size_t synchronized_pool::trim_shared(std::size_t target_bytes) noexcept {
  const std::scoped_lock lock{store_mutex_};
  ended_.blocks.pending().remove_served_trim(target_bytes);
  std::size_t returned = return_heap_blocks(passed_on_, 0);
  returned += store_.release_free(target_bytes);
  store_.strand(target_bytes);
  publish();
  const std::scoped_lock caches_lock{caches_mutex_};
  trim_times_.trimmed(reachable_bytes_ - std::min<std::size_t>(reachable_bytes_, reusable_bytes()));
  // Makes each thread check in its next call, and schedule its next check.
  if (stranded_bytes_ != 0) {
    for (detail::thread_cache& cache : caches_) cache.blocks.pending().post();
  }
  return returned;
}

void synchronized_pool::publish() noexcept {
  stranded_bytes_ = store_.stranded_block_bytes();
  reachable_bytes_ = store_.reachable_bytes();
}

// Trims to half of the depot's limit, so that trims are rare.
void synchronized_pool::enforce_free_limit() noexcept {
  const std::size_t most = store_.max_free_bytes();
  if (depot_.cached_bytes() + passed_on_.bytes() <= most) return;
  {
    const std::scoped_lock lock{store_mutex_};
    (void)return_heap_blocks(passed_on_, 0);
    store_.make_room();
    publish();
  }
  if (depot_.cached_bytes() > most) (void)trim_shared(most / 2);
}

// May run on any thread, also on a thread that must not wait for the owners. Owners trim in their next calls.
void synchronized_pool::request_trim(std::size_t target_bytes) noexcept {
  const std::scoped_lock lock{caches_mutex_};
  ended_.blocks.pending().post_trim(target_bytes);
  for (detail::thread_cache& cache : caches_) cache.blocks.pending().post_trim(target_bytes);
}

std::size_t synchronized_pool::trim(std::size_t target_bytes) noexcept {
  if (refuse_reentry("trim")) return 0;
  request_trim(target_bytes);
  std::size_t returned = 0;
  if (detail::thread_cache* const own = threads_.find()) {
    (void)own->blocks.consume_pending_work();
    target_bytes = std::min(target_bytes, own->blocks.pending().consume_trim());
    returned = drain_cache(*own);
  }
  return returned + trim_shared(target_bytes);
}

void synchronized_pool::release() noexcept {
  if (refuse_reentry("release")) return;
  if constexpr (check_level >= 2) detail::report_frames_of(*this, "synchronized_pool", name());
  {
    const std::scoped_lock lock{caches_mutex_};
    ended_.forget();
    for (detail::thread_cache& cache : caches_) cache.forget();
    trim_times_.trimmed(0);
  }
  const std::scoped_lock lock{store_mutex_};
  for (std::size_t i = 0; i < classes_.count(); ++i) (void)depot_.pop_all(i);
  depot_.subtract_cached(depot_.cached_bytes());
  passed_on_.forget();
  store_.release();
  publish();
  if constexpr (detail::records_blocks) ledger_.clear();
}

// ---- statistics -------------------------------------------------------------------------------------------

std::size_t synchronized_pool::cached_bytes() const noexcept {
  return depot_.cached_bytes() + passed_on_.bytes() +
         sum_over_caches([](auto const& each) { return each.cached_bytes(); });
}

std::size_t synchronized_pool::reusable_bytes() const noexcept {
  return depot_.cached_bytes() + sum_over_caches([](auto const& each) { return each.blocks.cached_bytes(); });
}

void synchronized_pool::update_peak_cached_bytes() const noexcept {
  peak_cached_bytes_ = std::max(peak_cached_bytes_, cached_bytes());
}

// Returns counts since construction. Reads misses first, then deallocations, then allocations, so that no
// difference is negative.
pool_stats synchronized_pool::count() const noexcept {
  pool_stats all{.name = options().name};
  if (refuse_reentry("stats")) return all;
  {
    const std::scoped_lock lock{store_mutex_};
    all.allocations = store_.counts().allocations;
    all.deallocations = store_.counts().deallocations;
    all.misses = store_.counts().misses;
    all.used_bytes = store_.used_large_bytes();
    all.requested_bytes = store_.requested_large_bytes();
    all.stranded_bytes = store_.stranded_bytes();
    all.held_bytes = store_.held_bytes();
    // The heap counts blocks in threads' caches as live. `store_mutex_` keeps their number constant.
    const std::scoped_lock caches_lock{caches_mutex_};
    const auto heap_bytes = [](auto const& each) { return each.heap_blocks.bytes(); };
    all.used_bytes -= std::min(all.used_bytes, passed_on_.bytes() + sum_over_caches(heap_bytes));
    all.deallocations += sum_over_caches([](auto const& each) { return each.heap_blocks.deallocations(); });
    all.allocations += sum_over_caches([](auto const& each) { return each.heap_blocks.allocations(); });
    // In a child, counts of missing threads are from different moments, here and below.
    all.deallocations = std::min(all.deallocations, all.allocations);
  }
  const std::scoped_lock lock{caches_mutex_};
  all.cached_bytes = cached_bytes();
  peak_cached_bytes_ = std::max(peak_cached_bytes_, all.cached_bytes);
  all.peak_cached_bytes = peak_cached_bytes_;
  for (std::size_t i = 0; i < classes_.count(); ++i) {
    std::uint64_t deallocations =
        sum_over_caches([i](auto const& each) { return each.blocks.deallocations(i); });
    const std::uint64_t allocations =
        sum_over_caches([i](auto const& each) { return each.blocks.allocations(i); });
    deallocations = std::min(deallocations, allocations);
    all.allocations += allocations;
    all.deallocations += deallocations;
    all.used_bytes += (allocations - deallocations) * classes_.bytes(i);
  }
  all.requested_bytes += sum_over_caches(
      [](auto const& each) { return each.blocks.requested_bytes() + each.heap_blocks.requested_bytes(); });
  // The sum over several caches may be off for a moment, even below 0, because they are read in turn.
  if (is_in_child_) {  // blocks in transit between threads stay live
    all.cached_bytes = std::min(all.cached_bytes, all.held_bytes - all.stranded_bytes);
    all.used_bytes = all.held_bytes - all.stranded_bytes - all.cached_bytes;
  }
  all.requested_bytes = std::min(all.requested_bytes, all.used_bytes);
  all.used_blocks = all.allocations - all.deallocations;
  return all;
}

// Another thread may have reset the counts since `count()`. A reset during an allocation may have seen the
// allocation, but not its miss.
pool_stats synchronized_pool::stats() const noexcept {
  pool_stats stats = count();
  const std::scoped_lock lock{caches_mutex_};
  stats.allocations -= std::min(stats.allocations, at_reset_.allocations);
  stats.deallocations -= std::min(stats.deallocations, at_reset_.deallocations);
  stats.misses = std::min(stats.misses - std::min(stats.misses, at_reset_.misses), stats.allocations);
  stats.hits = stats.allocations - stats.misses;
  return stats;
}

void synchronized_pool::reset_stats() noexcept {
  if (refuse_reentry("reset_stats")) return;
  const pool_stats now = count();
  const std::scoped_lock lock{caches_mutex_};
  at_reset_ = {now.allocations, now.deallocations, now.misses};
  peak_cached_bytes_ = cached_bytes();
}

std::size_t synchronized_pool::thread_count() const noexcept {
  const std::scoped_lock lock{caches_mutex_};
  return count_caches();
}

// ---- forks ------------------------------------------------------------------------------------------------

// Other threads may have been changing their lists without a lock. Their lists are never read, and their
// blocks stay counted as cached. Blocks in transit between a list and the depot count as live. Counts restart
// at 0, unless this thread is inside an upstream call, where the counts are incomplete.
void synchronized_pool::adapt_to_child() noexcept {
  is_in_child_ = true;
  detail::thread_cache const* const own = threads_.find();
  caches_.remove_if([&](detail::thread_cache const& cache) {
    if (&cache == own) return false;
    ended_.add_counts(cache);
    return true;
  });
  update_share();
  if (!store_mutex_.is_held_by_this_thread()) reset_stats();
}

// ---- checks -----------------------------------------------------------------------------------------------

void* synchronized_pool::allocate_checked(std::size_t bytes, std::size_t align, detail::call_site where) {
  detail::require_power_of_two("synchronized_pool", name(), align);
  const own_cache slot = threads_.own_slot();
  detail::thread_cache* const own = slot.owner == threads_.number() ? slot.part : nullptr;
  void* block = own != nullptr ? own->blocks.try_allocate(bytes, align) : nullptr;
  if (block == nullptr) block = allocate_slow(bytes, align, own);
  try {
    const std::scoped_lock lock{ledger_mutex_};
    ledger_.add(detail::pooled_block(block, bytes, align, ledger_, where));
  } catch (...) {
    deallocate_slow(block, bytes, align, detail::free_result::not_listed, nullptr);
    throw;
  }
  return block;
}

char const* synchronized_pool::broken_invariant() const noexcept {
  if (char const* formula = store_.broken_invariant()) return formula;
  if (!is_in_child_ && depot_.listed_bytes() + store_.unlisted_bytes() != depot_.cached_bytes())
    return "cached in no thread's cache == sum over the depot, uncarved blocks and free ranges";
  for (detail::thread_cache const& cache : caches_) {
    std::size_t cached = 0;
    for (std::size_t i = 0; i < classes_.count(); ++i) {
      if (char const* formula = store_.broken_list(i, cache.blocks.list(i))) return formula;
      cached += cache.blocks.listed_blocks(i) * classes_.bytes(i);
    }
    if (cached != cache.blocks.cached_bytes() || !cache.heap_blocks.is_counted())
      return "cached_bytes == sum over a thread's free blocks";
  }
  if (!passed_on_.is_counted()) return "passed-on bytes == sum over the passed-on blocks";
  return nullptr;
}

void synchronized_pool::check_invariants() const noexcept {
  if (refuse_reentry("check_invariants")) return;
  const detail::invariant_check require{"synchronized_pool", name()};
  const pool_stats now = stats();
  char const* broken = nullptr;
  {
    const std::scoped_lock lock{store_mutex_, caches_mutex_};
    broken = broken_invariant();
  }
  require.report(broken);
  require(now.held_bytes == now.used_bytes + now.cached_bytes + now.stranded_bytes,
          "held_bytes == used_bytes + cached_bytes + stranded_bytes");
  require(now.cached_bytes <= now.peak_cached_bytes, "cached_bytes <= peak_cached_bytes");
  require(now.requested_bytes <= now.used_bytes, "requested_bytes <= used_bytes");
}

}  // namespace tidemark
