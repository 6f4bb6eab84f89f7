// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/virtual_memory.hpp>

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/cuda/cuda_error.hpp>
#include <tidemark/detail/align.hpp>
#include <tidemark/violation.hpp>

#include "behind_event.hpp"
#include "refusal.hpp"

namespace tidemark::cuda {
namespace {

constexpr char const* device_memory_name = "device memory";
constexpr char const* is_suspended_text = "it is suspended";

}  // namespace

virtual_memory::virtual_memory(virtual_memory_options options, driver& driver)
    : driver_{&driver}, device_{options.device}, stream_{options.stream} {
  if (options.handle_bytes != 0 && !std::has_single_bit(options.handle_bytes)) {
    throw std::invalid_argument("cuda::virtual_memory: handle_bytes is " +
                                std::to_string(options.handle_bytes) + ", which is not a power of two");
  }
  // The first calls of a program make the device's context, which needs memory.
  constexpr exhaustion_report no_report_yet{.resource = device_memory_name,
                                            .largest_bytes = std::numeric_limits<std::size_t>::max()};
  if (options.device < 0) {
    detail::require_memory(driver, "cuCtxGetDevice", driver.current_device(device_), no_report_yet);
  }
  const detail::on_device here{driver, device_};
  detail::require_memory(driver, "cudaSetDevice", here.result(), no_report_yet);
  std::size_t granularity = 0;
  detail::require_memory(driver, "cuMemGetAllocationGranularity", driver.granularity(device_, granularity),
                         no_report_yet);
  unit_bytes_ = std::max(granularity, options.handle_bytes);
  memory_info info;
  detail::require_memory(driver, "cuMemGetInfo", driver.memory(info), no_report_yet);
  chunk_bytes_ = tidemark::detail::align_up(info.total_bytes, unit_bytes_);
}

virtual_memory& virtual_memory::operator=(virtual_memory&& other) noexcept {
  if (this == &other) return *this;
  give_back_all();
  driver_ = other.driver_;
  device_ = other.device_;
  stream_ = other.stream_;
  unit_bytes_ = other.unit_bytes_;
  chunk_bytes_ = other.chunk_bytes_;
  refusal_ = other.refusal_;
  suspended_ = other.suspended_;
  ranges_ = std::exchange(other.ranges_, {});
  return *this;
}

virtual_memory::~virtual_memory() { give_back_all(); }

byte_range virtual_memory::reserve(std::size_t least_bytes, std::size_t wanted_bytes) {
  refusal_ = "";
  const std::size_t bytes = std::max(least_bytes, wanted_bytes);
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) return {};
  if (suspended_) {
    refusal_ = is_suspended_text;
    return {};
  }
  const detail::on_device here{*driver_, device_};
  if (!granted(may_change(here))) return {};
  give_back_released();
  ranges_.reserve(ranges_.size() + 1);
  byte_range range;
  const status reserved =
      driver_->reserve(tidemark::detail::align_up(bytes, unit_bytes_), unit_bytes_, range);
  if (reserved == status::out_of_memory) return {};
  require(*driver_, "cuMemAddressReserve", reserved);
  ranges_.emplace_back(*driver_, device_, unit_bytes_, range);
  return range;
}

bool virtual_memory::commit(byte_range part) noexcept {
  refusal_ = "";
  if (suspended_) {
    refusal_ = is_suspended_text;
    return false;
  }
  const detail::on_device here{*driver_, device_};
  if (!granted(may_change(here))) return false;
  give_back_released();
  detail::mapped_range& range = range_of(part);
  if (!range.want(part, true)) return false;
  const detail::outcome mapped = range.map(part);
  if (mapped.good()) return true;
  (void)range.want(part, false);
  (void)range.unmap(part);  // nothing uses it yet
  range.let_go(part);
  return granted(mapped);
}

bool virtual_memory::decommit(byte_range part) noexcept {
  detail::mapped_range& range = range_of(part);
  if (suspended_) return range.want(part, false);
  const detail::on_device here{*driver_, device_};
  if (!may_change(here).good() || !wait().good()) return false;
  if (!range.unmap(part).good()) {
    suspended_ = !range.map(part).good();
    return false;
  }
  (void)range.want(part, false);
  range.let_go(part);
  give_back_released();
  return true;
}

void virtual_memory::release(byte_range range) noexcept {
  range_of(range).end();
  const detail::on_device here{*driver_, device_};
  if (may_change(here).good()) give_back_released();
}

void virtual_memory::suspend() {
  if (suspended_) return;
  const detail::on_device here{*driver_, device_};
  require_may_change("suspend", here);
  give_back_released();
  detail::outcome unmapped = wait();
  if (!unmapped.good()) throw cuda_error{*driver_, unmapped.call, unmapped.result};
  for (detail::mapped_range& range : ranges_) {
    unmapped = range.unmap(range.range());
    if (unmapped.good()) continue;
    suspended_ = !map_again().good();
    throw cuda_error{*driver_, unmapped.call, unmapped.result};
  }
  for (detail::mapped_range& range : ranges_) range.let_go(range.range());
  suspended_ = true;
}

void virtual_memory::resume() {
  if (!suspended_) return;
  const detail::on_device here{*driver_, device_};
  require_may_change("resume", here);
  give_back_released();
  const detail::outcome mapped = map_again();
  if (!mapped.good()) {
    exhaustion_report report{.resource = device_memory_name, .alignment = unit_bytes_};
    for (detail::mapped_range& range : ranges_) {
      report.requested_bytes += range.wanted_bytes();
      report.reserved_bytes += range.range().size;
      (void)range.unmap(range.range());  // nothing uses it yet
      range.let_go(range.range());
    }
    report.largest_bytes = detail::free_bytes(*driver_);
    detail::require_memory(*driver_, mapped.call, mapped.result, report);
  }
  suspended_ = false;
}

void virtual_memory::wait_before_reuse(event_handle event) noexcept {
  const detail::on_device here{*driver_, device_};
  detail::require_waited(*driver_, device_memory_name, detail::wait_behind(*driver_, stream_, event));
}

// Whether memory may be mapped and unmapped now.
detail::outcome virtual_memory::may_change(detail::on_device const& here) const noexcept {
  if (here.result() != status::success) return {here.result(), "cudaSetDevice"};
  bool capturing = false;
  const status asked = driver_->is_capturing(stream_, capturing);
  if (asked == status::success && capturing) return {status::capture_unsupported, ""};
  return {asked, "cuStreamIsCapturing"};
}

void virtual_memory::require_may_change(char const* operation, detail::on_device const& here) const {
  const detail::outcome asked = may_change(here);
  if (asked.result == status::capture_unsupported) {
    throw std::logic_error(std::string("cuda::virtual_memory: ") + operation +
                           " while its stream is capturing");
  }
  require(*driver_, asked.call, asked.result);
}

// Whether it went well; if not, `refusal` tells why.
bool virtual_memory::granted(detail::outcome asked) noexcept {
  if (asked.good()) return true;
  // The default stream says `implicit` while another is capturing that waits for it.
  if (asked.result == status::capture_unsupported || asked.result == status::capture_implicit) {
    refusal_ = "a stream is capturing";
  } else if (asked.result != status::out_of_memory) {
    refusal_ = driver_->error_name(asked.result);
  }
  return false;
}

detail::outcome virtual_memory::wait() const noexcept {
  return {driver_->synchronize(stream_), "cuStreamSynchronize"};
}

detail::mapped_range& virtual_memory::range_of(byte_range part) noexcept {
  return *std::ranges::find_if(
      ranges_, [&](detail::mapped_range const& range) { return range.range().contains(part.begin); });
}

// Memory behind all that is wanted; what was unmapped in vain is the memory that it was.
detail::outcome virtual_memory::map_again() noexcept {
  for (detail::mapped_range& range : ranges_) {
    const detail::outcome mapped = range.map(range.range());
    if (!mapped.good()) return mapped;
  }
  return {};
}

// Gives back the ranges that were released, as many as can be. @pre the device is current, and may_change.
// Returns why one could not be given back.
detail::outcome virtual_memory::give_back_released() noexcept {
  detail::outcome result;
  bool waited = false;
  for (auto at = ranges_.begin(); at != ranges_.end();) {
    if (!at->has_ended()) {
      ++at;
      continue;
    }
    detail::outcome gone;
    if (at->mapped_bytes() != 0 && !waited) {
      gone = wait();
      waited = gone.good();
    }
    if (gone.good()) gone = at->unmap(at->range());
    if (gone.good()) gone = at->let_go(at->range());
    if (gone.good()) gone = at->free();
    if (gone.good()) {
      at = ranges_.erase(at);
    } else {
      result = gone;
      ++at;
    }
  }
  return result;
}

void virtual_memory::give_back_all() noexcept {
  if (ranges_.empty()) return;
  for (detail::mapped_range& range : ranges_) range.end();
  const detail::on_device here{*driver_, device_};
  const detail::outcome asked = may_change(here);
  const detail::outcome gone = asked.good() ? give_back_released() : asked;
  if (gone.good()) return;
  std::size_t bytes = 0, addresses = 0;
  for (detail::mapped_range const& range : ranges_) {
    bytes += range.held_bytes();
    addresses += range.range().size;
  }
  if (asked.result == status::capture_unsupported) {
    tidemark::detail::report_violation(violation_kind::open_capture, device_memory_name,
                                       "%s: destroyed while its stream is capturing: %zu bytes are lost, "
                                       "because to wait for their use would invalidate the capture",
                                       device_memory_name, bytes);
  } else if (bytes != 0) {
    detail::report_lost(*driver_, device_memory_name, gone.call, gone.result, bytes);
  } else {
    detail::report_lost(*driver_, "addresses of a device", gone.call, gone.result, addresses);
  }
}

}  // namespace tidemark::cuda
