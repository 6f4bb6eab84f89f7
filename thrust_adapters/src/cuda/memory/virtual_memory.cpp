// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/memory/virtual_memory.hpp>

#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>

#include "../driver/behind_event.hpp"
#include "../driver/driver_errors.hpp"

namespace tidemark::gpu {
namespace {

constexpr char const* device_memory_name = "device memory";
constexpr std::size_t default_handle_bytes = 64 * MiB;

}  // namespace

virtual_memory::virtual_memory(virtual_memory_options options, driver& driver)
    : driver_{&driver}, stream_{options.stream} {
  if (options.handle_bytes != 0 && !std::has_single_bit(options.handle_bytes)) {
    throw std::invalid_argument("gpu::virtual_memory: handle_bytes is " +
                                std::to_string(options.handle_bytes) + ", which is not a power of two");
  }
  detail::require_one_stream("gpu::virtual_memory", device_memory_name, options.stream);
  // The first calls of a program make the device's context, which needs memory.
  const auto require = [&](char const* call, status result) {
    detail::require_memory(driver, call, result, device_memory_name);
  };
  memory_ = {detail::device_or_current(driver, options.device, device_memory_name), options.exported_as,
             options.gpu_direct_rdma};
  budget_ = &driver.budget(memory_.device);
  const detail::on_device here{driver, memory_.device};
  require("cudaSetDevice", here.result());
  require("cuMemGetAllocationGranularity", driver.granularity(memory_, unit_bytes_));
  handle_bytes_max_ =
      std::max(unit_bytes_, options.handle_bytes != 0 ? options.handle_bytes : default_handle_bytes);
  detail::require_peers(driver, "gpu::virtual_memory", memory_.device, options.accessible_from);
  accessible_from_ = options.accessible_from;
  accessible_from_.insert(memory_.device);
  memory_info info;
  require("cuMemGetInfo", driver.memory(info));
  chunk_bytes_ = tidemark::detail::align_up(info.total_bytes, unit_bytes_);
  if (options.accessible_from.empty() && detail::whole_allocations::are_needed())
    whole_.emplace(driver, *budget_);
}

virtual_memory& virtual_memory::operator=(virtual_memory&& other) noexcept {
  if (this == &other) return *this;
  std::destroy_at(this);
  return *std::construct_at(this, std::move(other));
}

virtual_memory::~virtual_memory() { free_all(); }

byte_range virtual_memory::reserve(std::size_t least_bytes, std::size_t wanted_bytes) {
  refusal_ = "";
  if (std::max(least_bytes, wanted_bytes) > std::numeric_limits<std::size_t>::max() / 2) return {};
  const detail::on_device here{*driver_, memory_.device};
  if (!is_ready(here)) return {};
  if (whole_) return reserve_whole(least_bytes, wanted_bytes);
  ranges_.reserve(ranges_.size() + 1);
  const std::size_t least = tidemark::detail::align_up(std::max<std::size_t>(least_bytes, 1), unit_bytes_);
  const byte_range range = detail::reserve_addresses(*driver_, least, wanted_bytes, unit_bytes_);
  if (range.empty()) {
    refusal_ = detail::no_addresses;
    return {};
  }
  ranges_.emplace_back(*driver_, *budget_, memory_, accessible_from_, unit_bytes_, handle_bytes_max_, range);
  return range;
}

byte_range virtual_memory::reserve_whole(std::size_t least_bytes, std::size_t wanted_bytes) {
  byte_range range;
  detail::outcome allocated = whole_->allocate(least_bytes, wanted_bytes, range);
  if (allocated.result == status::out_of_memory && budget_->relieve())
    allocated = whole_->allocate(least_bytes, wanted_bytes, range);
  if (allocated.result == status::out_of_memory) set_refusal(allocated.result);
  else require_success(*driver_, allocated.call, allocated.result);
  return range;
}

std::size_t virtual_memory::commit(byte_range part, std::size_t least_bytes) noexcept {
  refusal_ = "";
  least_bytes = std::min(least_bytes, part.size);
  if (whole_) return whole_->bytes_behind(part.begin);
  const detail::on_device here{*driver_, memory_.device};
  if (!is_ready(here)) return 0;
  status result = status::success;
  std::size_t committed = map_some(part, least_bytes, result);
  if (result == status::out_of_memory && budget_->relieve()) committed = map_some(part, least_bytes, result);
  if (committed == 0 && result != status::success) set_refusal(result);
  return committed;
}

// If nothing could be committed, `result` is the reason; success if the host had no memory.
std::size_t virtual_memory::map_some(byte_range part, std::size_t least_bytes, status& result) noexcept {
  detail::mapped_range& range = range_of(part);
  result = status::success;
  if (!range.want(part, true)) return 0;
  const detail::outcome mapped = range.map(part);
  if (mapped.good()) return part.size;

  const auto drop = [&](byte_range rest) {
    (void)range.want(rest, false);
    (void)range.unmap(rest);  // no work uses it yet
    range.release(rest);
  };
  // The kept part ends with a handle, and no more memory is held than committed. It still lacks access.
  const bool may_keep = mapped.result == status::out_of_memory && least_bytes < part.size;
  const std::size_t kept = may_keep ? range.mapped_front(part, least_bytes) : 0;
  drop({part.begin + kept, part.size - kept});
  if (kept != 0) {
    if (range.map({part.begin, kept}).good()) return kept;
    drop({part.begin, kept});
  }
  result = mapped.result;
  return 0;
}

bool virtual_memory::decommit(byte_range part) noexcept {
  if (whole_) return false;
  detail::mapped_range& range = range_of(part);
  if (suspended_) return range.want(part, false);
  const detail::on_device here{*driver_, memory_.device};
  if (!may_change(here).good() || !wait().good()) return false;
  if (!range.unmap(part).good()) {
    suspended_ = !range.map(part).good();
    return false;
  }
  (void)range.want(part, false);
  range.release(part);
  free_released();
  return true;
}

void virtual_memory::release(byte_range range) noexcept {
  if (whole_) whole_->end(range);
  else range_of(range).end();
  const detail::on_device here{*driver_, memory_.device};
  if (may_change(here).good()) free_released();
}

// Drops the record of a range, but keeps its memory.
void virtual_memory::abandon(byte_range range) noexcept {
  std::erase_if(ranges_, [&](detail::mapped_range const& each) { return each.range() == range; });
  if (whole_) whole_->abandon(range);
}

std::size_t virtual_memory::held_bytes() const noexcept {
  std::size_t bytes = whole_ ? whole_->held_bytes() : 0;
  for (detail::mapped_range const& range : ranges_) bytes += range.held_bytes();
  return bytes;
}

void virtual_memory::suspend() {
  if (suspended_) return;
  require_mapped("suspend");
  const detail::on_device here{*driver_, memory_.device};
  require_may_change("suspend", here);
  free_released();
  detail::outcome unmapped = wait();
  for (detail::mapped_range& range : ranges_) {
    if (unmapped.good()) unmapped = range.unmap(range.range());
  }
  if (!unmapped.good()) {
    suspended_ = !map_all().good();  // maps the unmapped memory again
    throw cuda_error{*driver_, unmapped.call, unmapped.result};
  }
  for (detail::mapped_range& range : ranges_) range.release(range.range());
  suspended_ = true;
}

void virtual_memory::resume() {
  if (!suspended_) return;
  const detail::on_device here{*driver_, memory_.device};
  require_may_change("resume", here);
  free_released();
  detail::outcome mapped = map_all();
  if (mapped.result == status::out_of_memory && budget_->relieve()) mapped = map_all();
  if (!mapped.good()) {
    exhaustion_report report{.resource = device_memory_name, .alignment = unit_bytes_};
    for (detail::mapped_range& range : ranges_) {
      report.requested_bytes += range.wanted_bytes();
      report.reserved_bytes += range.range().size;
      (void)range.unmap(range.range());  // no work uses it yet
      range.release(range.range());
    }
    report.largest_bytes = detail::free_bytes(*driver_);
    detail::require_memory(*driver_, mapped.call, mapped.result, report);
  }
  suspended_ = false;
}

exported_memory virtual_memory::export_memory(byte_range part) const {
  require_mapped("export_memory");
  if (memory_.exported_as == handle_type::none) {
    throw std::logic_error(
        "gpu::virtual_memory: export_memory of memory whose options did not say exported_as, which the "
        "driver "
        "wants to know when it makes the memory");
  }
  if (suspended_) throw std::logic_error("gpu::virtual_memory: export_memory while it is suspended");
  const auto found = std::ranges::find_if(ranges_, [&](detail::mapped_range const& range) {
    return !range.has_ended() && range.range().contains(part.begin) &&
           part.size <= range.range().end() - part.begin;
  });
  std::vector<detail::mapped_handle> behind;
  if (found != ranges_.end() && !part.empty()) behind = found->handles_behind(part);
  if (behind.empty()) {
    throw std::invalid_argument("gpu::virtual_memory: export_memory of " + std::to_string(part.size) +
                                " bytes that are not all committed");
  }
  const std::uintptr_t first = behind.front().addresses.begin;
  exported_memory exported{
      .exported_as = memory_.exported_as, .offset = part.begin - first, .size = part.size};
  exported.handles.reserve(behind.size());
  const detail::on_device here{*driver_, memory_.device};
  require_success(*driver_, "cudaSetDevice", here.result());
  for (detail::mapped_handle const& each : behind) {
    shareable_handle shared;
    require_success(*driver_, "cuMemExportToShareableHandle",
                    driver_->export_handle(each.memory, memory_.exported_as, shared));
    exported.handles.push_back({.offset = each.addresses.begin - first,
                                .size = each.addresses.size,
                                .descriptor = file_descriptor{shared.file_descriptor},
                                .fabric = shared.fabric});
  }
  return exported;
}

void virtual_memory::wait_before_reuse(event_handle event) noexcept {
  const detail::on_device here{*driver_, memory_.device};
  detail::require_waited(*driver_, device_memory_name, detail::wait_behind(*driver_, stream_, event));
}

void virtual_memory::wait_before_reuse(stream_handle last_used_on) noexcept {
  const detail::on_device here{*driver_, memory_.device};
  detail::require_waited(*driver_, device_memory_name, detail::wait_behind(*driver_, stream_, last_used_on));
}

// Returns success if memory may be unmapped now, after a wait for the stream.
detail::outcome virtual_memory::may_change(detail::on_device const& here) const noexcept {
  if (here.result() != status::success) return {here.result(), "cudaSetDevice"};
  bool capturing = false;
  const status asked = driver_->is_capturing(stream_, capturing);
  if (asked == status::success && capturing) return {status::capture_unsupported, ""};
  return {asked, "cuStreamIsCapturing"};
}

void virtual_memory::require_mapped(char const* operation) const {
  if (!whole_) return;
  throw std::logic_error(std::string("gpu::virtual_memory: ") + operation +
                         " under compute-sanitizer, for which the memory is whole allocations of cuMemAlloc");
}

void virtual_memory::require_may_change(char const* operation, detail::on_device const& here) const {
  const detail::outcome allowed = may_change(here);
  if (allowed.result == status::capture_unsupported) {
    throw std::logic_error(std::string("gpu::virtual_memory: ") + operation +
                           " while its stream is capturing");
  }
  require_success(*driver_, allowed.call, allowed.result);
}

// Returns true if memory may be mapped; otherwise `refusal` has the reason. Frees released ranges outside of
// captures.
bool virtual_memory::is_ready(detail::on_device const& here) noexcept {
  if (suspended_) {
    refusal_ = "it is suspended";
    return false;
  }
  const detail::outcome allowed = may_change(here);
  if (allowed.good()) {
    free_released();
    return true;
  }
  if (detail::is_of_a_capture(allowed.result) && driver_->maps_during_captures(memory_.device)) return true;
  set_refusal(allowed.result);
  return false;
}

void virtual_memory::set_refusal(status result) noexcept {
  // The default stream returns `implicit` if a capturing stream waits for it.
  if (result == status::capture_unsupported || result == status::capture_implicit) {
    refusal_ = detail::no_mapping_in_captures;
  } else if (result != status::out_of_memory) {
    refusal_ = driver_->error_name(result);
  } else {
    refusal_ =
        budget_->has_room(unit_bytes_) ? detail::device_memory_exhausted : detail::device_limit_reached;
  }
}

detail::outcome virtual_memory::wait() const noexcept {
  return {driver_->synchronize(stream_), "cuStreamSynchronize"};
}

detail::mapped_range& virtual_memory::range_of(byte_range part) noexcept {
  return *std::ranges::find_if(
      ranges_, [&](detail::mapped_range const& range) { return range.range().contains(part.begin); });
}

// Maps memory to all wanted units. Unmapped units that still hold memory keep its contents.
detail::outcome virtual_memory::map_all() noexcept {
  for (detail::mapped_range& range : ranges_) {
    const detail::outcome mapped = range.map(range.range());
    if (!mapped.good()) return mapped;
  }
  return {};
}

// Frees as many released ranges as possible. @pre The device is current, and memory may be mapped.
// @param may_wait false during a capture: only ranges without memory are freed then
// @return success, or the last error
detail::outcome virtual_memory::free_released(bool may_wait) noexcept {
  detail::outcome result;
  bool waited = false;
  const auto wait_once = [&]() -> detail::outcome {
    if (waited) return {};
    const detail::outcome done = wait();
    waited = done.good();
    return done;
  };
  const auto try_free = [&](detail::mapped_range& range) {
    if (!range.has_ended() || (range.held_bytes() != 0 && !may_wait)) return false;
    detail::outcome freed;
    if (range.mapped_bytes() != 0) freed = wait_once();
    if (freed.good()) freed = range.unmap(range.range());
    if (freed.good()) freed = range.release(range.range());
    if (freed.good()) freed = range.free();
    if (!freed.good()) result = freed;
    return freed.good();
  };
  for (auto at = ranges_.begin(); at != ranges_.end();) at = try_free(*at) ? ranges_.erase(at) : at + 1;
  if (may_wait && whole_ && whole_->has_ended_ranges()) {
    detail::outcome freed = wait_once();
    if (freed.good()) freed = whole_->free_ended();
    if (!freed.good()) result = freed;
  }
  return result;
}

void virtual_memory::free_all() noexcept {
  if (ranges_.empty() && (!whole_ || whole_->held_bytes() == 0)) return;
  for (detail::mapped_range& range : ranges_) range.end();
  if (whole_) whole_->end_all();
  const detail::on_device here{*driver_, memory_.device};
  const detail::outcome allowed = may_change(here);
  detail::outcome freed = allowed;
  if (allowed.good()) freed = free_released();
  else if (detail::is_of_a_capture(allowed.result) &&
           std::ranges::any_of(ranges_, [](auto const& each) { return each.held_bytes() == 0; }) &&
           driver_->maps_during_captures(memory_.device))
    (void)free_released(false);
  if (ranges_.empty() && (!whole_ || whole_->held_bytes() == 0)) return;
  std::size_t bytes = whole_ ? whole_->held_bytes() : 0, addresses = 0;
  for (detail::mapped_range const& range : ranges_) {
    bytes += range.held_bytes();
    addresses += range.range().size;
  }
  if (allowed.result == status::capture_unsupported) {
    detail::report_lost_in_capture(device_memory_name, bytes);
  } else {
    detail::report_lost(*driver_, bytes != 0 ? device_memory_name : "addresses of a device", freed.call,
                        freed.result, bytes != 0 ? bytes : addresses);
  }
}

}  // namespace tidemark::gpu
