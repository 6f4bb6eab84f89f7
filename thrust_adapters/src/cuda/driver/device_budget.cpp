// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/driver/device_budget.hpp>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu {
namespace {

// Guards against recursion: a resource must not trigger another relief while it returns memory.
thread_local bool is_relieving = false;

}  // namespace

device_budget::relief_pause::relief_pause() noexcept : before_{std::exchange(is_relieving, true)} {}
device_budget::relief_pause::~relief_pause() { is_relieving = before_; }

device_budget::subscription device_budget::add_member(std::function<bool()> release_idle_memory,
                                                      member_kind kind) {
  auto made = std::make_shared<entry>(std::move(release_idle_memory), kind);
  const std::scoped_lock lock{mutex_};
  entries_.push_back(made);
  subscription result;
  result.entry_ = {made.get(), {this}};
  return result;
}

void device_budget::end(entry const* ended) noexcept {
  std::shared_ptr<entry> last;  // a call on another thread may need it longer
  {
    const std::scoped_lock lock{mutex_};
    const auto found = std::ranges::find(entries_, ended, &std::shared_ptr<entry>::get);
    last = std::move(*found);
    entries_.erase(found);
  }
  last->gate.close();
}

device_budget::pool_membership device_budget::add_pool(driver& calls, ::CUmemPoolHandle_st* pool) {
  auto made = std::make_shared<detail::counted_pool>(&calls, pool);
  const std::scoped_lock lock{mutex_};
  pools_.push_back(made);
  pool_membership result;
  result.pool_ = {made.get(), {this}};
  return result;
}

// Resources may keep the record longer than the pool exists.
void device_budget::end(detail::counted_pool const* ended) noexcept {
  const std::scoped_lock lock{mutex_};
  pools_.erase(std::ranges::find(pools_, ended, &std::shared_ptr<detail::counted_pool>::get));
}

std::shared_ptr<detail::counted_pool> device_budget::find_pool(::CUmemPoolHandle_st* pool) const noexcept {
  const std::scoped_lock lock{mutex_};
  const auto found = std::ranges::find(pools_, pool, &detail::counted_pool::pool);
  return found != pools_.end() ? *found : nullptr;
}

std::size_t device_budget::held_bytes() const noexcept {
  std::size_t held = counted_.load(std::memory_order_relaxed);
  const std::scoped_lock lock{mutex_};
  for (auto const& each : pools_) {
    const detail::relaxed_mode querying{*each->calls};
    std::size_t reserved = 0;
    if (each->calls->pool_reserved_bytes(each->pool, reserved) != status::success) continue;
    held += reserved - std::min(reserved, each->live_bytes.load(std::memory_order_relaxed));
  }
  return held;
}

bool device_budget::try_add_bytes(std::size_t bytes, detail::counted_pool* of) noexcept {
  std::size_t counted = counted_.load(std::memory_order_relaxed);
  do {
    const std::size_t limit = this->limit();
    if (counted > limit || bytes > limit - counted) return false;
  } while (!counted_.compare_exchange_weak(counted, counted + bytes, std::memory_order_relaxed));
  if (of != nullptr) of->live_bytes.fetch_add(bytes, std::memory_order_relaxed);
  if (!trim_to_limit()) {
    subtract_bytes(bytes, of);
    return false;
  }
  return true;
}

void device_budget::update_peak() noexcept {
  const std::size_t counted = counted_.load(std::memory_order_relaxed);
  std::size_t peak = peak_bytes();
  while (peak < counted && !peak_.compare_exchange_weak(peak, counted, std::memory_order_relaxed)) {
  }
}

// Users first, because the driver frees only memory whose last use has been awaited. Users may end before
// their pool.
bool device_budget::relieve_pools(entry const* but) noexcept {
  const bool users = call_members(member_kind::pool_user, but);
  bool trimmed = false;
  const std::scoped_lock lock{mutex_};
  for (auto const& each : pools_) {
    const detail::relaxed_mode trimming{*each->calls};
    std::size_t before = 0, after = 0;
    const bool is_trimmed = each->calls->pool_reserved_bytes(each->pool, before) == status::success &&
                            each->calls->trim_pool(each->pool, 0) == status::success &&
                            each->calls->pool_reserved_bytes(each->pool, after) == status::success;
    trimmed |= is_trimmed && after < before;
  }
  return users || trimmed;
}

bool device_budget::trim_pools() noexcept {
  if (std::exchange(is_relieving, true)) return false;
  const bool any = relieve_pools(nullptr);
  is_relieving = false;
  return any;
}

// A second thread waits for a resource that returns memory. It does not wait for a user's callback, which may
// wait for that thread.
bool device_budget::enter(entry& next) noexcept {
  while (!next.gate.enter()) {
    if (next.kind == member_kind::callback || next.gate.is_closed() || !next.gate.wait()) return false;
  }
  return true;
}

bool device_budget::call_members(member_kind kind, entry const* but) noexcept {
  std::vector<std::shared_ptr<entry>> members;
  try {
    const std::scoped_lock lock{mutex_};
    members.assign(entries_.begin(), entries_.end());
  } catch (...) {  // the host has no memory either
    return false;
  }
  bool any = false;
  for (std::shared_ptr<entry> const& each : members) {
    if (each.get() == but || each->kind != kind || !enter(*each)) continue;
    any = each->call() || any;
    each->gate.unlock();
  }
  return any;
}

// A callback returns its memory to a cache or a pool, which is called again afterwards.
bool device_budget::relieve(subscription const* requester) noexcept {
  if (std::exchange(is_relieving, true)) return false;
  entry const* const but = requester != nullptr ? requester->entry_.get() : nullptr;
  const auto relieve_resources = [&] {
    const bool resources = call_members(member_kind::resource, but);
    return relieve_pools(but) || resources;
  };
  bool any = relieve_resources();
  if (call_members(member_kind::callback, but)) {
    (void)relieve_resources();
    any = true;
  }
  is_relieving = false;
  return any;
}

}  // namespace tidemark::gpu
