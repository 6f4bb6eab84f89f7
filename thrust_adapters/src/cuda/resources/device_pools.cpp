// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/resources/device_pools.hpp>

#include <deque>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/core/detail/block_ledger.hpp>
#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>
#include <tidemark/cuda/resources/detail/device_heap.hpp>
#include <tidemark/cuda/resources/detail/stream_returns.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>

#include "../driver/driver_errors.hpp"
#include "completed_options.hpp"

namespace tidemark {
namespace {

constexpr char const* kind = "device_pools";

// One key for both handles of the legacy stream.
gpu::stream_handle key_of(gpu::stream_handle stream) noexcept {
  return gpu::is_same_stream(stream, nullptr) ? nullptr : stream;
}

device_pools_options completed(device_pools_options options, gpu::driver& driver) {
  if (options.name == nullptr) options.name = device_pools_options{}.name;
  options.device = gpu::detail::device_or_current(driver, options.device, options.name);
  return options;
}

device_pool_options of_stream(device_pools_options const& all, gpu::stream_handle stream) {
  gpu::detail::require_one_stream(kind, all.name, stream);
  return {.stream = stream,
          .device = all.device,
          .bookkeeping = std::pmr::new_delete_resource(),
          .name = all.name};
}

}  // namespace

/// The heap of one stream, and the resource that stands for it.
class device_pools::stream_heap final : public detail::forwarding_resource<stream_heap> {
 public:
  stream_heap(device_pools& all, gpu::stream_handle stream)
      : all_{&all},
        stream_{stream},
        heap_{of_stream(all.options_, stream), *all.driver_, true},
        returns_{*all.driver_,
                 all.options_.device,
                 stream,
                 all.options_.name,
                 std::pmr::new_delete_resource(),
                 {.free_now =
                      [](void* heap, gpu::detail::returned_block const& each) noexcept {
                        static_cast<stream_heap*>(heap)->give(each);
                      },
                  .free_behind =
                      [](void* heap, gpu::detail::returned_block const& each, reuse_fence fence) noexcept {
                        static_cast<stream_heap*>(heap)->give_behind(each, std::move(fence));
                      },
                  .context = this}} {}
  stream_heap(stream_heap const&) = delete;
  stream_heap& operator=(stream_heap const&) = delete;
  ~stream_heap() override {
    (void)release_captured();
    wait_for_pending();
    if constexpr (detail::records_blocks) detail::report_lost_blocks(kind, name(), ledger_, 0, false);
  }

  // As a resource.
  void* allocate(std::size_t bytes, std::size_t align) {
    return all_->allocate(bytes, align, stream_, detail::call_site{});
  }
  void deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
    all_->deallocate(block, bytes, align, stream_);
  }

  [[nodiscard]] void* take(std::size_t bytes, std::size_t align, detail::call_site where) {
    detail::late_reports late;
    const detail::late_warnings late_too;
    const gpu::device_budget::relief_pause asks_nobody;
    const std::scoped_lock lock{mutex_};
    void* block = heap_.take(bytes, align);
    if (block == nullptr) {
      give_passed(late);
      block = heap_.take_slow(bytes, align);
    }
    if constexpr (detail::records_blocks) {
      try {
        ledger_.add(detail::pooled_block(block, bytes, align, ledger_, where));
      } catch (...) {
        (void)heap_.try_give(block, bytes, align);
        throw;
      }
    }
    return block;
  }

  [[nodiscard]] bool owns(void const* block) const noexcept {
    const std::scoped_lock lock{mutex_};
    return heap_.owns(block);
  }
  void take_back(gpu::detail::returned_block const& block, gpu::stream_handle last_used_on) noexcept {
    returns_.sort(block, last_used_on);
  }

  std::size_t trim() noexcept {
    const detail::late_warnings late;
    (void)returns_.release_held(false);
    wait_for_pending();
    const gpu::device_budget::relief_pause asks_nobody;
    const std::scoped_lock lock{mutex_};
    return heap_.release_free(0);
  }
  std::size_t release_captured() noexcept { return returns_.release_held(true); }

  void add_to(device_pools_stats& sum) const noexcept {
    const std::scoped_lock lock{mutex_};
    const detail::block_counts counts = heap_.counts();
    sum.allocations += counts.allocations;
    sum.deallocations += counts.deallocations;
    sum.used_blocks += counts.allocations - counts.deallocations - pending_blocks_;
    sum.requested_bytes += heap_.requested_bytes() - pending_bytes_;
    sum.pending_bytes += pending_bytes_;
    sum.cached_bytes += heap_.cached_bytes();
    sum.held_bytes += heap_.held_bytes();
  }
  void check_invariants() const noexcept {
    char const* broken = nullptr;
    {
      const std::scoped_lock lock{mutex_};
      broken = heap_.broken_invariant();
      std::size_t blocks = 0, bytes = 0;
      for (auto const& [order, queue] : pending_) {
        blocks += queue.size();
        for (pending_block const& each : queue) bytes += each.block.bytes;
      }
      if (broken == nullptr && (blocks != pending_blocks_ || bytes != pending_bytes_))
        broken = "pending_bytes == sum over blocks that wait";
    }
    detail::invariant_check{kind, name()}.report(broken);
  }
  /// Live blocks, after a wait for those that wait.
  [[nodiscard]] std::size_t blocks_after_wait() noexcept {
    wait_for_pending();
    device_pools_stats now;
    add_to(now);
    return now.used_blocks;
  }

 private:
  struct pending_block {
    gpu::detail::returned_block block;
    reuse_fence fence;
  };
  using pending_blocks = std::map<void const*, std::deque<pending_block>>;  // by the order of their fences

  [[nodiscard]] char const* name() const noexcept { return all_->options_.name; }

  void give(gpu::detail::returned_block const& each) noexcept {
    detail::late_reports late;
    const detail::late_warnings late_too;
    const std::scoped_lock lock{mutex_};
    give_locked(late, each);
  }
  void give_locked(detail::late_reports& late, gpu::detail::returned_block const& each) noexcept {
    if constexpr (detail::records_blocks) {
      if (!ledger_.remove(late, kind, name(), each.block, each.bytes, each.align)) return;
    }
    if (!heap_.try_give(each.block, each.bytes, each.align)) {
      late.add(
          violation_kind::bad_deallocate, name(),
          "device_pools '%s': %zu bytes are deallocated at %p, where no block of that size is live: a double "
          "free, a wrong size or a foreign pointer",
          name(), each.bytes, each.block);
    }
    const std::size_t most = all_->options_.max_cached_bytes;
    if (heap_.cached_bytes() > most) (void)heap_.release_free(most);
  }
  void give_behind(gpu::detail::returned_block const& each, reuse_fence fence) noexcept {
    try {
      const std::scoped_lock lock{mutex_};
      pending_[fence.order()].push_back({each, std::move(fence)});
      ++pending_blocks_;
      pending_bytes_ += each.bytes;
    } catch (std::bad_alloc const&) {  // the fence was not moved
      fence.wait();
      give(each);
    }
  }
  void give_first(detail::late_reports& late, std::deque<pending_block>& queue) noexcept {
    const gpu::detail::returned_block each = queue.front().block;
    queue.pop_front();
    --pending_blocks_;
    pending_bytes_ -= each.bytes;
    give_locked(late, each);
  }
  // Gives what other streams no longer use. Of one stream, events pass in their order.
  void give_passed(detail::late_reports& late) noexcept {
    if (pending_blocks_ == 0) return;
    std::pair<stream_heap*, detail::late_reports*> state{this, &late};
    returns_.events().query(
        [](void* of) noexcept {
          auto& [self, reports] = *static_cast<decltype(state)*>(of);
          for (auto& [order, queue] : self->pending_) {
            while (!queue.empty() && queue.front().fence.done()) self->give_first(*reports, queue);
          }
        },
        &state);
  }
  void wait_for_pending() noexcept {
    pending_blocks waiting;
    {
      const std::scoped_lock lock{mutex_};
      waiting.swap(pending_);
    }
    for (auto& [order, queue] : waiting) {
      for (pending_block const& each : queue) each.fence.wait();
    }
    detail::late_reports late;
    const std::scoped_lock lock{mutex_};
    for (auto& [order, queue] : waiting) {
      while (!queue.empty()) give_first(late, queue);
    }
  }

  device_pools* all_;
  gpu::stream_handle stream_;
  mutable detail::fork_safe<>
      mutex_;  // for the heap, the ledger and what waits; the driver is called under it
  gpu::detail::device_heap heap_;
  detail::block_ledger ledger_;  // where `records_blocks`
  gpu::detail::stream_returns returns_;
  pending_blocks pending_;
  std::size_t pending_blocks_ = 0, pending_bytes_ = 0;
};

device_pools::device_pools(device_pools_options const& options, gpu::driver& driver)
    : driver_{&driver}, options_{completed(options, driver)} {
  gives_back_ = driver.budget(options_.device).add_member([this] { return trim() != 0; });
}

device_pools::~device_pools() { gives_back_ = {}; }

device_pools::stream_heap* device_pools::find(gpu::stream_handle stream) const noexcept {
  const std::scoped_lock lock{mutex_};
  const auto found = heaps_.find(key_of(stream));
  return found != heaps_.end() ? found->second.get() : nullptr;
}

device_pools::stream_heap& device_pools::of(gpu::stream_handle stream) {
  if (stream_heap* const found = find(stream)) return *found;
  auto made = std::make_shared<stream_heap>(*this, key_of(stream));
  const std::scoped_lock lock{mutex_};
  return *heaps_.try_emplace(key_of(stream), std::move(made)).first->second;
}

void* device_pools::allocate(std::size_t bytes, std::size_t align, gpu::stream_handle stream,
                             detail::call_site where) {
  if constexpr (check_level >= 2) detail::require_power_of_two(kind, options_.name, align);
  stream_heap& from = of(stream);
  try {
    return from.take(bytes, align, where);
  } catch (std::bad_alloc const&) {
    const std::size_t trimmed = trim();
    if (!driver_->budget(options_.device).relieve(&gives_back_) && trimmed == 0) throw;
  }
  return from.take(bytes, align, where);
}

// Most blocks come back on their own stream.
device_pools::stream_heap* device_pools::owner_of(void const* block,
                                                  gpu::stream_handle last_used_on) const noexcept {
  stream_heap* owner = find(last_used_on);
  if (owner != nullptr && owner->owns(block)) return owner;
  owner = nullptr;
  for_each_heap([&](stream_heap& each) {
    if (owner == nullptr && each.owns(block)) owner = &each;
  });
  return owner;
}

void device_pools::deallocate(void* block, std::size_t bytes, std::size_t align,
                              gpu::stream_handle last_used_on) noexcept {
  if (block == nullptr) return;
  if (stream_heap* const owner = owner_of(block, last_used_on))
    return owner->take_back({block, bytes, align}, last_used_on);
  detail::report_violation(
      violation_kind::bad_deallocate, options_.name,
      "device_pools '%s': %zu bytes are deallocated at %p, where no block of that size is live: a "
      "double free, a wrong size or a foreign pointer",
      options_.name, bytes, block);
}

std::pmr::memory_resource* device_pools::on(gpu::stream_handle stream) { return &of(stream); }

void device_pools::forget(gpu::stream_handle stream) {
  stream_heap* const found = find(stream);
  if (found == nullptr) return;
  if (const std::size_t blocks = found->blocks_after_wait(); blocks != 0) {
    throw std::logic_error{"device_pools '" + std::string{options_.name} + "': forget while " +
                           std::to_string(blocks) +
                           " blocks of the stream are in use, or of a graph (release_captured)"};
  }
  std::shared_ptr<stream_heap> gone;  // ends without the lock
  const std::scoped_lock lock{mutex_};
  gone = std::move(heaps_.extract(key_of(stream)).mapped());
}

// Each is held on to while it is called, so that another thread may forget its stream.
template <class Call>
void device_pools::for_each_heap(Call call) const noexcept {
  std::shared_ptr<stream_heap> next;
  for (gpu::stream_handle last = nullptr;; call(*next)) {
    const std::shared_ptr<stream_heap> before = std::move(next);  // may end here, and not under the lock
    const std::scoped_lock lock{mutex_};
    const auto found = before == nullptr ? heaps_.begin() : heaps_.upper_bound(last);
    if (found == heaps_.end()) return;
    last = found->first;
    next = found->second;
  }
}

std::size_t device_pools::trim() noexcept {
  std::size_t bytes = 0;
  for_each_heap([&](stream_heap& each) { bytes += each.trim(); });
  return bytes;
}

std::size_t device_pools::release_captured() noexcept {
  std::size_t bytes = 0;
  for_each_heap([&](stream_heap& each) { bytes += each.release_captured(); });
  return bytes;
}

device_pools_stats device_pools::stats() const noexcept {
  device_pools_stats all{.name = options_.name};
  for_each_heap([&](stream_heap const& each) { each.add_to(all); });
  return all;
}

std::size_t device_pools::streams() const noexcept {
  const std::scoped_lock lock{mutex_};
  return heaps_.size();
}

void device_pools::check_invariants() const noexcept {
  for_each_heap([](stream_heap const& each) { each.check_invariants(); });
}

}  // namespace tidemark
