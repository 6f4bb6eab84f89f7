// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/resources/device_pools.hpp>

#include <iterator>
#include <list>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>
#include <tidemark/cuda/resources/detail/device_heap.hpp>
#include <tidemark/cuda/resources/detail/stream_returns.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>
#include <tidemark/pool/detail/basic_pool.hpp>

#include "../driver/driver_errors.hpp"
#include "completed_options.hpp"

namespace tidemark {
namespace {

constexpr char const* kind = "device_pools";

// Both handles of the legacy stream have one key.
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

/// The heap of one stream, and its resource.
class device_pools::stream_heap final : public detail::forwarding_resource<stream_heap>,
                                        public gpu::detail::stream_ordered {
 public:
  stream_heap(device_pools& all, gpu::stream_handle stream)
      : all_{&all},
        stream_{stream},
        trim_times_{all.options_.max_cached_bytes},
        heap_{of_stream(all.options_, stream), *all.driver_, false},
        returns_{*all.driver_,
                 all.options_.device,
                 stream,
                 all.options_.name,
                 std::pmr::new_delete_resource(),
                 {.free_now =
                      [](void* heap, gpu::detail::returned_block const& each) noexcept {
                        static_cast<stream_heap*>(heap)->free_block(each);
                      },
                  .free_behind =
                      [](void* heap, gpu::detail::returned_block const& each, reuse_fence fence) noexcept {
                        static_cast<stream_heap*>(heap)->free_behind_fence(each, std::move(fence));
                      },
                  .context = this}} {}
  stream_heap(stream_heap const&) = delete;
  stream_heap& operator=(stream_heap const&) = delete;
  ~stream_heap() override = default;

  // ---- functions of the resource
  void* allocate(std::size_t bytes, std::size_t align) { return all_->allocate(bytes, align, stream_); }
  void deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
    all_->deallocate(block, bytes, align, stream_);
  }
  [[nodiscard]] bool is_ordered_by(gpu::stream_handle stream) const noexcept override {
    return gpu::is_same_stream(stream, stream_);
  }

  [[nodiscard]] void* try_allocate(std::size_t bytes, std::size_t align) {
    detail::late_reports late;
    const gpu::device_budget::relief_pause no_relief;
    const std::scoped_lock lock{mutex_};
    if (void* const block = heap_.try_allocate(bytes, align)) return block;
    free_completed();
    void* const block = heap_.allocate_slow(bytes, align);
    if (heap_.cached_bytes() > all_->options_.max_cached_bytes) trim_to(all_->options_.max_cached_bytes);
    return block;
  }
  void route_return(gpu::detail::returned_block const& block, gpu::stream_handle last_used_on) noexcept {
    returns_.route_return(block, last_used_on);
  }
  void free_block(gpu::detail::returned_block const& each) noexcept {
    detail::late_reports late;
    const std::scoped_lock lock{mutex_};
    free_locked(each);
  }

  std::size_t trim() noexcept {
    (void)returns_.release_held(false);
    const std::scoped_lock lock{mutex_};
    wait_for_pending();
    return heap_.release_free(0);
  }
  std::size_t release_captured() noexcept { return returns_.release_held(true); }
  /// Returns the live blocks, after a wait for blocks that wait for other streams.
  [[nodiscard]] std::size_t blocks_after_wait() noexcept {
    (void)returns_.release_held(false);
    const std::scoped_lock lock{mutex_};
    wait_for_pending();
    return used_blocks() + pending_blocks_;
  }
  /// Waits for the stream, unless the stream is capturing.
  void wait() noexcept {
    const gpu::detail::on_device here{*all_->driver_, all_->options_.device};
    if (!is_capturing()) (void)all_->driver_->synchronize(stream_);
  }

  void add_to(device_pools_stats& sum) const noexcept {
    const std::scoped_lock lock{mutex_};
    const detail::block_counts counts = heap_.counts();
    sum.allocations += counts.allocations;
    sum.deallocations += counts.deallocations;
    sum.used_blocks += used_blocks();
    sum.requested_bytes += heap_.requested_bytes() - pending_bytes_;
    sum.pending_bytes += pending_bytes_;
    sum.cached_bytes += heap_.cached_bytes();
    sum.held_bytes += heap_.held_bytes();
  }
  [[nodiscard]] char const* broken_invariant() const noexcept {
    const std::scoped_lock lock{mutex_};
    std::size_t blocks = 0, bytes = 0;
    for (auto const& [order, queue] : pending_) {
      blocks += queue.size();
      for (pending_block const& each : queue) bytes += each.block.bytes;
    }
    if (blocks != pending_blocks_ || bytes != pending_bytes_)
      return "pending_bytes == sum over blocks that wait";
    return heap_.broken_invariant();
  }

 private:
  struct pending_block {
    gpu::detail::returned_block block;
    reuse_fence fence;
  };
  using queue = std::list<pending_block>;

  [[nodiscard]] bool is_capturing() const noexcept {
    return gpu::detail::capture_state_of(*all_->driver_, stream_) != gpu::detail::capture_state::none;
  }
  [[nodiscard]] std::size_t used_blocks() const noexcept {
    return heap_.counts().allocations - heap_.counts().deallocations - pending_blocks_;
  }

  // ---- functions below need the lock

  // The record of live blocks has checked the size.
  void free_locked(gpu::detail::returned_block const& each) noexcept {
    (void)heap_.deallocate_if_live(each.block, each.bytes, each.align);
    if (heap_.cached_bytes() >
        trim_times_.due_at(heap_.cached_bytes(), heap_.live_bytes(), heap_.stranded_block_bytes()))
      trim_to(trim_times_.target_bytes());
  }
  void trim_to(std::size_t target_bytes) noexcept {
    (void)heap_.release_free(target_bytes);
    heap_.strand(target_bytes);
    trim_times_.trimmed(heap_.live_bytes());
  }
  // Frees blocks that other streams no longer use. Events of one stream pass in order. Does nothing while the
  // stream is capturing.
  void free_completed() noexcept {
    if (pending_.empty()) return;
    returns_.events().query(
        [](void* heap) noexcept {
          auto& self = *static_cast<stream_heap*>(heap);
          for (auto at = self.pending_.begin(); at != self.pending_.end();) {
            queue& blocks = at->second;
            while (!blocks.empty() && blocks.front().fence.done()) {
              const gpu::detail::returned_block each = blocks.front().block;
              blocks.pop_front();
              --self.pending_blocks_;
              self.pending_bytes_ -= each.bytes;
              self.free_locked(each);
            }
            at = blocks.empty() ? self.pending_.erase(at) : std::next(at);
          }
        },
        this);
  }
  void wait_for_pending() noexcept {
    const gpu::detail::on_device here{*all_->driver_, all_->options_.device};
    if (pending_.empty() || is_capturing()) return;
    for (auto const& [order, blocks] : pending_) blocks.back().fence.wait();
    free_completed();
  }

  // Takes the lock. Waits if there is no memory for a record.
  void free_behind_fence(gpu::detail::returned_block const& each, reuse_fence fence) noexcept {
    try {
      queue one;
      one.push_back({.block = each, .fence = {}});
      const std::scoped_lock lock{mutex_};
      queue& blocks = pending_[fence.order()];
      one.front().fence = std::move(fence);
      blocks.splice(blocks.end(), one);
      ++pending_blocks_;
      pending_bytes_ += each.bytes;
      return;
    } catch (std::bad_alloc const&) {
    }
    const gpu::detail::on_device here{*all_->driver_, all_->options_.device};
    if (is_capturing())
      return gpu::detail::report_lost(*all_->driver_, all_->options_.name, "cuEventSynchronize",
                                      gpu::status::capture_unsupported, each.bytes);
    fence.wait();
    free_block(each);
  }

  device_pools* all_;
  gpu::stream_handle stream_;
  mutable detail::fork_safe<> mutex_;  // for the members below except `returns_`; also for driver calls
  detail::trim_policy trim_times_;
  gpu::detail::device_heap heap_;
  gpu::detail::stream_returns returns_;
  std::map<void const*, queue> pending_;  // by order of their fences; no queue is empty
  std::size_t pending_blocks_ = 0, pending_bytes_ = 0;
};

device_pools::device_pools(device_pools_options const& options, gpu::driver& driver)
    : driver_{&driver}, options_{completed(options, driver)} {
  budget_subscription_ = driver.budget(options_.device).add_member([this] { return trim() != 0; });
}

// Waits for all streams first, because a block of one stream may be used by another.
device_pools::~device_pools() {
  budget_subscription_ = {};
  for_each_heap([](stream_heap& each) {
    each.wait();
    (void)each.blocks_after_wait();
  });
}

device_pools::stream_heap& device_pools::of(gpu::stream_handle stream) {
  const auto known = [&] {
    const std::scoped_lock lock{mutex_};
    const auto found = heaps_.find(key_of(stream));
    return found != heaps_.end() ? found->second.get() : nullptr;
  };
  if (stream_heap* const found = known()) return *found;
  auto made = std::make_unique<stream_heap>(*this, key_of(stream));
  const std::scoped_lock lock{mutex_};
  return *heaps_.try_emplace(key_of(stream), std::move(made)).first->second;
}

void* device_pools::allocate(std::size_t bytes, std::size_t align, gpu::stream_handle stream) {
  if constexpr (check_level >= 2) detail::require_power_of_two(kind, options_.name, align);
  stream_heap& from = of(stream);
  const auto allocate_in_heap = [&]() -> void* {
    try {
      return from.try_allocate(bytes, align);
    } catch (std::bad_alloc const&) {
      return nullptr;
    }
  };
  void* block = allocate_in_heap();
  if (block == nullptr) {
    (void)trim();
    (void)driver_->budget(options_.device).relieve(&budget_subscription_);
    block = from.try_allocate(bytes, align);
  }
  try {
    const std::scoped_lock lock{mutex_};
    live_.emplace(block, live_block{&from, bytes, align});
  } catch (...) {
    from.free_block({block, bytes, align});
    throw;
  }
  return block;
}

void device_pools::deallocate(void* block, std::size_t bytes, std::size_t align,
                              gpu::stream_handle last_used_on) noexcept {
  if (block == nullptr) return;
  stream_heap* owner = nullptr;
  {
    const std::scoped_lock lock{mutex_};
    const auto found = live_.find(block);
    if (found != live_.end() && found->second.bytes == bytes && found->second.align == align) {
      owner = found->second.of;
      live_.erase(found);
    }
  }
  if (owner != nullptr) return owner->route_return({block, bytes, align}, last_used_on);
  detail::report_violation(
      violation_kind::bad_deallocate, options_.name,
      "device_pools '%s': %zu bytes aligned to %zu are deallocated at %p, where no such block is "
      "live: a double free, a wrong size or a foreign pointer",
      options_.name, bytes, align, block);
}

std::pmr::memory_resource* device_pools::on(gpu::stream_handle stream) { return &of(stream); }

void device_pools::forget(gpu::stream_handle stream) {
  detail::late_reports late;
  const std::scoped_lock alone{maintenance_};
  stream_heap* ending = nullptr;
  {
    const std::scoped_lock lock{mutex_};
    const auto found = heaps_.find(key_of(stream));
    if (found == heaps_.end()) return;
    ending = found->second.get();
  }
  if (const std::size_t blocks = ending->blocks_after_wait(); blocks != 0) {
    throw std::logic_error{"device_pools '" + std::string{options_.name} + "': forget while " +
                           std::to_string(blocks) +
                           " blocks of the stream are in use, or of a graph (release_captured)"};
  }
  std::unique_ptr<stream_heap> gone;  // destroyed without the lock
  const std::scoped_lock lock{mutex_};
  gone = std::move(heaps_.extract(key_of(stream)).mapped());
}

// Visits all heaps; heaps may be added concurrently. @pre `maintenance_` is held, and no heap is removed.
template <class Call>
void device_pools::for_each_heap(Call call) const noexcept {
  auto at = heaps_.end();
  const auto next = [&] {
    const std::scoped_lock lock{mutex_};
    at = at == heaps_.end() ? heaps_.begin() : std::next(at);
    return at != heaps_.end();
  };
  while (next()) call(*at->second);
}

std::size_t device_pools::sum_of(std::size_t (stream_heap::*call)() noexcept) noexcept {
  detail::late_reports late;
  const std::scoped_lock alone{maintenance_};
  std::size_t bytes = 0;
  for_each_heap([&](stream_heap& each) { bytes += (each.*call)(); });
  return bytes;
}

std::size_t device_pools::trim() noexcept { return sum_of(&stream_heap::trim); }

std::size_t device_pools::release_captured() noexcept { return sum_of(&stream_heap::release_captured); }

device_pools_stats device_pools::stats() const noexcept {
  const std::scoped_lock alone{maintenance_};
  device_pools_stats all{.name = options_.name};
  for_each_heap([&](stream_heap const& each) { each.add_to(all); });
  return all;
}

std::size_t device_pools::streams() const noexcept {
  const std::scoped_lock lock{mutex_};
  return heaps_.size();
}

void device_pools::check_invariants() const noexcept {
  char const* broken = nullptr;
  {
    const std::scoped_lock alone{maintenance_};
    for_each_heap([&](stream_heap const& each) {
      if (broken == nullptr) broken = each.broken_invariant();
    });
  }
  detail::invariant_check{kind, options_.name}.report(broken);
}

}  // namespace tidemark
