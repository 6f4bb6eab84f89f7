// SPDX-License-Identifier: Apache-2.0
#include <tidemark/reuse_cache.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <new>
#include <utility>

#include <tidemark/detail/block_report.hpp>
#include <tidemark/violation.hpp>

#include "default_upstream.hpp"
#include "require.hpp"

namespace tidemark {
namespace {

// How many fences a deallocation asks where there is a limit. More than the one it may bring, so that pending
// blocks get fewer, whose sizes nobody asks for any more.
constexpr std::size_t looks_per_deallocation = 2;

reuse_cache_options completed(reuse_cache_options options) noexcept {
  options.upstream = detail::or_default(options.upstream);
  if (options.bookkeeping == nullptr) options.bookkeeping = std::pmr::new_delete_resource();
  return options;
}

}  // namespace

reuse_cache::reuse_cache(reuse_cache_options const& options)
    : options_{completed(options)}, kept_{options_} {}

reuse_cache::~reuse_cache() {
  if constexpr (check_level >= 2) detail::report_leak("reuse_cache", name(), ledger_);
  (void)collect(true);
}

void* reuse_cache::allocate(std::size_t bytes, std::size_t align) {
  if constexpr (check_level >= 2) detail::require_power_of_two("reuse_cache", name(), align);
  void* block = take_kept(bytes, align);
  if (block == nullptr) block = take_new(bytes, align);
  if constexpr (check_level >= 2) record_handed_out(block, bytes, align);
  return block;
}

void* reuse_cache::take_kept(std::size_t bytes, std::size_t align) noexcept {
  reuse_fence finished;  // before the lock, so that it is destroyed after it
  const std::scoped_lock lock{mutex_};
  detail::kept_block* const taken = kept_.take(bytes, align);
  if (taken == nullptr) return nullptr;
  finished = std::move(taken->fence);
  void* const block = taken->block;
  kept_.recycle(*taken);
  ++hits_;
  count_handed_out(bytes);
  return block;
}

void* reuse_cache::take_new(std::size_t bytes, std::size_t align) {
  try {
    void* const block = ask_upstream(bytes, align);
    const std::scoped_lock lock{mutex_};
    ++misses_;
    held_bytes_ += bytes;
    count_handed_out(bytes);
    return block;
  } catch (...) {
    const std::scoped_lock lock{mutex_};
    ++refused_;
    throw;
  }
}

void* reuse_cache::ask_upstream(std::size_t bytes, std::size_t align) {
  // No resource has so much; asked all the same, one would be flushed for nothing.
  if (bytes > std::size_t{std::numeric_limits<std::ptrdiff_t>::max()}) throw std::bad_alloc{};
  for (int refusals = 1;; ++refusals) {
    try {
      return options_.upstream->allocate(bytes, align);
    } catch (std::bad_alloc const&) {
      if (!make_room(refusals)) throw;
    }
  }
}

// What is kept may be what the upstream lacks: first what costs no wait, then all of it.
bool reuse_cache::make_room(int refusals) noexcept {
  if (options_.relief.call != nullptr) return refusals == 1 && options_.relief.call(options_.relief.context);
  if (refusals > 2) return false;
  (void)collect(refusals == 2);
  return true;
}

void reuse_cache::count_handed_out(std::size_t bytes) noexcept {
  used_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  peak_blocks_ = std::max<std::size_t>(peak_blocks_, hits_ + misses_ - deallocations_);
}

void reuse_cache::deallocate_after(void* block, std::size_t bytes, std::size_t align,
                                   reuse_fence fence) noexcept {
  if constexpr (check_level >= 2) {
    if (!may_deallocate(block, bytes, align)) return;
  }
  give(block, bytes, align, std::move(fence));
}

void reuse_cache::give(void* block, std::size_t bytes, std::size_t align, reuse_fence fence) noexcept {
  std::array<reuse_fence, looks_per_deallocation> finished;
  detail::kept_chain leaving;
  bool is_kept = false;
  {
    const std::scoped_lock lock{mutex_};
    ++deallocations_;
    used_bytes_ -= bytes;
    // Without a limit nothing is won by knowing sooner that a block is ready.
    if (options_.cached_bytes_max != 0 || options_.bucket_blocks_max != 0) kept_.look(finished, leaving);
    is_kept = kept_.keep(block, bytes, align, fence, leaving);
  }
  (void)return_to_upstream(leaving);
  if (!is_kept) {
    return_to_upstream(block, bytes, align, fence);
    const std::scoped_lock lock{mutex_};
    held_bytes_ -= bytes;
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
  held_bytes_ -= bytes;
  kept_.recycle(leaving);
  return bytes;
}

std::size_t reuse_cache::collect(bool force) noexcept {
  detail::kept_chain leaving;
  {
    const std::scoped_lock lock{mutex_};
    kept_.take_out(force, leaving);
  }
  return return_to_upstream(leaving);
}

reuse_cache_stats reuse_cache::stats() const noexcept {
  const std::scoped_lock lock{mutex_};
  return {.name = options_.name,
          .allocations = hits_ + misses_,
          .deallocations = deallocations_,
          .refused = refused_,
          .pool_hits = hits_,
          .pool_misses = misses_,
          .used_blocks = hits_ + misses_ - deallocations_,
          .peak_blocks = peak_blocks_,
          .used_bytes = used_bytes_,
          .peak_bytes = peak_bytes_,
          .bytes_cached = kept_.ready_bytes(),
          .peak_cached_bytes = kept_.peak_ready_bytes(),
          .bytes_pending = kept_.pending_bytes(),
          .held_bytes = held_bytes_};
}

char const* reuse_cache::broken_invariant() const noexcept {
  const reuse_cache_stats now = stats();
  if (now.deallocations > now.allocations) return "deallocations <= allocations";
  if (now.used_blocks > now.peak_blocks) return "used_blocks <= peak_blocks";
  if (now.used_bytes > now.peak_bytes) return "used_bytes <= peak_bytes";
  if (now.held_bytes != now.used_bytes + now.bytes_cached + now.bytes_pending)
    return "held_bytes == used_bytes + bytes_cached + bytes_pending";
  const std::scoped_lock lock{mutex_};
  return kept_.broken_invariant();
}

void reuse_cache::check_invariants() const noexcept {
  if (char const* formula = broken_invariant()) {
    detail::report_violation(violation_kind::invariant, name(), "reuse_cache '%s': broken invariant: %s",
                             name(), formula);
  }
}

// ---- level 2 ----------------------------------------------------------------------------------------------

bool reuse_cache::may_deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
  const std::scoped_lock lock{ledger_mutex_};
  return ledger_.remove("reuse_cache", name(), block, bytes, align).has_value();
}

void reuse_cache::record_handed_out(void* block, std::size_t bytes, std::size_t align) {
  try {
    const std::scoped_lock lock{ledger_mutex_};
    ledger_.add(block, {bytes, align});
  } catch (...) {
    give(block, bytes, align, {});
    throw;
  }
}

}  // namespace tidemark
