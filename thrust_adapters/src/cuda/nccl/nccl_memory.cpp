// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/nccl/nccl_memory.hpp>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/nccl/nccl_error.hpp>

#include "../driver/behind_event.hpp"
#include "../driver/driver_errors.hpp"

namespace tidemark::gpu {
namespace {

constexpr char const* nccl_memory_name = "memory of NCCL";

}  // namespace

nccl_memory::nccl_memory(nccl_memory_options const& options, nccl& calls, driver& driver)
    : calls_{&calls},
      driver_{&driver},
      device_{detail::device_or_current(driver, options.device, nccl_memory_name)},
      stream_{options.stream} {
  detail::require_one_stream("gpu::nccl_memory", nccl_memory_name, stream_);
}

nccl_memory& nccl_memory::operator=(nccl_memory&& other) noexcept {
  if (this == &other) return *this;
  std::destroy_at(this);
  return *std::construct_at(this, std::move(other));
}

nccl_memory::~nccl_memory() {
  for (block& each : blocks_) each.released = true;
  const detail::outcome freed = free_released();
  std::size_t bytes = 0;
  for (block const& left : blocks_) bytes += left.range.size;
  if (bytes == 0) return;
  if (freed.result == status::capture_isolation) detail::report_lost_in_capture(nccl_memory_name, bytes);
  else detail::report_lost(*driver_, nccl_memory_name, freed.call, freed.result, bytes);
}

byte_range nccl_memory::reserve(std::size_t least_bytes, std::size_t wanted_bytes) {
  refusal_ = "";
  const std::size_t most_bytes = std::max(least_bytes, wanted_bytes);
  if (most_bytes > std::numeric_limits<std::size_t>::max() / 2) return {};
  const detail::on_device here{*driver_, device_};
  if (here.result() == status::out_of_memory) return {};
  require_success(*driver_, "cudaSetDevice", here.result());
  if (detail::capture_state_of(*driver_, stream_) != detail::capture_state::none) {
    refusal_ = "a stream is capturing";
    return {};
  }
  (void)free_released();
  blocks_.reserve(blocks_.size() + 1);

  byte_range range = allocate_range(most_bytes);
  if (range.empty() && driver_->budget(device_).relieve()) range = allocate_range(most_bytes);
  if (range.empty() && least_bytes < most_bytes) {
    range = tidemark::detail::reserve_by_halves(least_bytes, most_bytes / 2,
                                                [this](std::size_t bytes) { return allocate_range(bytes); });
  }
  if (range.empty()) explain_refusal(least_bytes);
  else blocks_.push_back({.range = range});
  return range;
}

// Allocates a block within the budget; empty without memory. @throws nccl_error for errors that cannot be
// missing memory.
byte_range nccl_memory::allocate_range(std::size_t bytes) {
  device_budget::claim claim{driver_->budget(device_), bytes};
  if (!claim.is_allowed()) return {};
  std::uintptr_t first = 0;
  const nccl_status result = calls_->allocate(bytes, first);
  if (result == nccl_status::unhandled_cuda_error) return {};
  require_success(*calls_, "ncclMemAlloc", result);
  claim.commit();
  return {first, bytes};
}

// NCCL does not report the failed CUDA call. A permanent error fails again here and is thrown.
void nccl_memory::explain_refusal(std::size_t bytes) {
  if (!driver_->budget(device_).has_room(bytes)) {
    refusal_ = detail::device_limit_reached;
    return;
  }
  memory_info info;
  const status asked = driver_->memory(info);
  if (asked != status::out_of_memory) require_success(*driver_, "cuMemGetInfo", asked);
  if (info.free_bytes >= bytes) refusal_ = nccl::error_name(nccl_status::unhandled_cuda_error);
}

void nccl_memory::release(byte_range range) noexcept {
  std::ranges::find(blocks_, range, &block::range)->released = true;
  (void)free_released();
}

void nccl_memory::abandon(byte_range range) noexcept {
  std::erase_if(blocks_, [&](block const& each) { return each.range == range; });
}

// Frees released blocks after one wait for the stream. Blocks that cannot be freed now are tried again later.
detail::outcome nccl_memory::free_released() noexcept {
  if (std::ranges::none_of(blocks_, &block::released)) return {};
  const detail::on_device here{*driver_, device_};
  if (here.result() != status::success) return {here.result(), "cudaSetDevice"};
  const status waited = detail::wait_for(*driver_, stream_);
  if (waited != status::success) return {waited, "cuStreamSynchronize"};
  std::erase_if(blocks_, [&](block const& each) {
    if (!each.released) return false;
    const nccl_status freed = calls_->free(each.range.begin);
    if (freed == nccl_status::success) {
      driver_->budget(device_).subtract_bytes(each.range.size);
    } else {
      tidemark::detail::report_warning(
          warning_kind::refused_return, nccl_memory_name,
          "%s: %zu bytes are lost, because NCCL did not free them: ncclMemFree: %s (%s)", nccl_memory_name,
          each.range.size, nccl::error_name(freed), calls_->error_string(freed));
    }
    return true;
  });
  return {};
}

void nccl_memory::wait_before_reuse(event_handle event) noexcept {
  const detail::on_device here{*driver_, device_};
  detail::require_waited(*driver_, nccl_memory_name, detail::wait_behind(*driver_, stream_, event));
}

void nccl_memory::wait_before_reuse(stream_handle last_used_on) noexcept {
  const detail::on_device here{*driver_, device_};
  detail::require_waited(*driver_, nccl_memory_name, detail::wait_behind(*driver_, stream_, last_used_on));
}

}  // namespace tidemark::gpu
