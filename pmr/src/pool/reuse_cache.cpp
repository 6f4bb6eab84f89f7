// SPDX-License-Identifier: Apache-2.0
#include <tidemark/pool/reuse_cache.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>
#include <new>
#include <utility>

#include <tidemark/core/detail/block_ledger.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/pool/global_pool.hpp>

#include "../core/default_upstream.hpp"

namespace tidemark {
namespace {

// Number of fences that a deallocation queries if there is a limit. A deallocation adds at most one pending
// block, so the number of pending blocks falls, also of sizes that are no longer requested.
constexpr std::size_t looks_per_deallocation = 2;
// Under a small limit each deallocation queries fences. Under a large limit, as by default, queries begin
// once as many bytes are kept. Without a limit early knowledge of a ready block has no benefit.
std::size_t look_from_bytes(reuse_cache_options const& options) noexcept {
  if (options.max_blocks_per_size != 0) return 0;
  const std::size_t limit = options.max_cached_bytes;
  if (limit == 0) return std::numeric_limits<std::size_t>::max();
  return limit < reuse_cache_options{}.max_cached_bytes ? 0 : limit;
}

reuse_cache_options completed(reuse_cache_options options) noexcept {
  options.upstream = detail::or_default(options.upstream);
  options.name = detail::name_or(options.name, reuse_cache_options{}.name);
  if (options.bookkeeping == nullptr) options.bookkeeping = std::pmr::new_delete_resource();
  return options;
}

}  // namespace

reuse_cache::reuse_cache(reuse_cache_options const& options)
    : options_{completed(options)},
      look_from_bytes_{look_from_bytes(options)},
      kept_{options_.max_cached_bytes, options_.max_blocks_per_size, options_.bookkeeping},
      counts_{.name = options_.name} {
  if (options_.relief.call == nullptr)
    pressure_ = detail::call_under_pressure(this, [this] { respond_to_pressure(); });
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
  mutex_.leave();
  // In a child, blocks of missing threads are not leaks.
  if (check_level >= 2 && !is_in_child_) detail::report_leak("reuse_cache", name(), ledger_);
  (void)collect(true);
}

void* reuse_cache::allocate(std::size_t bytes, std::size_t align) {
  if constexpr (check_level >= 2) detail::require_power_of_two("reuse_cache", name(), align);
  void* block = take_kept(bytes, align);
  if (block == nullptr) block = take_new(bytes, align);
  if constexpr (check_level >= 2) track(block, bytes, align);
  return block;
}

void* reuse_cache::take_kept(std::size_t bytes, std::size_t align) noexcept {
  {
    const std::scoped_lock lock{mutex_};
    if (detail::kept_block* const ready = kept_.take_ready(bytes, align)) return hit(*ready);
    if (!kept_.has_pending(bytes, align)) return nullptr;
  }
  return take_done(bytes, align);
}

// Locks anew, because `query_scope` may take long.
void* reuse_cache::take_done(std::size_t bytes, std::size_t align) noexcept {
  reuse_fence finished;  // declared before the lock, and so destroyed after it
  void* block = nullptr;
  query([&]() noexcept {
    std::unique_lock lock{mutex_};
    detail::kept_block* const taken = kept_.take(bytes, align, lock);
    if (taken == nullptr) return;
    finished = std::move(taken->fence);
    block = hit(*taken);
  });
  return block;
}

void* reuse_cache::hit(detail::kept_block& taken) noexcept {
  kept_.recycle(taken);
  ++counts_.hits;
  count_allocation(taken.bytes);
  return taken.block;
}

template <class Queries>
void reuse_cache::query(Queries queries) noexcept {
  reuse_query_scope const& scope = options_.query_scope;
  if (scope.call == nullptr) return queries();
  scope.call(scope.context, [](void* state) noexcept { (*static_cast<Queries*>(state))(); }, &queries);
}

void* reuse_cache::take_new(std::size_t bytes, std::size_t align) {
  collect_if_posted();
  try {
    void* const block = ask_upstream(bytes, align);
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

void* reuse_cache::ask_upstream(std::size_t bytes, std::size_t align) {
  // No resource has this many bytes; calling the upstream would only flush the cache.
  if (bytes > detail::max_block_bytes) throw std::bad_alloc{};
  for (int refusals = 1;; ++refusals) {
    try {
      return options_.upstream->allocate(bytes, align);
    } catch (std::bad_alloc const&) {
      if (!make_room(refusals)) throw;
    }
  }
}

// Kept blocks may be the memory that the upstream lacks. First returns blocks without waiting, then all
// blocks.
bool reuse_cache::make_room(int refusals) noexcept {
  if (options_.relief.call != nullptr) return refusals == 1 && options_.relief.call(options_.relief.context);
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
    if (!ledger_.remove(late, "reuse_cache", name(), block, bytes, align)) return;
  }
  give(block, bytes, align, std::move(fence));
}

void reuse_cache::give(void* block, std::size_t bytes, std::size_t align, reuse_fence fence) noexcept {
  std::array<reuse_fence, looks_per_deallocation> finished;
  detail::kept_chain leaving;
  void const* const order = fence.order();
  bool is_kept = false, must_look = false;
  // Needs `mutex_`.
  const auto keep = [&]() noexcept {
    ++counts_.deallocations;
    --counts_.used_blocks;
    counts_.used_bytes -= bytes;
    is_kept = kept_.keep(block, bytes, align, fence, order, leaving);
  };
  {
    const std::scoped_lock lock{mutex_};
    must_look = kept_.has_pending() && kept_.ready_bytes() + kept_.pending_bytes() >= look_from_bytes_;
    if (!must_look) keep();
  }
  if (must_look) {  // before `keep`, because blocks found done have been free for longer
    query([&]() noexcept {
      std::unique_lock lock{mutex_};
      kept_.look(finished, leaving, lock);
    });
    const std::scoped_lock lock{mutex_};
    keep();
  }
  (void)return_to_upstream(leaving);
  collect_if_posted();
  if (!is_kept) {
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

std::size_t reuse_cache::return_to_upstream(detail::kept_chain& leaving) noexcept {
  if (leaving.empty()) return 0;
  std::size_t bytes = 0;
  for (detail::kept_block* block = leaving.front(); block != nullptr;
       block = detail::kept_chain::after(*block)) {
    return_to_upstream(block->block, block->bytes, block->align, block->fence);
    bytes += block->bytes;
  }
  const std::scoped_lock lock{mutex_};
  counts_.held_bytes -= bytes;
  kept_.recycle(leaving);
  return bytes;
}

std::size_t reuse_cache::collect(bool force) noexcept {
  must_collect_.store(false, std::memory_order_relaxed);
  detail::kept_chain leaving;
  bool must_query = false;
  {
    const std::scoped_lock lock{mutex_};
    kept_.take_out_ready(leaving);
    if (force) kept_.take_out_pending(leaving);
    must_query = kept_.has_pending();
  }
  if (must_query) {
    query([&]() noexcept {
      std::unique_lock lock{mutex_};
      kept_.take_out_done(leaving, lock);
    });
  }
  return return_to_upstream(leaving);
}

reuse_cache_stats reuse_cache::stats() const noexcept {
  const std::scoped_lock lock{mutex_};
  reuse_cache_stats now = counts_;
  now.cached_bytes = kept_.ready_bytes();
  now.peak_cached_bytes = kept_.peak_ready_bytes();
  now.pending_bytes = kept_.pending_bytes();
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
    return kept_.broken_invariant();
  }();
  require.report(broken);
}

// ---- level 2 ----------------------------------------------------------------------------------------------

void reuse_cache::track(void* block, std::size_t bytes, std::size_t align) {
  try {
    const std::scoped_lock lock{ledger_mutex_};
    ledger_.add({block, bytes, align});
  } catch (...) {
    give(block, bytes, align, {});
    throw;
  }
}

}  // namespace tidemark
