// SPDX-License-Identifier: Apache-2.0
#include <tidemark/synchronized_pool.hpp>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/detail/shared_steps.hpp>
#include <tidemark/detail/thread_owned.hpp>
#include <tidemark/violation.hpp>

#include "default_upstream.hpp"
#include "pool_setup.hpp"
#include "require.hpp"

namespace tidemark {
namespace {

// What a thread may free at least before it looks at the sum of what all threads cache, and as much as it may
// keep of an earlier part: one look costs the cache lines of all.
constexpr std::size_t unnoticed_bytes = 32 * KiB;

}  // namespace

namespace detail {

constinit thread_local std::array<cache_slot, cache_slot_count> cache_slots{};

namespace {

// The pools that are there, by number: a thread that ends may have caches of pools that are gone. Never
// destroyed, because threads may end at any time of the program's end. Nothing else is locked, and nothing is
// called, while its lock is held.
struct pool_registry {
  std::mutex mutex;
  std::map<unsigned long long, synchronized_pool*> pools;
};

pool_registry& registry() {
  static auto* const all = new pool_registry;
  return *all;
}

// Numbers of their own, so that the pools of a program take its threads' slots in turn.
unsigned long long next_pool_number() noexcept {
  static std::atomic<unsigned long long> last{0};
  return ++last;
}

}  // namespace

/// All caches of a thread; when it ends, they go to their pools.
class thread_cache_list {
 public:
  thread_cache_list() = default;
  thread_cache_list(thread_cache_list const&) = delete;
  thread_cache_list& operator=(thread_cache_list const&) = delete;
  ~thread_cache_list() {
    cache_slots = {};
    for (cache_slot const& entry : entries_) {
      if (synchronized_pool* const pool = pin(entry.pool)) {
        pool->end(entry.cache);
        unpin(*pool);
      }
    }
  }

  [[nodiscard]] thread_cache* find(unsigned long long pool) const noexcept {
    const auto found = std::ranges::find(entries_, pool, &cache_slot::pool);
    return found != entries_.end() ? found->cache : nullptr;
  }
  /// Room for one more, so that `add` cannot fail. What belongs to pools that are gone is dropped before more
  /// is taken.
  void reserve_one() {
    if (entries_.size() < entries_.capacity()) return;
    {
      const std::scoped_lock lock{registry().mutex};
      std::erase_if(entries_, [](cache_slot const& entry) { return !registry().pools.contains(entry.pool); });
    }
    entries_.reserve(std::max<std::size_t>(8, 2 * entries_.size()));
  }
  void add(unsigned long long pool, thread_cache* cache) noexcept { entries_.push_back({pool, cache}); }

 private:
  // The pool, if it is there; it then waits with its end for `unpin`.
  static synchronized_pool* pin(unsigned long long number) {
    const std::scoped_lock lock{registry().mutex};
    const auto found = registry().pools.find(number);
    if (found == registry().pools.end()) return nullptr;
    ++found->second->pins_;
    return found->second;
  }
  static void unpin(synchronized_pool& pool) noexcept {
    // Under the lock, so that the pool is not gone before it was told.
    const std::scoped_lock lock{registry().mutex};
    --pool.pins_;
    pool.pins_.notify_all();
  }

  std::vector<cache_slot> entries_;
};

}  // namespace detail

synchronized_pool::synchronized_pool(pool_options const& options, std::pmr::memory_resource* upstream)
    : id_{detail::next_pool_number()},
      classes_{options.name, options.bucket_bytes},
      options_{detail::completed(options, classes_, detail::or_default(upstream))},
      store_{classes_, options_.upstream, options.max_blocks_per_slab},
      large_{options_.upstream} {
  shared_bytes_ = detail::preallocate(store_, classes_, options_, depot_bytes_max());
  publish();
  peak_cached_bytes_ = shared_bytes_;
  update_share();
  pressure_ = on_memory_pressure([this] {
    pressed_ = true;
    request_trim(0);
  });
  // Last: a pool whose construction fails must not stay known.
  const std::scoped_lock lock{detail::registry().mutex};
  detail::registry().pools.emplace(id_, this);
}

synchronized_pool::synchronized_pool(std::pmr::pool_options const& options,
                                     std::pmr::memory_resource* upstream)
    : synchronized_pool{detail::from_standard(options), upstream} {}

synchronized_pool::~synchronized_pool() {
  pressure_ = {};
  {
    const std::scoped_lock lock{detail::registry().mutex};
    detail::registry().pools.erase(id_);  // from here on no thread that ends looks for its cache
  }
  for (std::size_t pins = pins_; pins != 0; pins = pins_) pins_.wait(pins);
  {
    const std::scoped_lock lock{detail::registry().mutex};
  }  // until the last unpin has left it
  while (caches_ != nullptr) delete std::exchange(caches_, caches_->next);
}

// ---- a thread and its cache -------------------------------------------------------------------------------

detail::thread_cache& synchronized_pool::cache_of_this_thread() {
  auto& caches = detail::thread_owned<detail::thread_cache_list>::get();
  detail::thread_cache* cache = caches.find(id_);
  if (cache == nullptr) {
    caches.reserve_one();
    cache = new detail::thread_cache{classes_};
    caches.add(id_, cache);
    const std::scoped_lock lock{caches_mutex_};
    if (pressed_) {  // there may have been no thread to empty the depot
      cache->trim_target_bytes = 0;
      cache->blocks.request_attention();
    }
    cache->next = caches_;
    if (caches_ != nullptr) caches_->previous = cache;
    caches_ = cache;
    ++cache_count_;
    update_share();
  }
  detail::cache_slots[id_ % detail::cache_slot_count] = {id_, cache};
  return *cache;
}

// This thread's cache if it has one, whether or not its slot is another pool's at the moment.
detail::thread_cache* synchronized_pool::find_cache_anywhere() const noexcept {
  if (detail::thread_cache* const cache = find_cache()) return cache;
  auto const* const caches = detail::thread_owned<detail::thread_cache_list>::find();
  return caches != nullptr ? caches->find(id_) : nullptr;
}

// The thread has ended: its blocks go to the depot, its counts to those of all such threads.
void synchronized_pool::end(detail::thread_cache* cache) noexcept {
  leave_all(*cache);
  {
    const std::scoped_lock lock{caches_mutex_};
    for (std::size_t i = 0; i < classes_.count(); ++i) {
      ended_[i].allocations += cache->blocks.at(i).allocations.value();
      ended_[i].deallocations += cache->blocks.at(i).deallocations.value();
    }
    ended_requested_bytes_ += cache->blocks.requested_bytes();
    (cache->previous != nullptr ? cache->previous->next : caches_) = cache->next;
    if (cache->next != nullptr) cache->next->previous = cache->previous;
    --cache_count_;
    update_share();
    measure(nullptr);
  }
  const std::size_t target = cache->trim_target_bytes;
  delete cache;
  if (target != detail::thread_cache::no_trim) (void)trim_shared(target);
  keep_to_limit();
  if (half_is_gone()) (void)trim(depot_bytes_max() / 2);  // there may be nobody left to look
}

// Half of max_cached_bytes is for the caches. Who has more than the new share sees it in the next call.
void synchronized_pool::update_share() noexcept {
  const std::size_t threads = std::max<std::size_t>(1, cache_count_);
  const std::size_t share = std::min(thread_cache_bytes_max, options_.max_cached_bytes / 2 / threads);
  const bool less = share < share_bytes_;
  share_bytes_ = share;
  if (!less) return;
  for (detail::thread_cache* cache = caches_; cache != nullptr; cache = cache->next) {
    cache->blocks.request_attention();
  }
}

// What is cached may be what the upstream lacks: it goes back, and the upstream is asked once more.
template <class Ask>
auto synchronized_pool::ask_upstream(Ask ask) {
  try {
    return ask();
  } catch (std::bad_alloc const&) {
    if (detail::thread_cache* const own = find_cache_anywhere()) leave_all(*own);
    request_trim(0);
    const std::size_t returned = release_free_slabs(0);
    publish();
    if (returned == 0) throw;
  }
  return ask();
}

void* synchronized_pool::allocate_slow(std::size_t bytes, std::size_t align) {
  detail::thread_cache& cache = cache_of_this_thread();
  if (cache.blocks.wants_attention()) attend(cache);
  const std::size_t index = classes_.index_of(bytes, align);
  if (index == detail::size_classes::none) return allocate_large(cache, bytes, align);
  detail::block_cache::bucket& bucket = cache.blocks.at(index);
  const refill_source from = bucket.free == nullptr ? refill(cache, index) : refill_source::own;
  void* const block = cache.blocks.take_from(bucket, bytes);
  // After the allocation is counted, so that at no moment more misses than allocations are.
  if (from == refill_source::upstream) {
    ++misses_;
    keep_to_limit();
  }
  if (from == refill_source::upstream) note_peak(cache);  // also the rest of the slab is cached now
  // A chain for each class in turn may be more than the cache's share in all.
  if (from == refill_source::own) update_watermark(cache);
  else if (cache.blocks.cached_bytes() > share_bytes_) settle(cache);
  else note_peak_if_due(cache);
  return block;
}

void synchronized_pool::deallocate_slow(void* block, std::size_t bytes, std::size_t align,
                                        detail::given result) noexcept {
  detail::thread_cache* cache = find_cache();
  try {
    if (cache == nullptr) cache = &cache_of_this_thread();
  } catch (std::bad_alloc const&) {
    cache = nullptr;  // freeing works without a cache as well
  }
  if (cache != nullptr && cache->blocks.wants_attention()) attend(*cache);
  if (result == detail::given::not_fast) {
    const std::size_t index = classes_.index_of(bytes, align);
    if (index == detail::size_classes::none) {
      deallocate_large(cache, block, bytes);
      return;
    }
    if (cache == nullptr) {
      deallocate_without_cache(index, block, bytes);
      return;
    }
    result = cache->blocks.give_to(cache->blocks.at(index), block, bytes);
  }
  if (result == detail::given::over_watermark) settle(*cache);
}

// Puts blocks into an empty list: a spare chain of the thread, one of the depot, or new ones.
synchronized_pool::refill_source synchronized_pool::refill(detail::thread_cache& cache, std::size_t index) {
  detail::block_cache::bucket& bucket = cache.blocks.at(index);
  if (const detail::block_chain spare = take_spare(cache, index); spare.blocks > 0) {
    cache.blocks.put(bucket, spare);
    return refill_source::own;
  }
  detail::block_chain chain = depot_.take(index);
  bool shared = true, asked = false;
  if (chain.blocks == 0) {
    const std::scoped_lock lock{store_mutex_};
    chain = depot_.take(index);  // a trim that held the lock may just have put it back
    if (chain.blocks == 0) chain = store_.carve(index, chain_bytes_max());
    if (chain.blocks == 0) {
      chain = store_.take_stranded(index, chain_bytes_max());
      shared = chain.blocks == 0;
    }
    if (chain.blocks == 0) {
      shared_bytes_ +=
          ask_upstream([&] { return store_.add_slab(index, 0, std::numeric_limits<std::size_t>::max()); });
      asked = true;
      chain = store_.carve(index, chain_bytes_max());
    }
    publish();
  }
  const std::size_t bytes = chain.blocks * bucket.block_bytes;
  if (shared) shared_bytes_ -= bytes;  // first, so that no look in between counts the chain twice
  cache.blocks.add_cached(bytes);
  if (shared) {
    detail::shared_steps::raise(cache.bytes_at_peak, cache.blocks.cached_bytes());  // the sum is as before
  }
  cache.blocks.put(bucket, chain);
  return asked ? refill_source::upstream : refill_source::shared;
}

// The cache has reached its watermark: it holds too much, or more may be cached in all than ever before.
void synchronized_pool::settle(detail::thread_cache& cache) noexcept {
  const auto index_of_most = [&](auto bytes_of) {
    std::size_t most = 0;
    for (std::size_t i = 1; i < classes_.count(); ++i) {
      if (bytes_of(i) > bytes_of(most)) most = i;
    }
    return most;
  };
  // Before chains leave: each takes as much from both sides, but neither goes below 0.
  const bool is_due = cache.blocks.cached_bytes() > cache.bytes_at_peak;
  while (cache.blocks.cached_bytes() - cache.spare_bytes > chain_bytes_max()) {
    make_spare(cache, index_of_most([&](std::size_t i) {
                 return cache.blocks.at(i).listed_blocks() * classes_.bytes(i);
               }));
  }
  while (cache.spare_bytes > spare_bytes_max()) {
    leave_spare(cache,
                index_of_most([&](std::size_t i) { return cache.spares[i].blocks() * classes_.bytes(i); }));
  }
  keep_to_limit();
  if (is_due) note_peak(cache);
  else note_peak_if_due(cache);
  // Of all threads, because what others cache may be all that keeps slabs from going back.
  if (half_is_gone()) (void)trim(depot_bytes_max() / 2);
}

// Blocks were set aside, and half of what was live then is free now: their slabs may be all free.
bool synchronized_pool::half_is_gone() const noexcept {
  const std::size_t live = live_bytes_, before = live_at_trim_;
  return stranded_bytes_ != 0 && before != not_measured && live < before && live <= before / 2;
}

// Looks at what all cache. What may still be freed before there is something to notice, a new peak or slabs
// that are all free again, is then shared out among the threads, so that none of them needs to look before it
// has freed its part. With one thread nothing is missed; with more, a part is never so small that they would
// meet all the time. So, but for chains that are on their way,
// `sum over caches of bytes_at_peak + shared_bytes <= peak_cached_bytes + 2 * unnoticed_bytes * threads`.
void synchronized_pool::measure(detail::thread_cache const* own) noexcept {
  const std::size_t threads = std::max<std::size_t>(1, cache_count_);
  const std::size_t unnoticed = threads > 1 ? unnoticed_bytes : 0;
  const std::size_t reachable = reachable_bytes_;  // first: a trim in between must not hide what is live
  const std::size_t cached = cached_bytes();
  peak_cached_bytes_ = std::max(peak_cached_bytes_, cached);
  std::size_t part = std::max((peak_cached_bytes_ - cached) / threads, unnoticed);
  const std::size_t live = reachable - std::min(reachable, cached);
  live_bytes_ = live;
  if (stranded_bytes_ != 0) {
    if (live_at_trim_ == not_measured) live_at_trim_ = live;
    const std::size_t half = live_at_trim_ / 2;
    // The fewer blocks are live, the more memory each of them holds: little of that may go unnoticed.
    if (live > half)
      part = std::min(part, std::max((live - half - 1) / threads, std::min(unnoticed, half / 8)));
  }
  const std::size_t tolerated = std::min(part, unnoticed);
  for (detail::thread_cache* cache = caches_; cache != nullptr; cache = cache->next) {
    const std::size_t before = cache->bytes_at_peak, now = cache->blocks.cached_bytes() + part;
    const bool takes_away = now < before && before - now > tolerated;
    if (cache == own || now > before || takes_away) cache->bytes_at_peak = now;
    if (cache != own && takes_away) cache->blocks.request_attention();
  }
}

void synchronized_pool::note_peak(detail::thread_cache& cache) noexcept {
  {
    const std::scoped_lock lock{caches_mutex_};
    measure(&cache);
  }
  update_watermark(cache);
}

void synchronized_pool::note_peak_if_due(detail::thread_cache& cache) noexcept {
  const bool unmeasured = stranded_bytes_ != 0 && live_at_trim_ == not_measured;
  if (unmeasured || cache.blocks.cached_bytes() > cache.bytes_at_peak) note_peak(cache);
  else update_watermark(cache);
}

void synchronized_pool::update_watermark(detail::thread_cache& cache) const noexcept {
  cache.blocks.set_watermark(
      std::min<std::size_t>(cache.bytes_at_peak, cache.spare_bytes + chain_bytes_max()));
}

// The list becomes a spare chain.
void synchronized_pool::make_spare(detail::thread_cache& cache, std::size_t index) noexcept {
  const detail::block_chain chain = cache.blocks.take_all(cache.blocks.at(index));
  cache.spares[index].push(chain);
  cache.spare_bytes += chain.blocks * classes_.bytes(index);
}

detail::block_chain synchronized_pool::take_spare(detail::thread_cache& cache, std::size_t index) noexcept {
  const detail::block_chain chain = cache.spares[index].pop();
  cache.spare_bytes -= chain.blocks * classes_.bytes(index);
  return chain;
}

void synchronized_pool::leave_spare(detail::thread_cache& cache, std::size_t index) noexcept {
  const detail::block_chain chain = take_spare(cache, index);
  const std::size_t bytes = chain.blocks * classes_.bytes(index);
  cache.blocks.subtract_cached(bytes);
  // What it might have freed in their place may not be freed by it and be left there too.
  std::size_t before = cache.bytes_at_peak;
  while (!cache.bytes_at_peak.compare_exchange_weak(before, before - std::min(before, bytes))) {
  }
  leave(index, chain);
}

void synchronized_pool::leave_all(detail::thread_cache& cache) noexcept {
  for (std::size_t i = 0; i < classes_.count(); ++i) {
    make_spare(cache, i);
    while (cache.spares[i].blocks() > 0) leave_spare(cache, i);
  }
}

void synchronized_pool::attend(detail::thread_cache& cache) noexcept {
  if (!cache.blocks.attend()) return;
  const std::size_t target = cache.trim_target_bytes.exchange(detail::thread_cache::no_trim);
  if (target != detail::thread_cache::no_trim) {
    leave_all(cache);
    (void)trim_shared(target);
  }
  settle(cache);
}

// ---- what is shared ---------------------------------------------------------------------------------------

void synchronized_pool::leave(std::size_t index, detail::block_chain chain) noexcept {
  shared_bytes_ += chain.blocks * classes_.bytes(index);
  depot_.put(index, chain);
}

// For a thread that has no cache and no memory for one.
void synchronized_pool::deallocate_without_cache(std::size_t index, void* block, std::size_t bytes) noexcept {
  auto* const freed = static_cast<detail::free_block*>(block);
  detail::hand_out(reinterpret_cast<std::uintptr_t>(block), classes_.bytes(index));
  detail::withhold(reinterpret_cast<std::uintptr_t>(block), classes_.bytes(index));
  detail::link(freed, nullptr);
  leave(index, {freed, 1});
  {
    const std::scoped_lock lock{caches_mutex_};
    ++ended_[index].deallocations;
    ended_requested_bytes_ -= bytes;
    peak_cached_bytes_ = std::max(peak_cached_bytes_, cached_bytes());
  }
  keep_to_limit();
}

void* synchronized_pool::allocate_large(detail::thread_cache& cache, std::size_t bytes, std::size_t align) {
  const std::scoped_lock lock{store_mutex_};
  void* block = large_.take(bytes, align);
  if (block != nullptr) {
    change_shared(&cache, 0, detail::large_blocks::bytes_of(block));
  } else {
    block = ask_upstream([&] { return large_.allocate(bytes, align); });
    ++of_large_.misses;
  }
  ++of_large_.allocations;
  return block;
}

void synchronized_pool::deallocate_large(detail::thread_cache* cache, void* block,
                                         std::size_t bytes) noexcept {
  const std::scoped_lock lock{store_mutex_};
  ++of_large_.deallocations;
  const std::size_t most = depot_bytes_max();
  const std::size_t kept = large_.deallocate(block, bytes, options_.keep_large_blocks ? most : 0);
  if (kept == 0) return;
  // Before it is counted, so that there are never more cached than there may be.
  const std::size_t room = most - std::min<std::size_t>(shared_bytes_, most);
  change_shared(cache, kept, kept > room ? large_.release_kept(kept - room) : 0);
}

// Large blocks have come or gone. What is shared and what the thread may still free before it looks change in
// one step, so that no look of another thread counts a large block twice, or not at all.
void synchronized_pool::change_shared(detail::thread_cache* cache, std::size_t more,
                                      std::size_t less) noexcept {
  {
    const std::scoped_lock lock{caches_mutex_};
    shared_bytes_ += more - less;
    publish();
    std::size_t allowed = 0, cached = 0;
    if (cache != nullptr) allowed = cache->bytes_at_peak, cached = cache->blocks.cached_bytes();
    if (more <= less) {
      // Unless slabs are waited for: then it is their blocks of which no more may be freed unseen.
      if (cache != nullptr && stranded_bytes_ == 0) cache->bytes_at_peak += less - more;
    } else if (allowed >= cached && allowed - cached >= more - less) {
      cache->bytes_at_peak -= more - less;
    } else {
      measure(cache);
    }
  }
  if (cache != nullptr) update_watermark(*cache);
}

// Gives large blocks back until no more than that is shared, or none is left. @return bytes.
std::size_t synchronized_pool::release_large(std::size_t target_bytes) noexcept {
  const std::size_t shared = shared_bytes_;
  if (shared <= target_bytes) return 0;
  const std::size_t gone = large_.release_kept(shared - target_bytes);
  shared_bytes_ -= gone;
  return gone;
}

// Takes blocks out of the depot and of the uncarved ones, the largest first, of which the fewest need to be
// touched, as long as `excess_bytes()` is not 0.
template <class Excess, class Take>
void synchronized_pool::take_out(Excess excess_bytes, Take take) noexcept {
  for (std::size_t i = classes_.count(); i-- > 0;) {
    const std::size_t excess = excess_bytes();
    if (excess == 0) return;
    detail::block_chain all = depot_.take_all(i);
    const detail::slab_store::trimmed gone = take(i, all.first, excess);
    const std::size_t piece_blocks = std::max<std::size_t>(1, chain_bytes_max() / classes_.bytes(i));
    depot_.put_in_pieces(i, {all.first, all.blocks - gone.listed}, piece_blocks);
    shared_bytes_ -= (gone.listed + gone.uncarved) * classes_.bytes(i);
  }
}

std::size_t synchronized_pool::release_free_slabs(std::size_t target_bytes) noexcept {
  const std::size_t held_before = store_.held_bytes(), large_gone = release_large(target_bytes);
  take_out(
      [&] {
        const std::size_t free_bytes = shared_bytes_ + store_.stranded_bytes();
        return free_bytes - std::min(free_bytes, target_bytes);
      },
      [&](std::size_t i, detail::free_block*& list, std::size_t wanted) {
        return store_.release_free_slabs(i, list, wanted);
      });
  return held_before - store_.held_bytes() + large_gone;
}

void synchronized_pool::strand(std::size_t target_bytes) noexcept {
  take_out(
      [&] {
        const std::size_t shared = shared_bytes_;
        return shared - std::min(shared, target_bytes);
      },
      [&](std::size_t i, detail::free_block*& list, std::size_t wanted) {
        return store_.strand(i, list, wanted);
      });
}

std::size_t synchronized_pool::trim_shared(std::size_t target_bytes) noexcept {
  const std::scoped_lock lock{store_mutex_};
  if (target_bytes == 0) pressed_ = false;
  const std::size_t returned = release_free_slabs(target_bytes);
  strand(target_bytes);
  publish();
  live_at_trim_ = not_measured;  // until whoever looks next
  return returned;
}

// What others may know of the store without its lock.
void synchronized_pool::publish() noexcept {
  stranded_bytes_ = store_.stranded_bytes();
  reachable_bytes_ = store_.held_bytes() + large_.kept_bytes() - store_.stranded_bytes();
}

// The depot may hold half of what is to be cached at most. A trim goes to half of that, so that it is seldom.
void synchronized_pool::keep_to_limit() noexcept {
  const std::size_t most = depot_bytes_max();
  if (shared_bytes_ <= most) return;
  {
    // Large blocks go first, each of which goes back alone, and one in sixteen bytes more than must.
    const std::scoped_lock lock{store_mutex_};
    (void)release_large(most - most / 16);
    publish();
  }
  if (shared_bytes_ > most) (void)trim_shared(most / 2);
}

// Any thread, also one that must not wait for the owners: they see it in their next calls.
void synchronized_pool::request_trim(std::size_t target_bytes) noexcept {
  const std::scoped_lock lock{caches_mutex_};
  for (detail::thread_cache* cache = caches_; cache != nullptr; cache = cache->next) {
    // Of several trims that an owner has not seen yet the one that wants most of it counts. Owners only ever
    // set it to `no_trim`: at worst one trims once more than it must.
    cache->trim_target_bytes = std::min<std::size_t>(cache->trim_target_bytes, target_bytes);
    cache->blocks.request_attention();
  }
}

std::size_t synchronized_pool::trim(std::size_t target_bytes) noexcept {
  request_trim(target_bytes);
  detail::thread_cache* const own = find_cache_anywhere();
  if (own != nullptr) {
    (void)own->blocks.attend();
    target_bytes = std::min(target_bytes, own->trim_target_bytes.exchange(detail::thread_cache::no_trim));
    leave_all(*own);
  }
  const std::size_t returned = trim_shared(target_bytes);
  if (own != nullptr) note_peak(*own);
  return returned;
}

void synchronized_pool::release() noexcept {
  {
    const std::scoped_lock lock{caches_mutex_};
    for (std::size_t i = 0; i < classes_.count(); ++i) ended_[i].deallocations = ended_[i].allocations;
    for (detail::thread_cache* cache = caches_; cache != nullptr; cache = cache->next) {
      cache->blocks.forget();
      cache->spares = {};
      cache->spare_bytes = 0;
    }
    ended_requested_bytes_ = 0;
  }
  const std::scoped_lock lock{store_mutex_};
  for (std::size_t i = 0; i < classes_.count(); ++i) (void)depot_.take_all(i);
  shared_bytes_ = 0;
  large_.release();
  store_.release();
  publish();
  of_large_.deallocations = of_large_.allocations;
  live_at_trim_ = not_measured;
  if constexpr (check_level >= 2) ledger_.clear();
}

// ---- statistics -------------------------------------------------------------------------------------------

std::size_t synchronized_pool::cached_bytes() const noexcept {
  std::size_t sum = shared_bytes_;
  for (detail::thread_cache const* cache = caches_; cache != nullptr; cache = cache->next) {
    sum += cache->blocks.cached_bytes();
  }
  return sum;
}

// Deallocations are read before allocations and misses before both: whatever happens meanwhile, no difference
// is negative.
synchronized_pool::tally synchronized_pool::count() const noexcept {
  tally all;
  all.total.misses = misses_;
  {
    const std::scoped_lock lock{store_mutex_};
    all.total.allocations = of_large_.allocations;
    all.total.deallocations = of_large_.deallocations;
    all.total.misses += of_large_.misses;
    all.used_bytes = large_.used_bytes();
    all.requested_bytes = large_.requested_bytes();
    all.stranded_bytes = store_.stranded_bytes();
    all.held_bytes = store_.held_bytes() + large_.held_bytes();
  }
  const std::scoped_lock lock{caches_mutex_};
  all.cached_bytes = cached_bytes();
  peak_cached_bytes_ = std::max(peak_cached_bytes_, all.cached_bytes);  // what is told is not taken back
  all.requested_bytes += ended_requested_bytes_;
  for (std::size_t i = 0; i < classes_.count(); ++i) {
    std::uint64_t allocations = ended_[i].allocations, deallocations = ended_[i].deallocations;
    for (detail::thread_cache const* cache = caches_; cache != nullptr; cache = cache->next) {
      deallocations += cache->blocks.at(i).deallocations.value();
    }
    for (detail::thread_cache const* cache = caches_; cache != nullptr; cache = cache->next) {
      allocations += cache->blocks.at(i).allocations.value();
    }
    all.total.allocations += allocations;
    all.total.deallocations += deallocations;
    all.used_bytes += (allocations - deallocations) * classes_.bytes(i);
  }
  for (detail::thread_cache const* cache = caches_; cache != nullptr; cache = cache->next) {
    all.requested_bytes += cache->blocks.requested_bytes();
  }
  // Of several caches, read one after the other, the sum may be off for a moment, and even below 0.
  all.requested_bytes = std::min(all.requested_bytes, all.used_bytes);
  return all;
}

pool_stats synchronized_pool::stats() const noexcept {
  const tally now = count();
  const std::scoped_lock lock{caches_mutex_};
  pool_stats stats{
      .name = options_.name,
      .allocations = now.total.allocations - std::min(now.total.allocations, at_reset_.allocations),
      .deallocations = now.total.deallocations - std::min(now.total.deallocations, at_reset_.deallocations),
      .used_blocks = now.total.allocations - now.total.deallocations,
      .used_bytes = now.used_bytes,
      .bytes_allocated = now.used_bytes,
      .bytes_requested = now.requested_bytes,
      .bytes_cached = now.cached_bytes,
      .peak_cached_bytes = std::max(peak_cached_bytes_, now.cached_bytes),
      .bytes_stranded = now.stranded_bytes,
      .held_bytes = now.held_bytes};
  // A reset amid allocations may have seen one of them and not its miss.
  stats.pool_misses =
      std::min(now.total.misses - std::min(now.total.misses, at_reset_.misses), stats.allocations);
  stats.pool_hits = stats.allocations - stats.pool_misses;
  return stats;
}

void synchronized_pool::reset_stats() noexcept {
  const counts now = count().total;
  const std::scoped_lock lock{caches_mutex_};
  at_reset_ = now;
  peak_cached_bytes_ = 0;
  measure(nullptr);
}

std::size_t synchronized_pool::thread_count() const noexcept {
  const std::scoped_lock lock{caches_mutex_};
  return cache_count_;
}

// ---- level 2 ----------------------------------------------------------------------------------------------

void* synchronized_pool::allocate_checked(std::size_t bytes, std::size_t align) {
  detail::require_power_of_two("synchronized_pool", name(), align);
  detail::thread_cache* const cache = find_cache();
  void* block = cache != nullptr ? cache->blocks.take(bytes, align) : nullptr;
  if (block == nullptr) block = allocate_slow(bytes, align);
  try {
    const std::scoped_lock lock{ledger_mutex_};
    ledger_.add(block, {bytes, align});
  } catch (...) {
    deallocate_slow(block, bytes, align, detail::given::not_fast);
    throw;
  }
  return block;
}

bool synchronized_pool::may_deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
  const std::scoped_lock lock{ledger_mutex_};
  return ledger_.remove("synchronized_pool", name(), block, bytes, align).has_value();
}

void synchronized_pool::check_invariants() const noexcept {
  const auto require = [this](bool holds, char const* formula) {
    if (!holds) {
      detail::report_violation(violation_kind::invariant, name(),
                               "synchronized_pool '%s': broken invariant: %s", name(), formula);
    }
  };
  const pool_stats now = stats();
  const std::scoped_lock lock{store_mutex_, caches_mutex_};
  if (char const* formula = store_.broken_invariant()) require(false, formula);
  if (char const* formula = large_.broken_invariant()) require(false, formula);
  std::size_t shared = store_.uncarved_bytes() + large_.kept_bytes();
  for (std::size_t i = 0; i < classes_.count(); ++i) shared += depot_.blocks(i) * classes_.bytes(i);
  require(shared == shared_bytes_, "shared_bytes == sum over the depot, uncarved and kept large blocks");
  for (detail::thread_cache const* cache = caches_; cache != nullptr; cache = cache->next) {
    std::size_t cached = 0, spare_bytes = 0;
    for (std::size_t i = 0; i < classes_.count(); ++i) {
      const auto check_list = [&](detail::free_block* first, std::size_t blocks) {
        std::size_t listed = 0;
        for (detail::free_block* block = first; block != nullptr; block = detail::next_of(block)) {
          require(store_.is_block_of(block, i), "a listed block is one of a slab of its class");
          ++listed;
        }
        require(listed == blocks, "listed == net_received + deallocations - allocations");
        cached += listed * classes_.bytes(i);
      };
      check_list(cache->blocks.at(i).free, cache->blocks.at(i).listed_blocks());
      cache->spares[i].for_each([&](detail::block_chain chain) { check_list(chain.first, chain.blocks); });
      spare_bytes += cache->spares[i].blocks() * classes_.bytes(i);
    }
    require(cached == cache->blocks.cached_bytes(), "cached_bytes == sum over a thread's free blocks");
    require(spare_bytes == cache->spare_bytes, "spare_bytes == sum over spare lists");
  }
  if (cache_count_ > 0) {
    std::size_t at_peak = shared_bytes_;
    for (detail::thread_cache const* cache = caches_; cache != nullptr; cache = cache->next) {
      at_peak += cache->bytes_at_peak;
    }
    // A chain may have been on its way while somebody looked.
    const std::size_t missed_by_each = cache_count_ > 1 ? 2 * unnoticed_bytes + chain_bytes_max() : 0;
    require(at_peak <= peak_cached_bytes_ + missed_by_each * cache_count_,
            "sum over caches of bytes_at_peak + shared_bytes <= peak_cached_bytes + 192 KiB * threads");
  }
  require(now.held_bytes == now.bytes_allocated + now.bytes_cached + now.bytes_stranded,
          "held == allocated + cached + stranded");
  require(now.bytes_cached <= now.peak_cached_bytes, "bytes_cached <= peak_cached_bytes");
  require(now.bytes_requested <= now.bytes_allocated, "bytes_requested <= bytes_allocated");
}

}  // namespace tidemark
