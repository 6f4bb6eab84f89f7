// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/detail/uncaptured_memory.hpp>

#include <limits>
#include <utility>

#include <tidemark/cuda/detail/capturing.hpp>
#include <tidemark/cuda/detail/on_device.hpp>
#include <tidemark/out_of_memory.hpp>
#include <tidemark/violation.hpp>

namespace tidemark::cuda::detail {
namespace {

constexpr char const* in_capture =
    "its stream is capturing, and memory that is taken then would be the graph's";

async_resource_options of_pool(async_resource_options options, pool_handle pool) noexcept {
  options.pool = pool;
  return options;
}

}  // namespace

uncaptured_memory::uncaptured_memory(memory_pool_options const& pool, async_resource_options const& blocks,
                                     std::pmr::memory_resource* bookkeeping, driver& driver)
    : driver_{&driver},
      pool_{pool, driver},
      blocks_{of_pool(blocks, pool_.get()), driver},
      waiting_{bookkeeping} {}

uncaptured_memory::~uncaptured_memory() {
  if (waiting_.empty()) return;
  const on_device here{*driver_, blocks_.device()};
  if (is_capturing(*driver_, blocks_.stream())) {
    std::size_t bytes = 0;
    for (given_back const& each : waiting_) bytes += each.bytes;
    tidemark::detail::report_violation(violation_kind::open_capture, blocks_.name(),
                                       "%s: destroyed while its stream is capturing: %zu bytes are lost, "
                                       "because to free them would put that "
                                       "into the graph",
                                       blocks_.name(), bytes);
    return;
  }
  free_waiting();
}

void uncaptured_memory::trim() noexcept { (void)driver_->trim_pool(pool_, 0); }

void* uncaptured_memory::do_allocate(std::size_t bytes, std::size_t align) {
  const on_device here{*driver_, blocks_.device()};
  if (may_be_capturing(*driver_, blocks_.stream())) {
    throw out_of_memory{{.resource = blocks_.name(),
                         .requested_bytes = bytes,
                         .alignment = align,
                         .largest_bytes = std::numeric_limits<std::size_t>::max(),
                         .because = in_capture}};
  }
  free_waiting();
  reserve_record();
  try {
    return blocks_.allocate(bytes, align);
  } catch (...) {
    const std::scoped_lock lock{mutex_};
    --handed_out_;
    throw;
  }
}

void uncaptured_memory::do_deallocate(void* block, std::size_t bytes, std::size_t align) {
  const on_device here{*driver_, blocks_.device()};
  const bool must_wait = may_be_capturing(*driver_, blocks_.stream());
  {
    const std::scoped_lock lock{mutex_};
    if (must_wait) {
      waiting_.push_back({block, bytes, align});  // there is room
      return;
    }
    --handed_out_;
  }
  free_waiting();
  blocks_.deallocate(block, bytes, align);
}

// Twice as much as there was, so that records cost O(1) a block.
void uncaptured_memory::reserve_record() {
  const std::scoped_lock lock{mutex_};
  if (handed_out_ == waiting_.capacity()) waiting_.reserve(2 * handed_out_ + 16);
  ++handed_out_;
}

void uncaptured_memory::free_waiting() noexcept {
  while (true) {
    given_back next{};
    {
      const std::scoped_lock lock{mutex_};
      if (waiting_.empty()) return;
      next = waiting_.back();
      waiting_.pop_back();
      --handed_out_;
    }
    blocks_.deallocate(next.block, next.bytes, next.align);
  }
}

}  // namespace tidemark::cuda::detail
