// SPDX-License-Identifier: Apache-2.0
/// @file
/// `device_pools::stream_heap`: the heap of one stream of `device_pools`. Owns the stream's memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <map>
#include <memory_resource>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include <tidemark/core/detail/distinct_resource.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>
#include <tidemark/cuda/resources/detail/device_heap.hpp>
#include <tidemark/cuda/resources/detail/stream_returns.hpp>
#include <tidemark/cuda/resources/device_planned_arena.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>
#include <tidemark/cuda/resources/device_pools.hpp>
#include <tidemark/pool/detail/block_cache.hpp>

#include "../driver/driver_errors.hpp"
#include "completed_options.hpp"

namespace tidemark {

/// The heap of one stream, or one of the heaps of a pool of graphs, and its resource.
class device_pools::stream_heap final : public detail::forwarding_resource<stream_heap>,
                                        public gpu::detail::stream_ordered {
 public:
  stream_heap(device_pools& all, gpu::stream_handle stream, std::uint64_t graphs)
      : all_{&all},
        stream_{graphs == 0 ? stream : nullptr},
        graphs_{graphs},
        trim_times_{all.options_.max_cached_bytes},
        heap_{options_of(all.options_, stream, graphs != 0), *all.driver_, false},
        returns_{*all.driver_,
                 all.options_.device,
                 stream_,
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
                  .context = this}} {
    if (graphs != 0) serve_captures_of(stream);
    else if (all.options_.plans)
      planned_.emplace(planned_arena_options{
          .max_kinds = all.options_.max_kinds, .fallback = &fallback_, .name = all.options_.name});
  }
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

  /// Pool of graphs of the heap; 0: no graph.
  [[nodiscard]] std::uint64_t graphs() const noexcept { return graphs_; }
  /// Makes a heap of graphs serve the captures of this stream from now on.
  void serve_captures_of(gpu::stream_handle stream) noexcept {
    const std::scoped_lock lock{mutex_};
    returns_.serve_captures_of(stream);
    heap_.set_stream(stream == gpu::detail::stream_returns::no_stream() ? nullptr : stream);
  }
  /// Returns true if work of the stream may use free memory of the heap at once.
  [[nodiscard]] bool serves(gpu::stream_handle stream) const noexcept { return returns_.is_own(stream); }
  /// Returns true if the stream that a heap of graphs serves is capturing.
  [[nodiscard]] bool is_in_open_capture() const noexcept {
    const gpu::detail::on_device here{*all_->driver_, all_->options_.device};
    return gpu::detail::capture_state_of(*all_->driver_, returns_.stream()) ==
           gpu::detail::capture_state::capturing;
  }
  void end_captures() noexcept { returns_.end_captures(); }
  void begin_step(std::uint64_t step_kind) {
    detail::late_reports late;
    const gpu::device_budget::relief_pause no_relief;
    const std::scoped_lock lock{mutex_};
    if (!planned_) return;
    step_.reset();
    step_.emplace(*planned_, step_kind);
  }
  void end_step() noexcept {
    detail::late_reports late;
    const gpu::device_budget::relief_pause no_relief;
    const std::scoped_lock lock{mutex_};
    step_.reset();
  }

  /// @param will_retry true if the caller repeats a refused request: the refusal is then cheap
  [[nodiscard]] void* try_allocate(std::size_t bytes, std::size_t align, bool will_retry) {
    detail::late_reports late;
    const gpu::device_budget::relief_pause no_relief;
    const std::scoped_lock lock{mutex_};
    heap_.set_brief_refusals(will_retry);
    void* block = planned_ ? nullptr : heap_.try_allocate(bytes, align);
    if (block == nullptr) {
      free_completed();
      block = planned_ ? planned_->allocate(bytes, align) : fallback_.allocate(bytes, align);
    }
    ++allocations_;
    requested_bytes_ += bytes;
    enforce_limit();
    return block;
  }
  void route_return(gpu::detail::returned_block const& block,
                    std::span<gpu::stream_handle const> used_on) noexcept {
    returns_.route_return(block, used_on);
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
    if (planned_) (void)planned_->trim();
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

  [[nodiscard]] std::size_t largest_request() noexcept {
    detail::late_reports late;
    const std::scoped_lock lock{mutex_};
    heap_.free_empty_slabs();  // they become idle memory, which has a limit
    enforce_limit();
    return heap_.largest_request();
  }
  void add_to(device_pools_stats& sum) const noexcept {
    const std::scoped_lock lock{mutex_};
    sum.allocations += allocations_;
    sum.deallocations += deallocations_;
    sum.used_blocks += used_blocks();
    sum.requested_bytes += requested_bytes_ - pending_bytes_;
    sum.captured_bytes += returns_.captured_bytes();
    sum.pending_bytes += pending_bytes_;
    sum.used_bytes += heap_.live_bytes();
    sum.stranded_bytes += heap_.stranded_bytes();
    sum.cached_bytes += heap_.cached_bytes();
    sum.held_bytes += heap_.held_bytes();
  }
  void add_to(planned_arena_stats& sum) const noexcept {
    const std::scoped_lock lock{mutex_};
    if (planned_) sum += planned_->stats();
  }
  [[nodiscard]] char const* broken_invariant() const noexcept {
    const std::scoped_lock lock{mutex_};
    if (planned_) planned_->check_invariants();
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

  /// The heap as a resource. Needs the lock.
  class fallback final : public detail::forwarding_resource<fallback> {
   public:
    explicit fallback(gpu::detail::device_heap& heap) noexcept : heap_{heap} {}
    void* allocate(std::size_t bytes, std::size_t align) {
      void* const block = heap_.try_allocate(bytes, align);
      return block != nullptr ? block : heap_.allocate_slow(bytes, align);
    }
    // The record of live blocks has checked the size.
    void deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
      (void)heap_.deallocate_if_live(block, bytes, align);
    }
    void release_unused() noexcept override {
      heap_.serve_plans();
      (void)heap_.release_free(0);
    }

   private:
    gpu::detail::device_heap& heap_;
  };

  // Memory of graphs serves one stream after another; the heap awaits the legacy stream.
  [[nodiscard]] static device_pool_options options_of(device_pools_options const& all,
                                                      gpu::stream_handle stream, bool is_of_graphs) {
    gpu::detail::require_one_stream("device_pools", all.name, stream);
    return {.stream = is_of_graphs ? nullptr : stream,
            .device = all.device,
            .keeps_addresses = is_of_graphs,
            .bookkeeping = std::pmr::new_delete_resource(),
            .name = all.name};
  }
  [[nodiscard]] bool is_capturing() const noexcept {
    return gpu::detail::capture_state_of(*all_->driver_, stream_) != gpu::detail::capture_state::none;
  }
  [[nodiscard]] std::size_t used_blocks() const noexcept {
    return allocations_ - deallocations_ - pending_blocks_;
  }

  // ---- functions below need the lock

  void free_locked(gpu::detail::returned_block const& each) noexcept {
    ++deallocations_;
    requested_bytes_ -= each.bytes;
    if (planned_) planned_->deallocate(each.block, each.bytes, each.align);
    else fallback_.deallocate(each.block, each.bytes, each.align);
    if (heap_.cached_bytes() >
        trim_times_.due_at(heap_.cached_bytes(), heap_.live_bytes(), heap_.stranded_block_bytes()))
      trim_to(trim_times_.target_bytes());
  }
  void enforce_limit() noexcept {
    if (heap_.cached_bytes() > all_->options_.max_cached_bytes) trim_to(all_->options_.max_cached_bytes);
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
    returns_.events().query([this] {
      for (auto at = pending_.begin(); at != pending_.end();) {
        queue& blocks = at->second;
        while (!blocks.empty() && blocks.front().fence.done()) {
          const gpu::detail::returned_block each = blocks.front().block;
          blocks.pop_front();
          --pending_blocks_;
          pending_bytes_ -= each.bytes;
          free_locked(each);
        }
        at = blocks.empty() ? pending_.erase(at) : std::next(at);
      }
    });
  }
  void wait_for_pending() noexcept {
    const gpu::detail::on_device here{*all_->driver_, all_->options_.device};
    if (pending_.empty() || is_capturing()) return;
    for (auto const& [order, blocks] : pending_) {
      if (order != nullptr) blocks.back().fence.wait();
      else std::ranges::for_each(blocks, [](pending_block const& each) { each.fence.wait(); });
    }
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
    fence.wait();  // the thread waits, or the stream unless it is capturing
    if (fence.done() || !is_capturing()) return free_block(each);
    gpu::detail::report_lost(*all_->driver_, all_->options_.name, "cuEventSynchronize",
                             gpu::status::capture_unsupported, each.bytes);
  }

  device_pools* all_;
  gpu::stream_handle stream_;
  std::uint64_t graphs_;
  mutable detail::fork_safe<> mutex_;  // for the members below except `returns_`; also for driver calls
  detail::trim_policy trim_times_;
  gpu::detail::device_heap heap_;
  fallback fallback_{heap_};
  std::optional<device_planned_arena> planned_;
  std::optional<device_planned_arena::step> step_;
  std::uint64_t allocations_ = 0, deallocations_ = 0;
  std::size_t requested_bytes_ = 0;  // of live and waiting blocks
  gpu::detail::stream_returns returns_;
  std::map<void const*, queue> pending_;  // by order of their fences; no queue is empty
  std::size_t pending_blocks_ = 0, pending_bytes_ = 0;
};

}  // namespace tidemark
