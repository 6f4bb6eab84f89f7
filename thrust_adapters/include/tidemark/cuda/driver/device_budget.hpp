// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::device_budget`: how much of a device tidemark's resources hold, and who gives back when it runs
/// out. Owns callbacks.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/core/detail/pressure_callbacks.hpp>

struct CUmemPoolHandle_st;

namespace tidemark::gpu {

class driver;

namespace detail {

/// A pool of the driver's, as a budget counts it.
struct counted_pool {
  driver* calls;
  ::CUmemPoolHandle_st* pool;
  std::atomic<std::size_t> live_bytes{0};  // of its blocks that count in the budget one by one
};

}  // namespace detail

/// Counts and limits the memory that all resources of one `gpu::driver` hold on one device. `driver::budget`
/// returns the budget of a device.
///
/// ```cpp
/// gpu::device_budget& of_device = gpu::default_driver().budget(0);
/// of_device.set_limit(60 * GiB);                        // for all resources together
/// auto asked = of_device.on_exhausted([&] { return drop_some_tensors(); });
/// of_device.relieve();                                  // what torch.cuda.empty_cache() does
/// ```
/// Where the device has no more memory, or the limit is reached, the resource that allocates first returns
/// what it keeps itself. Then every `device_pools` of the device, and every `device_cache` whose memory and
/// records are its own, return what they keep, pending blocks after a wait, and a trim is posted to every
/// `device_pool`, whose thread does it in its next call. Then the driver's pools are trimmed, after a wait
/// for the streams of the resources that allocate from them. Then the callbacks are called, and
/// `device_pools`, caches and the driver's pools are drained once more; then the request is tried once more.
/// Arenas, plans and plain resources do the same from the second step on.
///
/// Resources whose stream is capturing are left out. A capture must not begin on a stream while another
/// thread waits for it here, because the wait would invalidate the capture. Near the limit, or with a full
/// device, any allocation may wait, so a program that captures on one thread and allocates on others leaves
/// some memory free.
///
/// These bytes count: blocks of the driver and handles of virtual memory, with what caches and pools keep of
/// them, and all memory that a `gpu::memory_pool` holds, also free memory that the driver's pool retains.
/// Pinned memory of the host does not count, nor do the device's default pool and what the driver reserves
/// for graphs. Managed memory counts where it was allocated. If memory that pools retain would exceed the
/// limit, they are trimmed; if it still would, the request is refused.
///
/// Invariant: `held_bytes() <= limit()` after each request, unless the limit was lowered below it. A pool
/// grows by as much as the driver chooses, so it may exceed the limit until the request that made it grow has
/// freed its block.
/// Complexity: two atomic operations for each call of the driver that gets or frees memory,
/// and a look-up where an arena takes its one block; with a limit a call of the driver for each pool besides.
/// Thread-safety: any thread. A child that is forked has no device: its budget is of no use.
class device_budget {
 public:
  /// No limit.
  static constexpr std::size_t unlimited = (std::numeric_limits<std::size_t>::max)();

  device_budget() = default;
  device_budget(device_budget const&) = delete;
  device_budget& operator=(device_budget const&) = delete;

  /// From here on no more than that may be held. What is held already stays: with less than that as the
  /// limit, nothing can be allocated until it is below.
  void set_limit(std::size_t bytes) noexcept { limit_.store(bytes, std::memory_order_relaxed); }
  /// Bytes that all resources of the device may hold together.
  [[nodiscard]] std::size_t limit() const noexcept { return limit_.load(std::memory_order_relaxed); }
  /// Bytes that are held now, with memory that pools of the driver's retain. A call of the driver for each
  /// pool.
  [[nodiscard]] std::size_t held_bytes() const noexcept;
  /// The most bytes that were held so far, without memory that pools of the driver's retained.
  [[nodiscard]] std::size_t peak_bytes() const noexcept { return peak_.load(std::memory_order_relaxed); }

 private:
  // Ends a subscription or the membership of a pool.
  struct ender {
    device_budget* of;
    template <class Ended>
    void operator()(Ended const* ended) const noexcept {
      of->end(ended);
    }
  };

 public:
  /// Order of relief: resources, users of the driver's pools and the pools, callbacks.
  enum class giver { resource, pool_user, callback };

  /// A callback is asked as long as its subscription lives. Movable; a moved-from subscription is empty. Its
  /// end waits until the callback is not running any more, unless it is the callback that ends it, or that
  /// callback waits in the same way for a callback of this thread.
  class subscription {
   public:
    subscription() noexcept = default;

   private:
    friend device_budget;
    struct entry {
      std::function<bool()> call;
      giver kind;
      tidemark::detail::callback_gate gate = {};
    };
    std::unique_ptr<entry const, ender> entry_;
  };

  /// Has `callback` called on the thread that runs out of memory, once at least for each request that would
  /// fail. It returns whether it has freed anything. It must not throw; it may free memory, and make and end
  /// resources, but not use the one that runs out. What it allocates of the device fails without asking
  /// anyone. It runs on one thread at a time: another thread that runs out meanwhile leaves it out. It is
  /// called without locks of tidemark's, but for those of the resources below which memory runs out.
  /// @throws std::bad_alloc.
  [[nodiscard]] subscription on_exhausted(std::function<bool()> callback) {
    return add_member(std::move(callback), giver::callback);
  }
  /// Asks resources, trims the driver's pools and asks callbacks, in that order, but for `asking`. @return
  /// whether any may have freed something. Waits for work on the streams of caches and pools.
  bool relieve(subscription const* asking = nullptr) noexcept;
  /// While one lives, requests of the calling thread that find no memory fail without asking anyone. For
  /// resources that allocate under a lock, which then ask without it. A local variable.
  class relief_pause {
   public:
    /// Until its end, no request of this thread asks.
    relief_pause() noexcept;
    relief_pause(relief_pause const&) = delete;
    relief_pause& operator=(relief_pause const&) = delete;
    /// What was the case before holds again.
    ~relief_pause();

   private:
    bool before_;
  };
  /// Trims every `gpu::memory_pool` of the device, after a wait for the streams of the resources that
  /// allocate from them, but for those that are capturing. @return whether any may have freed something.
  bool trim_pools() noexcept;

  // For tidemark's own resources:

  /// A resource that gives memory back, or a user of pools that makes its blocks free. Asked before
  /// callbacks.
  /// @throws std::bad_alloc.
  [[nodiscard]] subscription add_member(std::function<bool()> give_back, giver kind = giver::resource);
  /// All memory of a pool counts as long as this lives. Movable; a moved-from membership is empty.
  class pool_membership {
   public:
    pool_membership() noexcept = default;

   private:
    friend device_budget;
    std::unique_ptr<detail::counted_pool const, ender> pool_;
  };
  /// @throws std::bad_alloc.
  [[nodiscard]] pool_membership add_pool(driver& calls, ::CUmemPoolHandle_st* pool);
  /// The record of a pool that was added; null for any other pool.
  [[nodiscard]] std::shared_ptr<detail::counted_pool> find_pool(::CUmemPoolHandle_st* pool) const noexcept;
  /// Counts bytes while the driver is asked for them: no longer than it lives, unless it is kept.
  class claim {
   public:
    /// @param of the pool that the bytes are of; null: none that counts.
    [[nodiscard]] claim(device_budget& budget, std::size_t bytes, detail::counted_pool* of = nullptr) noexcept
        : budget_{budget.take(bytes, of) ? &budget : nullptr}, bytes_{bytes}, pool_{of} {}
    claim(claim const&) = delete;
    claim& operator=(claim const&) = delete;
    ~claim() {
      if (budget_ != nullptr) budget_->give(bytes_, pool_);
    }
    /// Whether the limit allows them; nothing is counted if not.
    [[nodiscard]] bool is_allowed() const noexcept { return budget_ != nullptr; }
    /// The driver has given them: they count until `give`.
    void keep() noexcept { budget_ = nullptr; }

   private:
    device_budget* budget_;
    std::size_t bytes_;
    detail::counted_pool* pool_;
  };
  /// Counts this many bytes more, of a pool or of none. @return whether the limit allows that; nothing is
  /// counted if not.
  [[nodiscard]] bool take(std::size_t bytes, detail::counted_pool* of = nullptr) noexcept;
  /// Trims the driver's pools if they hold memory beyond the limit. @return whether the limit is kept then.
  [[nodiscard]] bool keep_limit() noexcept {
    if (limit() == unlimited || held_bytes() <= limit()) return true;
    (void)trim_pools();
    return held_bytes() <= limit();
  }
  /// Counts this many bytes less, which were taken of the same pool.
  void give(std::size_t bytes, detail::counted_pool* of = nullptr) noexcept {
    if (of != nullptr) of->live_bytes.fetch_sub(bytes, std::memory_order_relaxed);
    counted_.fetch_sub(bytes, std::memory_order_relaxed);
  }
  /// True if the limit allows this many more bytes.
  [[nodiscard]] bool has_room(std::size_t bytes) const noexcept {
    const std::size_t held = held_bytes(), limit = this->limit();
    return held <= limit && bytes <= limit - held;
  }

 private:
  using entry = subscription::entry;
  void end(entry const* ended) noexcept;
  void end(detail::counted_pool const* ended) noexcept;
  [[nodiscard]] static bool enter(entry& next) noexcept;
  [[nodiscard]] bool ask(giver kind, entry const* but) noexcept;
  [[nodiscard]] bool ask_pools(entry const* but) noexcept;

  std::atomic<std::size_t> limit_ = unlimited;
  std::atomic<std::size_t> counted_ = 0;         // without memory that pools of the driver's retain
  std::atomic<std::size_t> peak_ = 0;            // of `counted_`
  mutable tidemark::detail::fork_safe<> mutex_;  // for what follows; no callback is called under it
  std::list<std::shared_ptr<entry>> entries_;
  std::list<std::shared_ptr<detail::counted_pool>> pools_;
};

namespace detail {

/// The budgets of a driver's devices, made when they are first asked for.
class device_budgets {
 public:
  /// @throws std::bad_alloc.
  [[nodiscard]] device_budget& of(int device) {
    const std::scoped_lock lock{mutex_};
    return budgets_[device];
  }
  /// The one in which a pool counts, of any device; that of `device` if the pool counts in none.
  /// @throws std::bad_alloc.
  [[nodiscard]] device_budget& of(int device, ::CUmemPoolHandle_st* pool) {
    const std::scoped_lock lock{mutex_};
    for (auto& [_, budget] : budgets_)
      if (budget.find_pool(pool) != nullptr) return budget;
    return budgets_[device];
  }

 private:
  tidemark::detail::fork_safe<> mutex_;
  std::map<int, device_budget> budgets_;
};

}  // namespace detail
}  // namespace tidemark::gpu
