// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/resources/device_pools.hpp>

#include <algorithm>
#include <iterator>
#include <list>
#include <mutex>
#include <new>
#include <span>
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
#include <tidemark/cuda/resources/device_planned_arena.hpp>
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

// Memory of graphs serves one stream after another; the heap awaits the legacy stream.
device_pool_options of_stream(device_pools_options const& all, gpu::stream_handle stream, bool is_of_graphs) {
  gpu::detail::require_one_stream(kind, all.name, stream);
  return {.stream = is_of_graphs ? nullptr : stream,
          .device = all.device,
          .keeps_addresses = is_of_graphs,
          .bookkeeping = std::pmr::new_delete_resource(),
          .name = all.name};
}

}  // namespace

/// The heap of one stream, or one of the heaps of a pool of graphs, and its resource.
class device_pools::stream_heap final : public detail::forwarding_resource<stream_heap>,
                                        public gpu::detail::stream_ordered {
 public:
  stream_heap(device_pools& all, gpu::stream_handle stream, std::uint64_t graphs)
      : all_{&all},
        stream_{graphs == 0 ? stream : nullptr},
        graphs_{graphs},
        trim_times_{all.options_.max_cached_bytes},
        heap_{of_stream(all.options_, stream, graphs != 0), *all.driver_, false},
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
      planned_.emplace(planned_arena_options{.fallback = &fallback_, .name = all.options_.name});
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

  [[nodiscard]] void* try_allocate(std::size_t bytes, std::size_t align) {
    detail::late_reports late;
    const gpu::device_budget::relief_pause no_relief;
    const std::scoped_lock lock{mutex_};
    void* block = planned_ ? nullptr : heap_.try_allocate(bytes, align);
    if (block == nullptr) {
      free_completed();
      block = planned_ ? planned_->allocate(bytes, align) : fallback_.allocate(bytes, align);
    }
    ++allocations_;
    requested_bytes_ += bytes;
    if (heap_.cached_bytes() > all_->options_.max_cached_bytes) trim_to(all_->options_.max_cached_bytes);
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
    const std::scoped_lock lock{mutex_};
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
    if (!planned_) return;
    const planned_arena_stats own = planned_->stats();
    sum.steps += own.steps;
    sum.planned_steps += own.planned_steps;
    sum.partly_planned_steps += own.partly_planned_steps;
    sum.unplanned_steps += own.unplanned_steps;
    sum.allocations += own.allocations;
    sum.planned_allocations += own.planned_allocations;
    sum.fallback_allocations += own.fallback_allocations;
    sum.outside_allocations += own.outside_allocations;
    sum.misses += own.misses;
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
    void release_unused() noexcept override { (void)heap_.release_free(0); }

   private:
    gpu::detail::device_heap& heap_;
  };

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
    if (is_capturing())
      return gpu::detail::report_lost(*all_->driver_, all_->options_.name, "cuEventSynchronize",
                                      gpu::status::capture_unsupported, each.bytes);
    fence.wait();
    free_block(each);
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

// A pool of graphs has as many heaps as one of its captures has streams. A heap serves one stream until the
// capture ends, because the streams of a capture are concurrent.
device_pools::stream_heap& device_pools::of(gpu::stream_handle stream, std::uint64_t graphs) {
  const place key{graphs, key_of(stream)};
  const auto known = [&]() -> stream_heap* {
    const auto found = serving_.find(key);
    if (found != serving_.end()) return found->second;
    const auto is_idle = [&](stream_heap const& each) {
      return each.graphs() == graphs &&
             std::ranges::none_of(serving_, [&](auto const& serving) { return serving.second == &each; });
    };
    const auto idle = graphs == 0 ? heaps_.end() : std::ranges::find_if(heaps_, is_idle);
    if (idle == heaps_.end()) return nullptr;
    serving_.emplace(key, &*idle);
    idle->serve_captures_of(key.second);
    return &*idle;
  };
  {
    const std::scoped_lock lock{mutex_};
    if (stream_heap* const found = known()) return *found;
  }
  std::list<stream_heap> made;
  made.emplace_back(*this, key.second, graphs);
  const std::scoped_lock lock{mutex_};
  if (stream_heap* const found = known()) return *found;
  if (step_) made.front().begin_step(*step_);
  serving_.emplace(key, &made.front());
  heaps_.splice(heaps_.end(), made);
  return heaps_.back();
}

void* device_pools::allocate(std::size_t bytes, std::size_t align, gpu::stream_handle stream,
                             std::uint64_t graphs) {
  if constexpr (check_level >= 2) detail::require_power_of_two(kind, options_.name, align);
  stream_heap& from = of(stream, graphs);
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
    live_.emplace(block, live_block{&from, bytes, align, stream, {}});
    live_bytes_ += bytes;
    peak_live_bytes_ = std::max(peak_live_bytes_, live_bytes_);
  } catch (...) {
    from.free_block({block, bytes, align});
    throw;
  }
  return block;
}

bool device_pools::record_use(void* block, gpu::stream_handle stream) {
  const std::scoped_lock lock{mutex_};
  const auto found = live_.find(block);
  if (found == live_.end()) return false;
  live_block& used = found->second;
  const auto is_it = [&](gpu::stream_handle each) { return gpu::is_same_stream(each, stream); };
  if (is_it(used.stream) || std::ranges::any_of(used.used_on, is_it)) return true;
  used.used_on.reserve(used.used_on.size() + 2);
  used.used_on.push_back(stream);
  return true;
}

void device_pools::deallocate(void* block, std::size_t bytes, std::size_t align,
                              gpu::stream_handle last_used_on) noexcept {
  end_block(block, bytes, align, &last_used_on);
}

void device_pools::deallocate(void* block, std::size_t bytes, std::size_t align) noexcept {
  end_block(block, bytes, align, nullptr);
}

// @param last_used_on null: the block's own stream
void device_pools::end_block(void* block, std::size_t bytes, std::size_t align,
                             gpu::stream_handle const* last_used_on) noexcept {
  if (block == nullptr) return;
  std::unordered_map<void*, live_block>::node_type ended;
  {
    const std::scoped_lock lock{mutex_};
    const auto found = live_.find(block);
    if (found != live_.end() && found->second.bytes == bytes && found->second.align == align) {
      ended = live_.extract(found);
      live_bytes_ -= bytes;
    }
  }
  if (ended) {
    live_block& of = ended.mapped();
    if (last_used_on == nullptr && of.of->serves(of.stream))
      return of.of->route_return({block, bytes, align}, of.used_on);
    gpu::stream_handle const last = last_used_on != nullptr ? *last_used_on : of.stream;
    if (of.used_on.empty()) return of.of->route_return({block, bytes, align}, {&last, 1});
    of.used_on.push_back(last);  // capacity is reserved
    return of.of->route_return({block, bytes, align}, of.used_on);
  }
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
    const auto found = serving_.find({0, key_of(stream)});
    if (found == serving_.end()) return;
    ending = found->second;
  }
  if (const std::size_t blocks = ending->blocks_after_wait(); blocks != 0) {
    throw std::logic_error{"device_pools '" + std::string{options_.name} + "': forget while " +
                           std::to_string(blocks) +
                           " blocks of the stream are in use, or of a graph (release_captured)"};
  }
  remove([&](stream_heap const& each) { return &each == ending; });
}

bool device_pools::release_graphs(std::uint64_t graphs) noexcept {
  detail::late_reports late;
  const std::scoped_lock alone{maintenance_};
  std::size_t blocks = 0;
  for_each_heap([&](stream_heap& each) {
    if (each.graphs() == graphs) blocks += each.blocks_after_wait();
  });
  if (blocks == 0) remove([&](stream_heap const& each) { return each.graphs() == graphs; });
  return blocks == 0;
}

void device_pools::end_capture(std::uint64_t graphs) noexcept {
  detail::late_reports late;
  const std::scoped_lock alone{maintenance_};
  {
    const std::scoped_lock lock{mutex_};
    std::erase_if(serving_, [&](auto const& each) { return each.first.first == graphs && graphs != 0; });
    for (stream_heap& each : heaps_) {
      if (each.graphs() == graphs && graphs != 0)
        each.serve_captures_of(gpu::detail::stream_returns::no_stream());
    }
  }
  for_each_heap([](stream_heap& each) { each.end_captures(); });
}

void device_pools::begin_step(std::uint64_t step_kind) {
  const std::scoped_lock alone{maintenance_};
  {
    const std::scoped_lock lock{mutex_};
    step_ = step_kind;
  }
  for_each_heap([&](stream_heap& each) { each.begin_step(step_kind); });
}

void device_pools::end_step() noexcept {
  const std::scoped_lock alone{maintenance_};
  {
    const std::scoped_lock lock{mutex_};
    step_.reset();
  }
  for_each_heap([](stream_heap& each) { each.end_step(); });
}

// Removes heaps, which are destroyed without the lock. @pre `maintenance_` is held.
template <class Predicate>
void device_pools::remove(Predicate is_gone) noexcept {
  std::list<stream_heap> gone;
  const std::scoped_lock lock{mutex_};
  std::erase_if(serving_, [&](auto const& each) { return is_gone(*each.second); });
  for (auto at = heaps_.begin(); at != heaps_.end();) {
    const auto each = at++;
    if (is_gone(*each)) gone.splice(gone.end(), heaps_, each);
  }
}

// Visits all heaps; heaps may be added concurrently. @pre `maintenance_` is held, and no heap is removed.
template <class Call>
void device_pools::for_each_heap(Call call) const {
  auto at = heaps_.end();
  const auto next = [&] {
    const std::scoped_lock lock{mutex_};
    at = at == heaps_.end() ? heaps_.begin() : std::next(at);
    return at != heaps_.end();
  };
  while (next()) call(*at);
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
  const std::scoped_lock lock{mutex_};
  all.peak_requested_bytes = peak_live_bytes_;
  return all;
}

planned_arena_stats device_pools::step_stats() const noexcept {
  const std::scoped_lock alone{maintenance_};
  planned_arena_stats all{.name = options_.name};
  for_each_heap([&](stream_heap const& each) { each.add_to(all); });
  return all;
}

std::size_t device_pools::largest_request(gpu::stream_handle stream) { return of(stream).largest_request(); }

std::size_t device_pools::streams() const noexcept {
  const std::scoped_lock lock{mutex_};
  return static_cast<std::size_t>(
      std::ranges::count_if(heaps_, [](stream_heap const& each) { return each.graphs() == 0; }));
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
