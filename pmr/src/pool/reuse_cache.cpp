// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/reuse_cache.hpp>

#include <algorithm>
#include <functional>
#include <limits>
#include <mutex>
#include <new>
#include <utility>

#include <tidemark/core/detail/block_ledger.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/pool/detail/reuse_cache_owner.hpp>
#include <tidemark/pool/global_pool.hpp>

#include "cached_blocks.hpp"

namespace tidemark {
namespace {

// Fences that are not done and that one call queries. A deallocation adds at most one such fence.
constexpr std::size_t max_unfinished_of_request = 32;
constexpr std::size_t max_unfinished_of_deallocation = 2;

reuse_cache_options completed(reuse_cache_options options) noexcept {
  options.upstream = detail::or_default(options.upstream);
  options.name = detail::name_or(options.name, reuse_cache_options{}.name);
  if (options.bookkeeping == nullptr) options.bookkeeping = std::pmr::new_delete_resource();
  return options;
}

}  // namespace

reuse_cache::reuse_cache(reuse_cache_options const& options, detail::reuse_cache_owner* owner)
    : options_{completed(options)},
      owner_{owner},
      counts_{.name = options_.name},
      cached_{std::make_unique<detail::cached_blocks>(options_, counts_)} {
  if (owner_ == nullptr) pressure_ = detail::call_under_pressure(this, [this] { respond_to_pressure(); });
  const std::scoped_lock lock{mutex_};
  mutex_.adapt_with(*this);
}

void reuse_cache::respond_to_pressure() noexcept {
  if (options_.upstream == std::pmr::new_delete_resource() || options_.upstream == &global_pool())
    (void)collect(false);
  else must_collect_.store(true, std::memory_order_relaxed);
}

reuse_cache::~reuse_cache() {
  pressure_ = {};
  mutex_.deregister();
  // A child does not report leaks, because threads that it lacks may still own blocks.
  if (check_level >= 2 && !is_in_child_) detail::report_leak("reuse_cache", name(), ledger_);
  (void)collect(true);
}

void* reuse_cache::allocate(std::size_t bytes, std::size_t align) {
  if constexpr (check_level >= 2) detail::require_power_of_two("reuse_cache", name(), align);
  void* block = allocate_cached(bytes, align);
  if (block == nullptr) block = allocate_new(bytes, align);
  if constexpr (check_level >= 2) track(block, bytes, align);
  return block;
}

void* reuse_cache::allocate_cached(std::size_t bytes, std::size_t align) noexcept {
  const detail::cached_size wanted{bytes, align};
  {
    const std::scoped_lock lock{mutex_};
    void* const ready = cached_->pop_ready(wanted);
    if (ready != nullptr) count_allocation(bytes);
    if (ready != nullptr || !cached_->has_pending(wanted)) return ready;
  }
  void* block = nullptr;
  detail::cached_list evicted = cached_->new_list();
  query([&]() noexcept {  // without the lock: the scope may take long
    std::unique_lock lock{mutex_};
    block = cached_->poll(max_unfinished_of_request, &wanted, evicted, lock);
    if (block != nullptr) count_allocation(bytes);
  });
  (void)return_to_upstream(evicted);
  return block;
}

void reuse_cache::adapt_to_child() noexcept {
  is_in_child_ = true;
  cached_->recount_pending();
}

template <class Queries>
void reuse_cache::query(Queries queries) noexcept {
  if (owner_ == nullptr) return queries();
  owner_->query(std::ref(queries));
}

void* reuse_cache::allocate_new(std::size_t bytes, std::size_t align) {
  collect_if_posted();
  try {
    void* const block = allocate_with_retries(bytes, align);
    const std::scoped_lock lock{mutex_};
    ++counts_.misses;
    counts_.held_bytes += bytes;
    count_allocation(bytes);
    return block;
  } catch (...) {
    const std::scoped_lock lock{mutex_};
    ++counts_.refused;
    throw;
  }
}

void* reuse_cache::allocate_with_retries(std::size_t bytes, std::size_t align) {
  // No resource has this many bytes. A call would only empty the caches of the upstream.
  if (bytes > detail::max_block_bytes) throw std::bad_alloc{};
  for (int refusals = 1;; ++refusals) {
    try {
      return options_.upstream->allocate(bytes, align);
    } catch (std::bad_alloc const&) {
      if (!make_room(refusals)) throw;
    }
  }
}

// Returns cached blocks, because the upstream may need their memory. The first call returns blocks that need
// no wait, the second call all blocks.
bool reuse_cache::make_room(int refusals) noexcept {
  if (owner_ != nullptr) return refusals == 1 && owner_->relieve();
  if (refusals > 2) return false;
  (void)collect(refusals == 2);
  return true;
}

void reuse_cache::count_allocation(std::size_t bytes) noexcept {
  ++counts_.allocations;
  ++counts_.used_blocks;
  counts_.used_bytes += bytes;
  counts_.peak_blocks = std::max(counts_.peak_blocks, counts_.used_blocks);
  counts_.peak_bytes = std::max(counts_.peak_bytes, counts_.used_bytes);
}

void reuse_cache::deallocate_after(void* block, std::size_t bytes, std::size_t align,
                                   reuse_fence fence) noexcept {
  if (block == nullptr) return;
  if constexpr (check_level >= 2) {
    detail::late_reports late;
    const std::scoped_lock lock{ledger_mutex_};
    if (!ledger_.remove("reuse_cache", name(), block, bytes, align)) return;
  }
  cache_or_return(block, bytes, align, std::move(fence));
}

void reuse_cache::cache_or_return(void* block, std::size_t bytes, std::size_t align,
                                  reuse_fence fence) noexcept {
  detail::cached_list evicted = cached_->new_list();
  void const* const order = fence.order();
  bool is_cached = false, must_poll = false;
  // With `mutex_` held.
  const auto add_to_cache = [&]() noexcept {
    ++counts_.deallocations;
    --counts_.used_blocks;
    counts_.used_bytes -= bytes;
    is_cached = cached_->add(block, {bytes, align}, fence, order, evicted);
  };
  {
    const std::scoped_lock lock{mutex_};
    must_poll = cached_->has_pending() &&
                (options_.max_cached_bytes == 0
                     ? options_.max_blocks_per_size != 0  // sizes that are never requested again
                     : counts_.cached_bytes + counts_.pending_bytes >= options_.max_cached_bytes);
    if (!must_poll) add_to_cache();
  }
  if (must_poll) {  // first, because blocks found to be done have been free for longer
    query([&]() noexcept {
      std::unique_lock lock{mutex_};
      (void)cached_->poll(max_unfinished_of_deallocation, nullptr, evicted, lock);
    });
    const std::scoped_lock lock{mutex_};
    add_to_cache();
  }
  (void)return_to_upstream(evicted);
  collect_if_posted();
  if (!is_cached) {
    return_to_upstream(block, bytes, align, fence);
    const std::scoped_lock lock{mutex_};
    counts_.held_bytes -= bytes;
  }
}

void reuse_cache::return_to_upstream(void* block, std::size_t bytes, std::size_t align,
                                     reuse_fence& fence) const noexcept {
  fence.wait();
  fence.reset();
  options_.upstream->deallocate(block, bytes, align);
}

std::size_t reuse_cache::return_to_upstream(detail::cached_list& evicted) noexcept {
  if (evicted.empty()) return 0;
  std::size_t bytes = 0;
  for (detail::cached_block& block : evicted) {
    return_to_upstream(block.block, block.size.bytes, block.size.align, block.fence);
    bytes += block.size.bytes;
  }
  const std::scoped_lock lock{mutex_};
  counts_.held_bytes -= bytes;
  cached_->recycle(evicted);
  return bytes;
}

std::size_t reuse_cache::collect(bool force) noexcept {
  must_collect_.store(false, std::memory_order_relaxed);
  detail::cached_list evicted = cached_->new_list();
  bool must_query = false;
  {
    const std::scoped_lock lock{mutex_};
    cached_->remove_all_ready(evicted);
    if (force) cached_->remove_all_pending(evicted);
    must_query = cached_->has_pending();
  }
  if (must_query) {
    query([&]() noexcept {
      std::unique_lock lock{mutex_};
      (void)cached_->poll(std::numeric_limits<std::size_t>::max(), nullptr, evicted, lock);
      cached_->remove_all_ready(evicted);
    });
  }
  return return_to_upstream(evicted);
}

reuse_cache_stats reuse_cache::stats() const noexcept {
  const std::scoped_lock lock{mutex_};
  reuse_cache_stats now = counts_;
  now.hits = now.allocations - now.misses;
  return now;
}

void reuse_cache::check_invariants() const noexcept {
  const detail::invariant_check require{"reuse_cache", name()};
  const reuse_cache_stats now = stats();
  require(now.deallocations <= now.allocations, "deallocations <= allocations");
  require(now.used_blocks <= now.peak_blocks, "used_blocks <= peak_blocks");
  require(now.used_bytes <= now.peak_bytes, "used_bytes <= peak_bytes");
  const std::size_t known_bytes = now.used_bytes + now.cached_bytes + now.pending_bytes;
  require(is_in_child_ ? now.held_bytes >= known_bytes : now.held_bytes == known_bytes,
          "held_bytes == used_bytes + cached_bytes + pending_bytes");
  char const* const broken = [&] {
    const std::scoped_lock lock{mutex_};
    return cached_->broken_invariant();
  }();
  require.report(broken);
}

// ---- level 2 ----------------------------------------------------------------------------------------------

void reuse_cache::track(void* block, std::size_t bytes, std::size_t align) {
  try {
    const std::scoped_lock lock{ledger_mutex_};
    ledger_.add({block, bytes, align});
  } catch (...) {
    cache_or_return(block, bytes, align, {});
    throw;
  }
}

}  // namespace tidemark
