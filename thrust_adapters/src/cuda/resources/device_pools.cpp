// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/resources/device_pools.hpp>

#include <algorithm>
#include <iterator>
#include <list>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/violation.hpp>

#include "../driver/driver_errors.hpp"
#include "completed_options.hpp"
#include "stream_heap.hpp"

namespace tidemark {
namespace {

constexpr char const* kind = "device_pools";

// Both handles of the legacy stream have one key.
gpu::stream_handle key_of(gpu::stream_handle stream) noexcept {
  return gpu::is_same_stream(stream, nullptr) ? nullptr : stream;
}

device_pools_options completed(device_pools_options options, gpu::driver& driver) {
  if (options.name == nullptr) options.name = device_pools_options{}.name;
  if (options.max_kinds == 0)
    throw std::invalid_argument{std::string{kind} + " '" + options.name + "': max_kinds is 0"};
  options.device = gpu::detail::device_or_current(driver, options.device, options.name);
  return options;
}

}  // namespace

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
      return from.try_allocate(bytes, align, true);
    } catch (std::bad_alloc const&) {
      return nullptr;
    }
  };
  void* block = allocate_in_heap();
  if (block == nullptr) {
    (void)trim();
    (void)driver_->budget(options_.device).relieve(&budget_subscription_);
    {
      const std::scoped_lock lock{mutex_};
      ++retries_;
    }
    block = from.try_allocate(bytes, align, false);
  }
  try {
    const std::scoped_lock lock{mutex_};
    live_.emplace(block, live_block{&from, bytes, align, stream, {}});
    total_bytes_ += bytes;
    peak_live_blocks_ = std::max(peak_live_blocks_, live_.size());
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

// A stream that is still capturing keeps its heap. A nested capture has then ended, such as the body of a
// conditional node; its work is not ordered behind all streams of the open capture.
void device_pools::end_capture(std::uint64_t graphs) noexcept {
  detail::late_reports late;
  const std::scoped_lock alone{maintenance_};
  if (graphs != 0) {
    const std::scoped_lock lock{mutex_};  // `of` must not give a heap to another capture meanwhile
    std::erase_if(serving_, [&](auto const& each) {
      if (each.first.first != graphs || each.second->is_in_open_capture()) return false;
      each.second->serve_captures_of(gpu::detail::stream_returns::no_stream());
      return true;
    });
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
    if (!is_gone(*each)) continue;
    device_pools_stats last;
    each->add_to(last);
    removed_blocks_ += last.allocations;
    planned_arena_stats steps;
    each->add_to(steps);
    steps.plans = steps.used_blocks = 0;
    steps.height_bytes = steps.lower_bound_bytes = steps.committed_bytes = steps.reserved_bytes = 0;
    removed_steps_ += steps;
    gone.splice(gone.end(), heaps_, each);
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
  all.allocations += removed_blocks_;
  all.deallocations += removed_blocks_;
  all.live_blocks = live_.size();
  all.peak_live_blocks = peak_live_blocks_;
  all.live_bytes = live_bytes_;
  all.peak_requested_bytes = peak_live_bytes_;
  all.total_requested_bytes = total_bytes_;
  all.retries = retries_;
  return all;
}

planned_arena_stats device_pools::step_stats() const noexcept {
  const std::scoped_lock alone{maintenance_};
  planned_arena_stats all{.name = options_.name};
  for_each_heap([&](stream_heap const& each) { each.add_to(all); });
  const std::scoped_lock lock{mutex_};
  return all += removed_steps_;
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
