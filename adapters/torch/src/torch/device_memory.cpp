// SPDX-License-Identifier: Apache-2.0
#include "device_memory.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <new>
#include <ranges>
#include <stdexcept>

#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>

namespace tidemark::torch {
namespace {

std::string name_of_pool(pool_id id) {
  return "pool (" + std::to_string(id.first) + ", " + std::to_string(id.second) + ")";
}

}  // namespace

device_memory::device_memory(gpu::device_number device, settings const& chosen, trace_log* log,
                             gpu::driver& driver)
    : driver_{&driver},
      device_{device},
      chosen_{chosen},
      memory_{{.device = device,
               .max_cached_bytes = chosen.max_cached_bytes.value_or(std::numeric_limits<std::size_t>::max()),
               .plans = chosen.resource == resource_kind::planned,
               .max_kinds = chosen.max_kinds.value_or(device_pools_options{}.max_kinds),
               .name = "PyTorch"},
              driver},
      segments_{device, chosen.max_cached_bytes, log, driver} {
  if (log != nullptr) traced_.emplace(&untraced_, *log, "cuda:" + std::to_string(device));
}

device_memory::~device_memory() {
  end_step();
  collect();
}

// ---- blocks -----------------------------------------------------------------------------------------------

// Returns the number of the pool of graphs for a request; 0 if no open capture pool accepts the stream.
std::uint64_t device_memory::graphs_of(gpu::stream_handle stream) const {
  if (open_pools_ == 0) return 0;
  if (gpu::is_same_stream(stream, nullptr)) stream = nullptr;  // the legacy stream has two handles
  const std::scoped_lock lock{mutex_};
  for (recording const& open : std::views::reverse(recordings_)) {
    if (open.takes(stream)) return pools_.at(open.id).number;
  }
  return 0;
}

void* device_memory::allocate(std::size_t bytes, gpu::stream_handle stream) {
  const std::uint64_t graphs = graphs_of(stream);
  try {
    return allocate_from(graphs, bytes, stream);
  } catch (std::bad_alloc const&) {
    if (!release_graphs()) {
      ++refused_;
      throw;
    }
    ++retries_;
  }
  try {
    return allocate_from(graphs, bytes, stream);
  } catch (...) {
    ++refused_;
    throw;
  }
}

void* device_memory::allocate_from(std::uint64_t graphs, std::size_t bytes, gpu::stream_handle stream) {
  if (!traced_) return memory_.allocate(bytes, alignment, stream, graphs);
  const std::scoped_lock lock{trace_mutex_};
  untraced_.stream = stream;
  untraced_.graphs = graphs;
  return traced_->allocate(bytes, alignment);
}

void device_memory::deallocate(void* block, std::size_t bytes) noexcept {
  if (!traced_) return memory_.deallocate(block, bytes, alignment);
  const std::scoped_lock lock{trace_mutex_};
  traced_->deallocate(block, bytes, alignment);
}

// ---- captures ---------------------------------------------------------------------------------------------

void device_memory::begin_pool(pool_id id, stream_filter filter) {
  const std::scoped_lock lock{mutex_};
  if (std::ranges::any_of(recordings_, [&](recording const& open) { return open.id == id; }))
    throw std::runtime_error{"tidemark_torch: " + name_of_pool(id) + " is recorded to already"};
  recordings_.reserve(recordings_.size() + 1);
  const auto [found, is_new] = pools_.try_emplace(id);
  if (is_new) found->second.number = ++last_number_;
  ++found->second.uses;
  recordings_.push_back({.id = id, .takes = std::move(filter)});
  open_pools_ = recordings_.size();
}

void device_memory::end_pool(pool_id id) {
  const std::scoped_lock lock{mutex_};
  if (std::erase_if(recordings_, [&](recording const& open) { return open.id == id; }) == 0)
    throw std::runtime_error{"tidemark_torch: " + name_of_pool(id) + " is not recorded to"};
  open_pools_ = recordings_.size();
  memory_.end_capture(pools_.at(id).number);
}

bool device_memory::release_pool(pool_id id) noexcept {
  const std::scoped_lock lock{mutex_};
  const auto found = pools_.find(id);
  if (found == pools_.end() || found->second.uses == 0) return false;
  --found->second.uses;
  return true;
}

// Returns the memory of pools whose graphs have ended. A graph may be launched on any stream: only a wait for
// the device shows that its memory is unused. The wait would end every capture on the device. @return true if
// memory was returned
bool device_memory::release_graphs() noexcept {
  const std::scoped_lock lock{mutex_};
  const auto has_ended = [](auto const& pool) { return pool.second.uses == 0; };
  if (!recordings_.empty() || std::ranges::none_of(pools_, has_ended)) return false;
  {
    const gpu::detail::on_device here{*driver_, device_};
    if (here.result() != gpu::status::success || !gpu::detail::shows_end_of_work(driver_->synchronize()))
      return false;
  }
  return std::erase_if(pools_, [&](auto const& pool) {
           return has_ended(pool) && memory_.release_graphs(pool.second.number);
         }) != 0;
}

// ---- idle memory ------------------------------------------------------------------------------------------

void device_memory::collect() noexcept {
  (void)release_graphs();
  (void)memory_.trim();
  segments_.collect();
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
  const device_pools_stats now = memory_.stats();
  const planned_arena_stats steps = memory_.step_stats();
  const std::size_t active_bytes = now.requested_bytes + now.pending_bytes;
  const std::size_t pending_bytes =
      active_bytes - std::min(active_bytes, now.live_bytes);  // other threads may deallocate meanwhile
  const std::size_t held_bytes = driver_->budget(device_).held_bytes();
  // The names of `torch.cuda.memory_stats`, without segments and numbers that tidemark does not count. Blocks
  // that wait for a stream or a graph are active.
  constexpr char const* metrics[] = {"current", "peak", "allocated", "freed"};
  using counts = std::array<std::optional<std::uint64_t>, std::size(metrics)>;
  const auto counted = [](std::uint64_t current, std::optional<std::uint64_t> peak, std::uint64_t all) {
    return counts{current, peak, all, all - std::min(all, current)};  // other threads may allocate meanwhile
  };
  const counts bytes = counted(now.live_bytes, now.peak_requested_bytes, now.total_requested_bytes);
  const std::pair<char const*, counts> rows[] = {
      {"allocation", counted(now.live_blocks, now.peak_live_blocks, now.allocations)},
      {"allocated_bytes", bytes},
      {"requested_bytes", bytes},
      {"active", counted(now.allocations - now.deallocations, {}, now.allocations)},
      {"active_bytes", counted(active_bytes, {}, now.total_requested_bytes)},
      {"inactive_split_bytes", {now.stranded_bytes}},
      {"reserved_bytes", {held_bytes, driver_->budget(device_).peak_bytes()}},
  };
  std::string text = R"({"resource": ")" + std::string{name_of(chosen_.resource)} + "\"";
  const auto add = [&](char const* word, std::uint64_t value) {
    text += R"(, ")" + std::string{word} + R"(": )" + std::to_string(value);
  };
  add("allocations", now.allocations);
  add("deallocations", now.deallocations);
  add("refused", refused_);
  add("used_blocks", now.live_blocks);
  add("used_bytes", now.live_bytes);
  add("peak_bytes", now.peak_requested_bytes);
  add("pending_bytes", pending_bytes);
  add("cached_bytes", now.cached_bytes);
  add("held_bytes", held_bytes);
  for (auto const& [name, values] : rows) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i]) add((std::string{name} + ".all." + metrics[i]).c_str(), *values[i]);
    }
  }
  add("num_alloc_retries", now.retries + retries_);
  add("num_ooms", refused_);
  add("streams", memory_.streams());
  {
    const std::scoped_lock lock{mutex_};
    add("capture_pools", pools_.size());
  }
  add("segment_bytes", segments_.used_bytes());
  add("steps", steps.steps);
  add("planned_steps", steps.planned_steps);
  add("partly_planned_steps", steps.partly_planned_steps);
  add("unplanned_steps", steps.unplanned_steps);
  add("planned_allocations", steps.planned_allocations);
  add("fallback_allocations", steps.fallback_allocations);
  add("outside_allocations", steps.outside_allocations);
  add("misses", steps.misses);
  return text + "}";
}

}  // namespace tidemark::torch
