// SPDX-License-Identifier: Apache-2.0
// The caches that the calling thread has of pools.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/pool/synchronized_pool.hpp>

namespace tidemark::detail {

/// What threads that used a pool have of it: they may outlive it.
struct pool_anchor {
  explicit pool_anchor(synchronized_pool& of) noexcept : pool{&of} {}

  fork_safe<> mutex;  // held while a thread that ends leaves its cache, and to change `pool`
  std::atomic<synchronized_pool*> pool;  // null: it is gone
};

/// All caches of a thread; when it ends, they go to their pools.
class thread_cache_registry {
 public:
  thread_cache_registry() = default;
  thread_cache_registry(thread_cache_registry const&) = delete;
  thread_cache_registry& operator=(thread_cache_registry const&) = delete;
  ~thread_cache_registry() {
    cache_slots = {};
    for (entry const& each : entries_) {
      const std::scoped_lock lock{each.anchor->mutex};
      if (synchronized_pool* const pool = each.anchor->pool) pool->end(*each.cache);
    }
  }

  /// The cache of a pool; null if there is none.
  [[nodiscard]] thread_cache* find(std::shared_ptr<pool_anchor> const& anchor) const noexcept {
    const auto found = std::ranges::find(entries_, anchor, &entry::anchor);
    return found != entries_.end() ? found->cache : nullptr;
  }
  /// What belongs to pools that are gone is dropped before more memory is taken.
  /// @throws std::bad_alloc; the caches of pools that exist are there as before.
  void add(std::shared_ptr<pool_anchor> anchor, thread_cache& cache) {
    if (entries_.size() == entries_.capacity())
      std::erase_if(entries_, [](entry const& each) { return each.anchor->pool == nullptr; });
    entries_.push_back({std::move(anchor), &cache});
  }

 private:
  struct entry {
    std::shared_ptr<pool_anchor> anchor;
    thread_cache* cache;
  };
  std::vector<entry> entries_;
};

}  // namespace tidemark::detail
