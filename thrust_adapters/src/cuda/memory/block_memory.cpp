// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/memory/block_memory.hpp>

#include <algorithm>
#include <limits>

#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/memory/block_resource.hpp>

#include "../driver/behind_event.hpp"
#include "../driver/driver_errors.hpp"

namespace tidemark::gpu {
namespace {

using detail::on_device, detail::outcome;

/// The name of a kind in messages, and its calls with their names.
struct block_calls {
  char const* name;
  char const* allocating;
  status (driver::*allocate)(std::size_t, std::uintptr_t&) noexcept;
  char const* freeing;
  status (driver::*free)(std::uintptr_t) noexcept;
};

constexpr block_calls calls_by_kind[] = {
    {"device memory", "cuMemAlloc", &driver::allocate, "cuMemFree", &driver::free},
    {"pinned memory", "cuMemHostAlloc", &driver::allocate_pinned, "cuMemFreeHost", &driver::free_pinned},
    {"managed memory", "cuMemAllocManaged", &driver::allocate_managed, "cuMemFree", &driver::free}};
template <block_kind Kind>
constexpr block_calls calls_of = calls_by_kind[static_cast<int>(Kind)];

/// Allocates a block on a device.
[[nodiscard]] outcome allocate_block(block_calls const& calls, driver& driver, device_number device,
                                     std::size_t bytes, std::uintptr_t& block) noexcept {
  const on_device here{driver, device};
  if (here.result() != status::success) return {here.result(), calls.allocating};
  return {(driver.*calls.allocate)(bytes, block), calls.allocating};
}
/// Frees a block, also during a capture.
[[nodiscard]] outcome free_block(block_calls const& calls, driver& driver, device_number device,
                                 std::uintptr_t block) noexcept {
  // The driver knows the block by its address even if its device could not be made current.
  const on_device here{driver, device};
  return {(driver.*calls.free)(block), calls.freeing};
}

}  // namespace

// ---- as an arena's memory ---------------------------------------------------------------------------------

template <block_kind Kind>
byte_range basic_block_memory<Kind>::reserve(std::size_t least_bytes, std::size_t wanted_bytes) {
  const std::size_t bytes = std::max(least_bytes, wanted_bytes);
  if (!block_.empty() || bytes > std::numeric_limits<std::size_t>::max() / 2) return {};
  if (device_ < 0) {
    const status found = driver_->current_device(device_);
    if (found == status::out_of_memory) return {};
    require_success(*driver_, "cuCtxGetDevice", found);
  }
  std::uintptr_t first = 0;
  const auto try_allocate = [&]() -> outcome {
    device_budget::claim claim{driver_->budget(device_), Kind != block_kind::pinned ? bytes : 0};
    if (Kind != block_kind::pinned && !claim.is_allowed()) return {status::out_of_memory, ""};
    const outcome allocated = gpu::allocate_block(calls_of<Kind>, *driver_, device_, bytes, first);
    if (allocated.good()) claim.commit();
    return allocated;
  };
  outcome allocated = try_allocate();
  if (allocated.result == status::out_of_memory && Kind != block_kind::pinned &&
      driver_->budget(device_).relieve())
    allocated = try_allocate();
  if (allocated.result == status::out_of_memory) return {};
  require_success(*driver_, allocated.call, allocated.result);
  block_ = {first, bytes};
  return block_;
}

template <block_kind Kind>
void basic_block_memory<Kind>::release(byte_range range) noexcept {
  block_ = {};
  const outcome freed = gpu::free_block(calls_of<Kind>, *driver_, device_, range.begin);
  if (freed.good()) {
    if (Kind != block_kind::pinned) driver_->budget(device_).subtract_bytes(range.size);
    return;
  }
  detail::report_lost(*driver_, calls_of<Kind>.name, freed.call, freed.result, range.size);
}

template <block_kind Kind>
void basic_block_memory<Kind>::wait_before_reuse(event_handle event) noexcept {
  detail::require_waited(*driver_, calls_of<Kind>.name, detail::wait_for(*driver_, event));
}

template <block_kind Kind>
void basic_block_memory<Kind>::wait_before_reuse(stream_handle last_used_on) noexcept {
  if (device_ < 0) return;  // no block was ever used
  const on_device here{*driver_, device_};
  detail::require_waited(*driver_, calls_of<Kind>.name, detail::wait_for(*driver_, last_used_on));
}

template class basic_block_memory<block_kind::device>;
template class basic_block_memory<block_kind::pinned>;
template class basic_block_memory<block_kind::managed>;

// ---- as a resource ----------------------------------------------------------------------------------------

template <block_kind Kind>
block_resource<Kind>::block_resource(block_resource_options const& options, driver& driver)
    : driver_resource{"block_resource",
                      options.name != nullptr ? options.name : calls_of<Kind>.name,
                      options.device,
                      driver,
                      Kind == block_kind::pinned ? counting::none : counting::counted,
                      check_level >= 1} {}

template <block_kind Kind>
outcome block_resource<Kind>::allocate_block(std::size_t bytes, std::uintptr_t& block) noexcept {
  return gpu::allocate_block(calls_of<Kind>, *driver_, device(), bytes, block);
}

template <block_kind Kind>
outcome block_resource<Kind>::free_block(std::uintptr_t block, std::size_t) noexcept {
  return gpu::free_block(calls_of<Kind>, *driver_, device(), block);
}

// The driver has no number for memory that is not on the device.
template <block_kind Kind>
std::size_t block_resource<Kind>::largest_bytes() const noexcept {
  if constexpr (Kind != block_kind::device) return exhaustion_report::unknown_bytes;
  const on_device here{*driver_, device()};
  return here.result() == status::success ? detail::free_bytes(*driver_) : exhaustion_report::unknown_bytes;
}

template class block_resource<block_kind::device>;
template class block_resource<block_kind::pinned>;
template class block_resource<block_kind::managed>;

}  // namespace tidemark::gpu
