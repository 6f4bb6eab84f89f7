// SPDX-License-Identifier: Apache-2.0
#include "device_memory.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <new>
#include <ranges>
#include <stdexcept>

#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>

namespace tidemark::torch {
namespace {

using gpu::detail::capture_state;

std::string name_of_pool(pool_id id) {
  return "pool (" + std::to_string(id.first) + ", " + std::to_string(id.second) + ")";
}

template <class Vector>
void make_room(Vector& of, std::size_t elements) {
  if (of.capacity() < elements) of.reserve(2 * elements);
}

}  // namespace

device_memory::device_memory(gpu::device_number device, settings const& chosen, trace_log* log,
                             gpu::driver& driver)
    : driver_{&driver},
      device_{device},
      chosen_{chosen},
      log_{log},
      segments_{{.driver = &driver, .device = device, .stream = nullptr, .log = log, .name = ""},
                chosen.max_cached_bytes} {}

device_memory::~device_memory() {
  end_step();
  collect();
}

memory_place device_memory::place_of(gpu::stream_handle stream, char const* what) const {
  char name[64];
  std::snprintf(name, sizeof name, "cuda:%d %s %#" PRIxPTR, device_, what,
                reinterpret_cast<std::uintptr_t>(stream));
  return {.driver = driver_, .device = device_, .stream = stream, .log = log_, .name = name};
}

// ---- blocks -----------------------------------------------------------------------------------------------

std::pair<stream_memory*, device_memory::capture_pool*> device_memory::memory_for(gpu::stream_handle stream) {
  for (recording const& open : std::views::reverse(recordings_)) {
    if (!open.takes(stream)) continue;
    capture_pool& pool = pools_.at(open.id);
    const auto made = pool.streams.try_emplace(stream, place_of(stream, "captured on"));
    return {&made.first->second, &pool};
  }
  if (const auto found = streams_.find(stream); found != streams_.end()) return {&found->second, nullptr};
  const auto made = streams_.try_emplace(stream, place_of(stream, "stream"), chosen_).first;
  if (step_) made->second.begin_step(*step_);
  return {&made->second, nullptr};
}

void* device_memory::allocate(std::size_t bytes, gpu::stream_handle stream) {
  if (gpu::is_same_stream(stream, nullptr)) stream = nullptr;  // the legacy stream has two handles
  const std::scoped_lock lock{mutex_};
  retire(false);
  const auto [memory, pool] = memory_for(stream);
  try {
    return allocate_from(*memory, pool, bytes);
  } catch (std::bad_alloc const&) {
    retire(true);
    collect_streams(holds_released_pools() && wait_for_device());
  }
  try {
    return allocate_from(*memory, pool, bytes);
  } catch (...) {
    ++refused_;
    throw;
  }
}

void* device_memory::allocate_from(stream_memory& memory, capture_pool* pool, std::size_t bytes) {
  void* const block = memory.allocate(bytes);
  try {
    blocks_.try_emplace(block, live_block{.of = &memory, .pool = pool, .bytes = bytes, .uses = {}});
  } catch (...) {
    memory.deallocate(block, bytes);
    throw;
  }
  if (pool != nullptr) ++pool->live_blocks;
  ++allocations_;
  used_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  return block;
}

bool device_memory::deallocate(void* block) noexcept {
  const std::scoped_lock lock{mutex_};
  const auto found = blocks_.find(block);
  if (found == blocks_.end() || found->second.is_freed) return false;
  live_block& ending = found->second;
  ending.is_freed = true;
  if (ending.uses.empty()) {
    end_block(block, ending);
    blocks_.erase(found);
  } else {
    for (stream_use& use : ending.uses) (void)try_record(use);
    waiting_.push_back(block);  // capacity is reserved
  }
  retire(false);
  return true;
}

void device_memory::end_block(void* block, live_block const& ending) noexcept {
  ending.of->deallocate(block, ending.bytes);
  if (ending.pool != nullptr) --ending.pool->live_blocks;
  if (!ending.uses.empty()) --shared_blocks_;
  shared_uses_ -= ending.uses.size();
  ++deallocations_;
  used_bytes_ -= ending.bytes;
}

// ---- other streams ----------------------------------------------------------------------------------------

bool device_memory::record_stream(void* block, gpu::stream_handle stream) {
  const std::scoped_lock lock{mutex_};
  const auto found = blocks_.find(block);
  if (found == blocks_.end()) return false;
  live_block& shared = found->second;
  const auto is_that = [&](stream_use const& use) { return gpu::is_same_stream(use.stream, stream); };
  if (gpu::is_same_stream(shared.of->stream(), stream) || std::ranges::any_of(shared.uses, is_that))
    return true;
  make_room(waiting_, shared_blocks_ + 1);
  make_room(busy_, shared_uses_ + 1);
  const gpu::detail::on_device here{*driver_, device_};
  gpu::require_success(*driver_, "cudaSetDevice", here.result());
  shared.uses.push_back({.stream = stream, .event = gpu::event{*driver_}});
  if (shared.uses.size() == 1) ++shared_blocks_;
  ++shared_uses_;
  return true;
}

bool device_memory::try_record(stream_use& use) noexcept {
  if (use.is_recorded) return true;
  const gpu::detail::on_device here{*driver_, device_};
  // A failed record is tried again, and a wait for the device ends all uses.
  use.is_recorded = gpu::detail::capture_state_of(*driver_, use.stream) == capture_state::none &&
                    driver_->record(use.event.get(), use.stream) == gpu::status::success;
  return use.is_recorded;
}

bool device_memory::is_unused(live_block& block, bool waits) noexcept {
  bool recorded = true;
  for (stream_use& use : block.uses) recorded &= try_record(use);
  if (!recorded) return false;
  const gpu::detail::relaxed_mode asking{*driver_};
  return std::ranges::all_of(block.uses, [&](stream_use const& use) {
    // Events of one stream are done in order.
    if (std::ranges::find(busy_, use.stream) != busy_.end()) return false;
    auto* const event = use.event.get();
    if (gpu::detail::shows_end_of_work(waits ? driver_->synchronize(event) : driver_->query(event)))
      return true;
    busy_.push_back(use.stream);  // capacity is reserved
    return false;
  });
}

void device_memory::retire(bool waits) noexcept {
  if (waiting_.empty()) return;
  busy_.clear();
  std::erase_if(waiting_, [&](void* block) {
    const auto found = blocks_.find(block);
    if (!is_unused(found->second, waits)) return false;
    end_block(block, found->second);
    blocks_.erase(found);
    return true;
  });
}

void device_memory::retire_all() noexcept {
  for (void* const block : waiting_) {
    const auto found = blocks_.find(block);
    end_block(block, found->second);
    blocks_.erase(found);
  }
  waiting_.clear();
}

// ---- captures ---------------------------------------------------------------------------------------------

void device_memory::begin_pool(pool_id id, stream_filter filter) {
  const std::scoped_lock lock{mutex_};
  if (std::ranges::any_of(recordings_, [&](recording const& open) { return open.id == id; }))
    throw std::runtime_error{"tidemark_torch: " + name_of_pool(id) + " is recorded to already"};
  recordings_.reserve(recordings_.size() + 1);
  ++pools_[id].uses;
  recordings_.push_back({.id = id, .takes = std::move(filter)});
}

void device_memory::end_pool(pool_id id) {
  const std::scoped_lock lock{mutex_};
  if (std::erase_if(recordings_, [&](recording const& open) { return open.id == id; }) == 0)
    throw std::runtime_error{"tidemark_torch: " + name_of_pool(id) + " is not recorded to"};
}

bool device_memory::release_pool(pool_id id) noexcept {
  const std::scoped_lock lock{mutex_};
  const auto found = pools_.find(id);
  if (found == pools_.end() || found->second.uses == 0) return false;
  --found->second.uses;
  return true;
}

bool device_memory::holds_released_pools() const noexcept {
  return std::ranges::any_of(
      pools_, [](auto const& each) { return each.second.uses == 0 && each.second.live_blocks == 0; });
}

// A graph may be launched on any stream: only a wait for the device shows that its memory is unused. The wait
// would end every capture on the device.
bool device_memory::wait_for_device() noexcept {
  if (!recordings_.empty()) return false;
  const gpu::detail::on_device here{*driver_, device_};
  return here.result() == gpu::status::success && gpu::detail::shows_end_of_work(driver_->synchronize());
}

// ---- steps and idle memory --------------------------------------------------------------------------------

void device_memory::begin_step(std::int64_t kind) {
  const std::scoped_lock lock{mutex_};
  step_ = kind;
  for (auto& [stream, memory] : streams_) memory.begin_step(kind);
}

void device_memory::end_step() noexcept {
  const std::scoped_lock lock{mutex_};
  step_.reset();
  for (auto& [stream, memory] : streams_) memory.end_step();
}

void device_memory::collect() noexcept {
  const std::scoped_lock lock{mutex_};
  const bool is_idle = wait_for_device();
  if (is_idle) {
    retire_all();
  } else {
    retire(true);
  }
  collect_streams(is_idle);
  segments_.collect();
}

void device_memory::collect_streams(bool is_idle) noexcept {
  for (auto& [stream, memory] : streams_) memory.collect();
  if (is_idle)
    std::erase_if(pools_,
                  [](auto const& each) { return each.second.uses == 0 && each.second.live_blocks == 0; });
}

void device_memory::set_memory_fraction(double fraction) {
  gpu::memory_info info;
  const gpu::detail::on_device here{*driver_, device_};
  gpu::require_success(*driver_, "cudaSetDevice", here.result());
  gpu::require_success(*driver_, "cuMemGetInfo", driver_->memory(info));
  driver_->budget(device_).set_limit(
      static_cast<std::size_t>(fraction * static_cast<double>(info.total_bytes)));
}

std::string device_memory::statistics() const {
  const std::scoped_lock lock{mutex_};
  stream_counts all;
  for (auto const& [stream, memory] : streams_) {
    const stream_counts one = memory.counts();
    all.cached_bytes += one.cached_bytes;
    all.steps += one.steps;
    all.planned_steps += one.planned_steps;
    all.partly_planned_steps += one.partly_planned_steps;
    all.unplanned_steps += one.unplanned_steps;
    all.planned_allocations += one.planned_allocations;
    all.fallback_allocations += one.fallback_allocations;
    all.outside_allocations += one.outside_allocations;
    all.misses += one.misses;
  }
  std::size_t pending_bytes = 0;
  for (void* const block : waiting_) pending_bytes += blocks_.at(block).bytes;
  std::string text = R"({"resource": ")" + std::string{name_of(chosen_.resource)} + "\"";
  const auto add = [&](char const* word, std::uint64_t value) {
    text += R"(, ")" + std::string{word} + R"(": )" + std::to_string(value);
  };
  add("allocations", allocations_);
  add("deallocations", deallocations_);
  add("refused", refused_);
  add("used_blocks", blocks_.size());
  add("used_bytes", used_bytes_);
  add("peak_bytes", peak_bytes_);
  add("pending_bytes", pending_bytes);
  add("cached_bytes", all.cached_bytes);
  const std::size_t held_bytes = driver_->budget(device_).held_bytes();
  add("held_bytes", held_bytes);
  // The names of `torch.cuda.memory_stats`, in which a block that waits for other streams counts as freed.
  add("allocated_bytes.all.current", used_bytes_ - pending_bytes);
  add("allocated_bytes.all.peak", peak_bytes_);
  add("reserved_bytes.all.current", held_bytes);
  add("reserved_bytes.all.peak", driver_->budget(device_).peak_bytes());
  add("allocation.all.allocated", allocations_);
  add("allocation.all.freed", deallocations_ + waiting_.size());
  add("allocation.all.current", blocks_.size() - waiting_.size());
  add("num_ooms", refused_);
  add("streams", streams_.size());
  add("capture_pools", pools_.size());
  add("segment_bytes", segments_.used_bytes());
  add("steps", all.steps);
  add("planned_steps", all.planned_steps);
  add("partly_planned_steps", all.partly_planned_steps);
  add("unplanned_steps", all.unplanned_steps);
  add("planned_allocations", all.planned_allocations);
  add("fallback_allocations", all.fallback_allocations);
  add("outside_allocations", all.outside_allocations);
  add("misses", all.misses);
  return text + "}";
}

}  // namespace tidemark::torch
