// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool.hpp>

#include <algorithm>
#include <limits>
#include <new>

#include <tidemark/detail/identity.hpp>
#include <tidemark/violation.hpp>

#include "default_upstream.hpp"
#include "pool_setup.hpp"
#include "require.hpp"

namespace tidemark {

pool::pool(pool_options const& options, std::pmr::memory_resource* upstream)
    : cache_{detail::size_classes{options.name, options.bucket_bytes}},
      store_{cache_.classes(), detail::or_default(upstream), options.max_blocks_per_slab},
      large_{store_.upstream()},
      options_{detail::completed(options, cache_.classes(), store_.upstream())},
      trim_times_{options.max_cached_bytes} {
  cache_.add_cached(detail::preallocate(store_, cache_.classes(), options, options.max_cached_bytes));
  note_cached();
  pressure_ = on_memory_pressure([this] { cache_.request_attention(); });
}

pool::pool(std::pmr::pool_options const& options, std::pmr::memory_resource* upstream)
    : pool{detail::from_standard(options), upstream} {}

pool::~pool() = default;

// What is cached may be what the upstream lacks: it goes back, and the upstream is asked once more.
template <class Ask>
auto pool::ask_upstream(Ask ask) {
  try {
    return ask();
  } catch (std::bad_alloc const&) {
    if (release_free_slabs(0) == 0) throw;
  }
  return ask();
}

void* pool::allocate_slow(std::size_t bytes, std::size_t align) {
  if (cache_.wants_attention()) attend();
  const std::size_t index = cache_.classes().index_of(bytes, align);
  if (index == detail::size_classes::none) return allocate_large(bytes, align);
  detail::block_cache::bucket& bucket = cache_.at(index);
  if (bucket.free == nullptr) refill(index);
  void* const block = cache_.take_from(bucket, bytes);
  if (cache_.cached_bytes() > options_.max_cached_bytes)
    trim_to(options_.max_cached_bytes);  // a new slab's rest
  note_cached();
  return block;
}

void pool::deallocate_slow(void* block, std::size_t bytes, std::size_t align, detail::given result) noexcept {
  if (cache_.wants_attention()) attend();
  if (result == detail::given::not_fast) {
    const std::size_t index = cache_.classes().index_of(bytes, align);
    if (index == detail::size_classes::none) {
      deallocate_large(block, bytes);
      return;
    }
    (void)cache_.give_to(cache_.at(index), block, bytes);
  }
  make_room();
  if (cache_.cached_bytes() > trim_due_at()) trim_to(trim_times_.target_bytes());
  note_cached();
}

void* pool::allocate_large(std::size_t bytes, std::size_t align) {
  void* block = large_.take(bytes, align);
  if (block != nullptr) {
    cache_.subtract_cached(detail::large_blocks::bytes_of(block));
    note_cached();
  } else {
    block = ask_upstream([&] { return large_.allocate(bytes, align); });
    ++of_large_.misses;
  }
  ++of_large_.allocations;
  return block;
}

void pool::deallocate_large(void* block, std::size_t bytes) noexcept {
  ++of_large_.deallocations;
  const std::size_t kept =
      large_.deallocate(block, bytes, options_.keep_large_blocks ? options_.max_cached_bytes : 0);
  if (kept == 0) return;
  const std::size_t cached = cache_.cached_bytes() + kept;
  // Before it is counted, so that there are never more cached than there may be.
  std::size_t gone = 0;
  if (cached > options_.max_cached_bytes) gone = large_.release_kept(cached - options_.max_cached_bytes);
  cache_.add_cached(kept - gone);
  note_cached();
}

// More is cached than may be. Large blocks go first, each of which goes back alone, and one in sixteen bytes
// more than must, so that the next blocks freed find room.
void pool::make_room() noexcept {
  if (cache_.cached_bytes() <= options_.max_cached_bytes) return;
  const std::size_t target = options_.max_cached_bytes - options_.max_cached_bytes / 16;
  cache_.subtract_cached(large_.release_kept(cache_.cached_bytes() - target));
}

// Puts blocks into an empty list: those of a slab that is there, or of a new one.
void pool::refill(std::size_t index) {
  detail::block_cache::bucket& bucket = cache_.at(index);
  const std::size_t room =
      options_.max_cached_bytes - std::min(cache_.cached_bytes(), options_.max_cached_bytes);
  detail::block_chain chain = store_.carve(index, options_.max_cached_bytes);
  if (chain.blocks == 0) {
    chain = store_.take_stranded(index, room + bucket.block_bytes);
    cache_.add_cached(chain.blocks * bucket.block_bytes);
  }
  if (chain.blocks == 0) {
    cache_.add_cached(
        ask_upstream([&] { return store_.add_slab(index, 0, std::numeric_limits<std::size_t>::max()); }));
    ++misses_;
    chain = store_.carve(index, options_.max_cached_bytes);
  }
  cache_.put(bucket, chain);
}

void pool::attend() noexcept {
  if (cache_.attend()) (void)release_free_slabs(0);
}

void pool::note_cached() noexcept {
  peak_cached_bytes_ = std::max(peak_cached_bytes_, cache_.cached_bytes());
  cache_.set_watermark(std::min(peak_cached_bytes_, trim_due_at()));
}

std::size_t pool::live_bytes() const noexcept {
  return store_.held_bytes() - store_.stranded_bytes() - (cache_.cached_bytes() - large_.kept_bytes());
}

std::size_t pool::trim_due_at() const noexcept {
  return trim_times_.due_at(cache_.cached_bytes(), live_bytes(), store_.stranded_bytes());
}

void pool::account(std::size_t index, detail::slab_store::trimmed gone) noexcept {
  detail::block_cache::bucket& bucket = cache_.at(index);
  bucket.net_received -= gone.listed;
  cache_.subtract_cached((gone.listed + gone.uncarved) * bucket.block_bytes);
}

// Both start with the largest blocks, of which the fewest need to be touched.
std::size_t pool::release_free_slabs(std::size_t target_bytes) noexcept {
  const std::size_t held_before = held_bytes();
  if (cache_.cached_bytes() > target_bytes) {
    cache_.subtract_cached(large_.release_kept(cache_.cached_bytes() - target_bytes));
  }
  const auto free_bytes = [&] { return cache_.cached_bytes() + store_.stranded_bytes(); };
  for (std::size_t i = cache_.classes().count(); i-- > 0 && free_bytes() > target_bytes;) {
    account(i, store_.release_free_slabs(i, cache_.at(i).free, free_bytes() - target_bytes));
  }
  return held_before - held_bytes();
}

void pool::strand(std::size_t target_bytes) noexcept {
  for (std::size_t i = cache_.classes().count(); i-- > 0 && cache_.cached_bytes() > target_bytes;) {
    account(i, store_.strand(i, cache_.at(i).free, cache_.cached_bytes() - target_bytes));
  }
}

std::size_t pool::trim_to(std::size_t target_bytes) noexcept {
  const std::size_t returned = release_free_slabs(target_bytes);
  strand(target_bytes);
  trim_times_.trimmed(live_bytes());
  return returned;
}

std::size_t pool::trim(std::size_t target_bytes) noexcept {
  if constexpr (check_level >= 2) before_use("trim");
  const std::size_t returned = trim_to(target_bytes);
  note_cached();
  return returned;
}

void pool::release() noexcept {
  if constexpr (check_level >= 2) {
    before_use("release");
    ledger_.clear();
  }
  large_.release();
  store_.release();
  cache_.forget();
  of_large_.deallocations = of_large_.allocations;
  trim_times_.trimmed(0);
}

pool::counts pool::totals() const noexcept {
  counts total{of_large_.allocations, of_large_.deallocations, of_large_.misses + misses_};
  for (std::size_t i = 0; i < cache_.classes().count(); ++i) {
    total.allocations += cache_.at(i).allocations.value();
    total.deallocations += cache_.at(i).deallocations.value();
  }
  return total;
}

pool_stats pool::stats() const noexcept {
  const counts total = totals();
  pool_stats stats{.name = options_.name,
                   .allocations = total.allocations - at_reset_.allocations,
                   .deallocations = total.deallocations - at_reset_.deallocations,
                   .pool_misses = total.misses - at_reset_.misses,
                   .used_blocks = total.allocations - total.deallocations,
                   .bytes_requested = cache_.requested_bytes() + large_.requested_bytes(),
                   .bytes_cached = cache_.cached_bytes(),
                   .peak_cached_bytes = peak_cached_bytes_,
                   .bytes_stranded = store_.stranded_bytes(),
                   .held_bytes = held_bytes()};
  stats.pool_hits = stats.allocations - stats.pool_misses;
  stats.bytes_allocated = stats.held_bytes - stats.bytes_cached - stats.bytes_stranded;
  stats.used_bytes = stats.bytes_allocated;
  return stats;
}

void pool::reset_stats() noexcept {
  at_reset_ = totals();
  peak_cached_bytes_ = 0;
  note_cached();
}

// ---- level 2 ----------------------------------------------------------------------------------------------

void pool::before_use(char const* operation) const noexcept {
  const unsigned long long thread = detail::this_thread_number();
  if (owner_thread_ == 0) owner_thread_ = thread;
  if (owner_thread_ == thread) return;
  detail::report_violation(violation_kind::wrong_thread, name(),
                           "pool '%s': %s on a thread that does not own the pool; see hand_over()", name(),
                           operation);
}

void* pool::allocate_checked(std::size_t bytes, std::size_t align) {
  before_use("allocate");
  detail::require_power_of_two("pool", name(), align);
  void* block = cache_.take(bytes, align);
  if (block == nullptr) block = allocate_slow(bytes, align);
  try {
    ledger_.add(block, {bytes, align});
  } catch (...) {
    const detail::given result = cache_.give(block, bytes, align);
    if (result != detail::given::kept) deallocate_slow(block, bytes, align, result);
    throw;
  }
  return block;
}

bool pool::may_deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
  before_use("deallocate");
  return ledger_.remove("pool", name(), block, bytes, align).has_value();
}

void pool::check_invariants() const noexcept {
  const auto require = [this](bool holds, char const* formula) {
    if (!holds) {
      detail::report_violation(violation_kind::invariant, name(), "pool '%s': broken invariant: %s", name(),
                               formula);
    }
  };
  if (char const* formula = store_.broken_invariant()) require(false, formula);
  if (char const* formula = large_.broken_invariant()) require(false, formula);
  std::size_t cached = store_.uncarved_bytes() + large_.kept_bytes(), handed_out = large_.used_bytes();
  for (std::size_t i = 0; i < cache_.classes().count(); ++i) {
    detail::block_cache::bucket const& bucket = cache_.at(i);
    std::size_t listed = 0;
    for (detail::free_block* block = bucket.free; block != nullptr; block = detail::next_of(block)) {
      require(store_.is_block_of(block, i), "a listed block is one of a slab of its class");
      ++listed;
    }
    require(listed == bucket.listed_blocks(), "listed == net_received + deallocations - allocations");
    cached += listed * bucket.block_bytes;
    handed_out += (bucket.allocations.value() - bucket.deallocations.value()) * bucket.block_bytes;
  }
  const pool_stats now = stats();
  require(cached == now.bytes_cached, "bytes_cached == sum over free blocks");
  require(handed_out == now.bytes_allocated, "bytes_allocated == sum over blocks handed out");
  require(now.bytes_cached <= now.peak_cached_bytes, "bytes_cached <= peak_cached_bytes");
  require(now.bytes_cached <= options_.max_cached_bytes, "bytes_cached <= max_cached_bytes");
  require(now.bytes_requested <= now.bytes_allocated, "bytes_requested <= bytes_allocated");
  require(now.pool_misses <= now.allocations, "pool_misses <= allocations");
}

}  // namespace tidemark
