// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/memory/detail/uncaptured_memory.hpp>

#include <mutex>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>

#include "../driver/driver_errors.hpp"

namespace tidemark::cuda::detail {

uncaptured_memory::uncaptured_memory(memory_pool_options const& pool, stream_handle stream, char const* name,
                                     std::pmr::memory_resource* bookkeeping, driver& driver)
    : driver_resource{"uncaptured_memory", name, pool.device, driver, false},
      pool_{pool, driver},
      stream_{stream},
      waiting_{bookkeeping} {}

uncaptured_memory::~uncaptured_memory() {
  if (waiting_.empty()) return;
  const on_device here{*driver_, device()};
  if (!is_capturing(*driver_, stream_)) {
    free_waiting();
    return;
  }
  std::size_t bytes = 0;
  for (freed_block const& each : waiting_) bytes += each.bytes;
  tidemark::detail::report_violation(violation_kind::open_capture, name(),
                                     "%s: destroyed while its stream is capturing: %zu bytes are lost, "
                                     "because the free would become part of the graph",
                                     name(), bytes);
}

outcome uncaptured_memory::allocate_block(std::size_t bytes, std::uintptr_t& block) {
  const on_device here{*driver_, device()};
  if (may_be_capturing(*driver_, stream_)) {
    throw out_of_memory{{.resource = name(),
                         .requested_bytes = bytes,
                         .alignment = default_alignment,
                         .largest_bytes = exhaustion_report::unknown_bytes,
                         .because = "its stream is capturing, and the memory would belong to the graph"}};
  }
  if (here.result() != status::success) return {here.result(), "cuCtxSetCurrent"};
  free_waiting();
  {
    const std::scoped_lock lock{waiting_mutex_};
    // Doubles the capacity, so that a record costs O(1).
    if (live_ == waiting_.capacity()) waiting_.reserve(2 * live_ + 16);
    ++live_;
  }
  const outcome allocated{driver_->allocate_async(bytes, pool_, stream_, block), "cuMemAllocFromPoolAsync"};
  if (!allocated.good()) {
    const std::scoped_lock lock{waiting_mutex_};
    --live_;
  }
  return allocated;
}

outcome uncaptured_memory::free_block(std::uintptr_t block, std::size_t bytes) noexcept {
  const on_device here{*driver_, device()};
  const bool must_wait = may_be_capturing(*driver_, stream_);
  {
    const std::scoped_lock lock{waiting_mutex_};
    if (must_wait) {
      waiting_.push_back({block, bytes});  // has the capacity
      return {};
    }
    --live_;
  }
  free_waiting();
  return {driver_->free_async(block, stream_), "cuMemFreeAsync"};
}

void uncaptured_memory::free_waiting() noexcept {
  while (true) {
    freed_block next{};
    {
      const std::scoped_lock lock{waiting_mutex_};
      if (waiting_.empty()) return;
      next = waiting_.back();
      waiting_.pop_back();
      --live_;
    }
    const status freed = driver_->free_async(next.block, stream_);
    if (freed != status::success) report_lost(*driver_, name(), "cuMemFreeAsync", freed, next.bytes);
  }
}

}  // namespace tidemark::cuda::detail
