// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/memory/imported_memory.hpp>

#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>

#include "../driver/driver_errors.hpp"

namespace tidemark::gpu {
namespace {

constexpr char const* imported_memory_name = "imported memory";

// Checks the numbers, because they come from another process.
std::size_t checked_bytes(exported_memory const& from) {
  const auto require = [](bool holds, char const* message) {
    if (!holds) throw std::invalid_argument(message);
  };
  require(from.exported_as == handle_type::file_descriptor || from.exported_as == handle_type::fabric,
          "gpu::imported_memory: the memory was exported neither as file descriptors nor as fabric");
  std::size_t bytes = 0;
  for (exported_handle const& each : from.handles) {
    require(each.offset == bytes && each.size != 0 &&
                each.size <= std::numeric_limits<std::size_t>::max() / 2 - bytes,
            "gpu::imported_memory: the handles do not lie one behind the other");
    bytes += each.size;
  }
  require(from.size != 0 && from.offset < bytes && from.size <= bytes - from.offset,
          "gpu::imported_memory: the exported range does not lie in its handles");
  return bytes;
}

}  // namespace

imported_memory::imported_memory(exported_memory const& from, imported_memory_options const& options,
                                 driver& driver)
    : driver_{&driver}, device_{options.device}, stream_{options.stream} {
  const std::size_t bytes = checked_bytes(from);
  detail::require_one_stream("gpu::imported_memory", imported_memory_name, stream_);
  mappings_.reserve(from.handles.size());
  device_ = detail::device_or_current(driver, options.device, imported_memory_name);
  const detail::on_device here{driver, device_};
  detail::require_memory(driver, "cudaSetDevice", here.result(), imported_memory_name);
  bool capturing = false;
  require_success(driver, "cuStreamIsCapturing", driver.is_capturing(stream_, capturing));
  if (capturing) throw std::logic_error("gpu::imported_memory: import while its stream is capturing");
  device_set accessible_from = options.accessible_from;
  accessible_from.insert(device_);

  detail::require_memory(driver, "cuMemAddressReserve", driver.reserve(bytes, 0, reserved_),
                         {.resource = imported_memory_name, .requested_bytes = bytes});
  try {
    map(from, accessible_from);
  } catch (...) {
    // No work uses the memory yet.
    const detail::outcome unmapped = unmap();
    if (!unmapped.good())
      detail::report_lost(driver, imported_memory_name, unmapped.call, unmapped.result, bytes);
    throw;
  }
  range_ = {reserved_.begin + from.offset, from.size};
}

imported_memory::imported_memory(imported_memory&& other) noexcept
    : driver_{other.driver_},
      device_{other.device_},
      stream_{other.stream_},
      reserved_{std::exchange(other.reserved_, {})},
      range_{std::exchange(other.range_, {})},
      mappings_{std::move(other.mappings_)} {}

imported_memory& imported_memory::operator=(imported_memory&& other) noexcept {
  if (this == &other) return *this;
  std::destroy_at(this);
  return *std::construct_at(this, std::move(other));
}

imported_memory::~imported_memory() { free_all(); }

// Releases a handle as soon as it is mapped, because its memory exists as long as the mapping.
void imported_memory::map(exported_memory const& from, device_set accessible_from) {
  for (exported_handle const& each : from.handles) {
    physical_handle memory = 0;
    const shareable_handle shared{
        .type = from.exported_as, .file_descriptor = each.descriptor.get(), .fabric = each.fabric};
    require_success(*driver_, "cuMemImportFromShareableHandle", driver_->import_handle(shared, memory));
    const byte_range addresses{reserved_.begin + each.offset, each.size};
    const status mapped = driver_->map(addresses, memory);
    if (mapped == status::success) mappings_.push_back(addresses);
    const status released = driver_->release(memory);
    detail::require_memory(*driver_, "cuMemMap", mapped, imported_memory_name);
    require_success(*driver_, "cuMemRelease", released);
  }
  detail::require_memory(*driver_, "cuMemSetAccess", driver_->allow_access(reserved_, accessible_from),
                         imported_memory_name);
}

// Unmaps all mappings, and frees the addresses.
detail::outcome imported_memory::unmap() noexcept {
  if (!mappings_.empty()) {
    // One call, as in `detail::mapped_range`; if it is refused, the mappings are unmapped one by one.
    const byte_range all{reserved_.begin, mappings_.back().end() - reserved_.begin};
    if (driver_->unmap(all) == status::success) mappings_.clear();
  }
  while (!mappings_.empty()) {
    const status unmapped = driver_->unmap(mappings_.back());
    if (unmapped != status::success) return {unmapped, "cuMemUnmap"};
    mappings_.pop_back();
  }
  return {driver_->free_reservation(reserved_), "cuMemAddressFree"};
}

void imported_memory::free_all() noexcept {
  if (reserved_.empty()) return;
  const detail::on_device here{*driver_, device_};
  const std::size_t bytes = reserved_.size;
  detail::outcome freed{here.result(), "cudaSetDevice"};
  bool capturing = false;
  if (freed.good()) freed = {driver_->is_capturing(stream_, capturing), "cuStreamIsCapturing"};
  if (freed.good() && capturing) {
    tidemark::detail::report_violation(violation_kind::open_capture, imported_memory_name,
                                       "%s: destroyed while its stream is capturing: %zu bytes stay mapped, "
                                       "because a wait for their work would invalidate the capture",
                                       imported_memory_name, bytes);
    return;
  }
  if (freed.good()) freed = {driver_->synchronize(stream_), "cuStreamSynchronize"};
  if (freed.good()) freed = unmap();
  if (!freed.good()) detail::report_lost(*driver_, imported_memory_name, freed.call, freed.result, bytes);
}

}  // namespace tidemark::gpu
