// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/memory/detail/uncaptured_memory.hpp>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>

#include "../driver/driver_errors.hpp"

namespace tidemark::gpu::detail {

uncaptured_memory::uncaptured_memory(memory_pool_options const& pool, stream_handle stream, char const* name,
                                     std::pmr::memory_resource* bookkeeping, driver& driver)
    : driver_resource{"uncaptured_memory", name, pool.device, driver, counting::none, false},
      budget_{&driver.budget(device())},
      pool_{pool, driver},
      stream_{stream},
      waiting_{bookkeeping} {}

uncaptured_memory::~uncaptured_memory() {
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
  if (capture_state_of(*driver_, stream_) != capture_state::none) {
    throw out_of_memory{{.resource = name(),
                         .requested_bytes = bytes,
                         .alignment = default_alignment,
                         .largest_bytes = exhaustion_report::unknown_bytes,
                         .because = "its stream is capturing, and the memory would belong to the graph"}};
  }
  if (here.result() != status::success) return {here.result(), "cuCtxSetCurrent"};
  free_waiting();
  device_budget::claim claim{*budget_, bytes};
  if (!claim.is_allowed()) return {status::out_of_memory, limit_call};
  waiting_.add();
  const outcome allocated{driver_->allocate_async(bytes, pool_, stream_, block), "cuMemAllocFromPoolAsync"};
  if (allocated.good()) claim.keep();
  else waiting_.remove();
  return allocated;
}

outcome uncaptured_memory::free_block(std::uintptr_t block, std::size_t bytes) noexcept {
  const on_device here{*driver_, device()};
  if (capture_state_of(*driver_, stream_) != capture_state::none) {
    waiting_.push({reinterpret_cast<void*>(block), bytes, default_alignment});
    return {};
  }
  waiting_.remove();
  free_waiting();
  const outcome freed{driver_->free_async(block, stream_), "cuMemFreeAsync"};
  if (freed.good()) budget_->give(bytes);
  return freed;
}

void uncaptured_memory::free_waiting() noexcept {
  while (const std::optional<waiting_blocks::block> next = waiting_.pop()) {
    waiting_.remove();
    const status freed = driver_->free_async(reinterpret_cast<std::uintptr_t>(next->first), stream_);
    if (freed == status::success) budget_->give(next->bytes);
    else report_lost(*driver_, name(), "cuMemFreeAsync", freed, next->bytes);
  }
}

}  // namespace tidemark::gpu::detail
