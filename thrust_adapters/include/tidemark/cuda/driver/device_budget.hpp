// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::device_budget`: counts and limits the device memory of tidemark's resources, and makes them return
/// memory when it runs out. Owns callbacks.
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
#include <tidemark/cuda/driver/detail/callback_gate.hpp>

struct CUmemPoolHandle_st;

namespace tidemark::gpu {

class driver;

namespace detail {

/// A driver's pool in a budget.
struct counted_pool {
  driver* calls;
  ::CUmemPoolHandle_st* pool;
  std::atomic<std::size_t> live_bytes{0};  // bytes of its blocks that the budget counts one by one
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
/// `relieve` documents the order in which resources return memory. A request without memory, or beyond the
/// limit, is relieved once and then tried again.
///
/// Invariant: `held_bytes() <= limit()` after each request, except after a lower limit or the growth of a
/// driver's pool (`set_limit`).
///
/// Complexity: two atomic operations for each driver call that gets or frees memory, and a look-up for the
/// block of an arena. A limit adds one driver call for each pool. Thread-safety: any thread. A forked child
/// has no device, and its budget is unusable.
class device_budget {
 public:
  /// No limit.
  static constexpr std::size_t unlimited = (std::numeric_limits<std::size_t>::max)();

  device_budget() = default;
  device_budget(device_budget const&) = delete;
  device_budget& operator=(device_budget const&) = delete;

  /// Sets the limit in bytes from now on. Held memory stays. No allocation succeeds while more than the limit
  /// is held. The driver chooses the growth of a pool: it may exceed the limit until the request that grew it
  /// has freed its block.
  void set_limit(std::size_t bytes) noexcept { limit_.store(bytes, std::memory_order_relaxed); }
  /// Returns the limit of all resources of the device together in bytes.
  [[nodiscard]] std::size_t limit() const noexcept { return limit_.load(std::memory_order_relaxed); }
  /// Returns the bytes that are held now. One driver call for each pool.
  ///
  /// The budget counts blocks of the driver, handles of virtual memory, and caches and pools of both. It
  /// counts all memory of each `gpu::memory_pool`, retained memory included. Managed memory counts on the
  /// device of its allocation. Pinned host memory, the device's default pool and the driver's memory for
  /// graphs do not count. If retained memory exceeds the limit, the pools are trimmed first; the request is
  /// refused if that is not enough.
  [[nodiscard]] std::size_t held_bytes() const noexcept;
  /// Returns the peak of the held bytes, without memory retained by the driver's pools.
  [[nodiscard]] std::size_t peak_bytes() const noexcept { return peak_.load(std::memory_order_relaxed); }

 private:
  // Ends a subscription, or the membership of a pool.
  struct ender {
    device_budget* of;
    template <class Ended>
    void operator()(Ended const* ended) const noexcept {
      of->end(ended);
    }
  };

 public:
  /// Order of relief: resources, users of the driver's pools and the pools, callbacks.
  enum class member_kind { resource, pool_user, callback };

  /// Keeps a callback registered. Movable; a moved-from subscription is empty. Its end waits until the
  /// callback returns. It does not wait inside the callback itself, or if the running callback waits for a
  /// callback of this thread in the same way.
  class subscription {
   public:
    subscription() noexcept = default;

   private:
    friend device_budget;
    struct entry {
      std::function<bool()> call;
      member_kind kind;
      detail::callback_gate gate = {};
    };
    std::unique_ptr<entry const, ender> entry_;
  };

  /// Registers a callback for exhausted memory. The thread whose request would fail calls it at least once.
  ///
  /// The callback returns true if it has freed memory. It must not throw. It may free memory, and make and
  /// end resources, but must not use the exhausted resource. Its own device allocations fail without relief.
  /// It runs on one thread at a time; other threads that run out meanwhile skip it. tidemark holds no lock
  /// during the call, except locks of resources whose upstream ran out.
  /// @throws std::bad_alloc.
  [[nodiscard]] subscription on_exhausted(std::function<bool()> callback) {
    return add_member(std::move(callback), member_kind::callback);
  }
  /// Makes all resources except `requester` return memory, in this order:
  /// - Every `device_pools` of the device, and every `device_cache` with memory and its own records,
  ///   return their cached memory. Pending blocks follow after a wait. Every `device_pool` gets a trim for
  ///   the next call of its thread.
  /// - The driver's pools are trimmed after a wait for the streams of their users.
  /// - The callbacks run. `device_pools`, caches and the driver's pools are then drained again.
  ///
  /// A cache or pool without memory first returns its own cached memory; arenas, plans and plain resources
  /// start here. Resources whose stream is capturing are skipped. Near the limit, or on a full device, any
  /// allocation may wait for a stream. A wait would invalidate a capture that begins meanwhile. Leave memory
  /// free if one thread captures while others allocate.
  /// @return true if any may have freed memory
  bool relieve(subscription const* requester = nullptr) noexcept;
  /// Makes requests of the calling thread fail without relief while it exists. Used by resources that
  /// allocate under a lock, and call `relieve` after they have released it. Use it as a local variable.
  class relief_pause {
   public:
    /// Begins the pause.
    relief_pause() noexcept;
    relief_pause(relief_pause const&) = delete;
    relief_pause& operator=(relief_pause const&) = delete;
    /// Restores the previous state.
    ~relief_pause();

   private:
    bool before_;
  };
  /// Trims every `gpu::memory_pool` of the device after a wait for the streams of its users. Skips users
  /// whose stream is capturing. @return true if any may have freed memory
  bool trim_pools() noexcept;

  // ---- for tidemark's own resources

  /// Registers a resource that returns memory, or a user of pools that frees its blocks. Called before the
  /// callbacks. @throws std::bad_alloc.
  [[nodiscard]] subscription add_member(std::function<bool()> release_idle_memory,
                                        member_kind kind = member_kind::resource);
  /// Counts all memory of a pool while it exists. Movable; a moved-from membership is empty.
  class pool_membership {
   public:
    pool_membership() noexcept = default;

   private:
    friend device_budget;
    std::unique_ptr<detail::counted_pool const, ender> pool_;
  };
  /// @throws std::bad_alloc.
  [[nodiscard]] pool_membership add_pool(driver& calls, ::CUmemPoolHandle_st* pool);
  /// Returns the record of an added pool; null for any other pool.
  [[nodiscard]] std::shared_ptr<detail::counted_pool> find_pool(::CUmemPoolHandle_st* pool) const noexcept;
  /// Counts bytes during a request to the driver. The destructor subtracts them unless `commit` was called.
  class claim {
   public:
    /// @param of pool of the bytes; null: no counted pool
    [[nodiscard]] claim(device_budget& budget, std::size_t bytes, detail::counted_pool* of = nullptr) noexcept
        : budget_{budget.try_add_bytes(bytes, of) ? &budget : nullptr}, bytes_{bytes}, pool_{of} {}
    claim(claim const&) = delete;
    claim& operator=(claim const&) = delete;
    ~claim() {
      if (budget_ != nullptr) budget_->subtract_bytes(bytes_, pool_);
    }
    /// Returns true if the limit allows the bytes; otherwise the bytes are not counted.
    [[nodiscard]] bool is_allowed() const noexcept { return budget_ != nullptr; }
    /// Keeps the bytes counted until `subtract_bytes`, because the driver has returned them.
    /// @pre `is_allowed()`.
    void commit() noexcept { std::exchange(budget_, nullptr)->update_peak(); }

   private:
    device_budget* budget_;
    std::size_t bytes_;
    detail::counted_pool* pool_;
  };
  /// Adds bytes to the count, for a pool or for none. @return true if the limit allows them; otherwise the
  /// count does not change
  [[nodiscard]] bool try_add_bytes(std::size_t bytes, detail::counted_pool* of = nullptr) noexcept;
  /// Trims the driver's pools if they hold memory beyond the limit. @return true if the limit holds then
  [[nodiscard]] bool trim_to_limit() noexcept {
    if (limit() == unlimited || held_bytes() <= limit()) return true;
    (void)trim_pools();
    return held_bytes() <= limit();
  }
  /// Subtracts bytes from the count. @pre The bytes were added for the same pool.
  void subtract_bytes(std::size_t bytes, detail::counted_pool* of = nullptr) noexcept {
    if (of != nullptr) of->live_bytes.fetch_sub(bytes, std::memory_order_relaxed);
    counted_.fetch_sub(bytes, std::memory_order_relaxed);
  }
  /// Returns true for the first caller, which reports that the device cannot map memory.
  [[nodiscard]] bool claim_mapping_report() noexcept {
    return !is_mapping_refused_.exchange(true, std::memory_order_relaxed);
  }
  /// Returns true if the device is known to map no memory.
  [[nodiscard]] bool is_mapping_refused() const noexcept {
    return is_mapping_refused_.load(std::memory_order_relaxed);
  }
  /// Returns true if the limit allows this many more bytes.
  [[nodiscard]] bool has_room(std::size_t bytes) const noexcept {
    const std::size_t held = held_bytes(), limit = this->limit();
    return held <= limit && bytes <= limit - held;
  }

 private:
  using entry = subscription::entry;
  void end(entry const* ended) noexcept;
  void end(detail::counted_pool const* ended) noexcept;
  [[nodiscard]] static bool enter(entry& next) noexcept;
  [[nodiscard]] bool call_members(member_kind kind, entry const* but) noexcept;
  [[nodiscard]] bool relieve_pools(entry const* but) noexcept;
  void update_peak() noexcept;

  std::atomic<std::size_t> limit_ = unlimited;
  std::atomic<std::size_t> counted_ = 0;  // without memory retained by the driver's pools
  std::atomic<std::size_t> peak_ = 0;     // peak of `counted_`
  std::atomic<bool> is_mapping_refused_ = false;
  mutable tidemark::detail::fork_safe<> mutex_;  // protects the members below; no callback runs under it
  std::list<std::shared_ptr<entry>> entries_;
  std::list<std::shared_ptr<detail::counted_pool>> pools_;
};

namespace detail {

/// The budgets of a driver's devices, made on first use.
class device_budgets {
 public:
  /// @throws std::bad_alloc.
  [[nodiscard]] device_budget& of(int device) {
    const std::scoped_lock lock{mutex_};
    return budgets_[device];
  }
  /// Returns the budget that counts a pool, of any device, else the budget of `device`.
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
