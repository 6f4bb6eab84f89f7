// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/memory/detail/uncaptured_memory.hpp>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>

#include "../driver/behind_event.hpp"
#include "../driver/driver_errors.hpp"

namespace tidemark::gpu::detail {

uncaptured_memory::uncaptured_memory(memory_pool_options const& pool, stream_handle stream, char const* name,
                                     std::pmr::memory_resource* bookkeeping, driver& driver)
    : driver_resource{"uncaptured_memory", name, pool.device, driver, counting::none, false},
      budget_{&driver.budget(device())},
      pool_{pool, driver},
      stream_{stream},
      maps_all_{whole_allocations::are_needed()},
      waiting_{bookkeeping} {
  pool_record_ = budget_->find_pool(pool_);
  trims_ = budget_->add_member([this] { return trim_behind(*driver_, device(), stream_, pool_); },
                               device_budget::giver::pool);
}

uncaptured_memory::~uncaptured_memory() {
  trims_ = {};
  const std::size_t bytes = waiting_.bytes();
  if (bytes == 0) return;
  const on_device here{*driver_, device()};
  if (capture_state_of(*driver_, stream_) == capture_state::none) {
    free_waiting();
    return;
  }
  tidemark::detail::report_violation(violation_kind::open_capture, name(),
                                     "%s: destroyed while its stream is capturing: %zu bytes are lost, "
                                     "because the free would become part of the graph",
                                     name(), bytes);
}

outcome uncaptured_memory::allocate_block(std::size_t bytes, std::uintptr_t& block) {
  const on_device here{*driver_, device()};
  if (maps_all_ || capture_state_of(*driver_, stream_) != capture_state::none) return map_block(bytes, block);
  if (here.result() != status::success) return {here.result(), "cuCtxSetCurrent"};
  free_waiting();
  device_budget::claim claim{*budget_, bytes, pool_record_.get()};
  if (!claim.is_allowed()) return {status::out_of_memory, limit_call};
  waiting_.add();
  const outcome allocated{driver_->allocate_async(bytes, pool_, stream_, block), "cuMemAllocFromPoolAsync"};
  if (allocated.good()) claim.keep();
  else waiting_.remove();
  return allocated;
}

outcome uncaptured_memory::free_block(std::uintptr_t block, std::size_t bytes) noexcept {
  const bool was_mapped = retire_mapped(block);
  const on_device here{*driver_, device()};
  if (capture_state_of(*driver_, stream_) != capture_state::none) {
    if (!was_mapped) waiting_.push({reinterpret_cast<void*>(block), bytes, default_alignment});
    return {};
  }
  if (!was_mapped) waiting_.remove();
  free_waiting();
  if (was_mapped) return {};
  const outcome freed{driver_->free_async(block, stream_), "cuMemFreeAsync"};
  if (freed.good()) budget_->give(bytes, pool_record_.get());
  return freed;
}

// A block with an address space of its own, which counts in the budget. No lock is held while it is made: the ladder
// of the budget may deallocate blocks of this memory.
outcome uncaptured_memory::map_block(std::size_t bytes, std::uintptr_t& block) {
  virtual_memory space{virtual_memory_options{.device = device(), .stream = stream_}, *driver_};
  const byte_range range = space.reserve(bytes, bytes);
  if (range.empty() || !space.commit(range)) {
    throw out_of_memory{{.resource = name(),
                         .requested_bytes = bytes,
                         .alignment = default_alignment,
                         .largest_bytes = exhaustion_report::unknown_bytes,
                         .because = space.refusal()}};
  }
  const std::scoped_lock lock{mapped_mutex_};
  mapped_.emplace(range.begin, std::move(space));
  block = range.begin;
  return {};
}

// Moves a mapped block to those that are freed outside of captures. False if the block is of the pool.
bool uncaptured_memory::retire_mapped(std::uintptr_t block) noexcept {
  const std::scoped_lock lock{mapped_mutex_};
  auto found = mapped_.extract(block);
  if (found.empty()) return false;
  retired_.insert(std::move(found));
  return true;
}

void uncaptured_memory::free_waiting() noexcept {
  mapped_blocks unmapped;  // each after a wait for the stream, without the lock
  {
    const std::scoped_lock lock{mapped_mutex_};
    unmapped.swap(retired_);
  }
  unmapped.clear();
  while (const std::optional<waiting_blocks::block> next = waiting_.pop()) {
    waiting_.remove();
    const status freed = driver_->free_async(reinterpret_cast<std::uintptr_t>(next->first), stream_);
    if (freed == status::success) budget_->give(next->bytes, pool_record_.get());
    else report_lost(*driver_, name(), "cuMemFreeAsync", freed, next->bytes);
  }
}

}  // namespace tidemark::gpu::detail
