// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/resources/detail/device_heap.hpp>

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <new>
#include <utility>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/detail/align.hpp>
#include <tidemark/core/detail/request.hpp>
#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/core/violation.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/memory/detail/whole_allocations.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>

#include "../driver/driver_errors.hpp"
#include "completed_options.hpp"

namespace tidemark::gpu::detail {
namespace {

using tidemark::detail::align_up;
using tidemark::detail::free_result;

// Blocks of a power of two up to a page are aligned to their size.
std::size_t slab_alignment(std::size_t block_bytes) noexcept {
  const bool is_aligned = std::has_single_bit(block_bytes) && block_bytes <= heap_region::page_bytes;
  return is_aligned ? block_bytes : device_heap::default_alignment;
}

}  // namespace

device_heap::device_heap(device_pool_options const& options, driver& driver, bool posts_trims)
    : driver_{&driver},
      device_{options.device},
      stream_{options.stream},
      budget_{&driver.budget(options.device)},
      name_{options.name},
      keeps_addresses_{options.keeps_addresses},
      marks_{driver, options.stream},
      ranges_{options.bookkeeping},
      slabs_{options.bookkeeping},
      unmapped_handles_{options.bookkeeping},
      upstream_{options.upstream} {
  if (options.upstream != nullptr) {
    upstream_ = ordered_upstream(waiting_, options, driver);
  } else {
    const on_device here{driver, device_};
    require_memory(driver, "cudaSetDevice", here.result(), name_);
    const status granularity = driver.granularity(device_, unit_bytes_);
    unit_bytes_ = std::max(unit_bytes_, heap_region::page_bytes);
    if (granularity == status::not_supported) report_no_mapping();
    if (budget_->is_mapping_refused() || whole_allocations::are_needed()) {
      use_chunks();
    } else {
      memory_info info;
      require_memory(driver, "cuMemGetAllocationGranularity", granularity, name_);
      require_memory(driver, "cuMemGetInfo", driver.memory(info), name_);
      total_bytes_ = align_up(info.total_bytes, unit_bytes_);
      ranges_.set_unit_bytes(unit_bytes_);
    }
  }
  if (!keeps_addresses_ && posts_trims)
    budget_subscription_ = budget_->add_member([this] { return post_trim(), false; });
}

device_heap::~device_heap() {
  budget_subscription_ = {};
  release();
  if (unmap_retired()) (void)release_idle(0);  // a refusal of the driver may pass
  const on_device here{*driver_, device_};
  const bool capturing = held_bytes_ != 0 && is_capturing();
  for (heap_region const& region : ranges_.regions()) {
    const bool is_empty = region.first == region.last && region.first->is_free &&
                          std::ranges::all_of(region.units, [](physical_handle unit) { return unit == 0; });
    if (!region.is_chunk && is_empty) (void)driver_->free_reservation(region.addresses);
  }
  if (held_bytes_ == 0) return;
  if (capturing) {
    report_lost_in_capture(name_, held_bytes_);
    return;
  }
  const status waited = driver_->synchronize(stream_);
  report_lost(*driver_, name_, "cuMemUnmap", waited == status::success ? status::unknown : waited,
              held_bytes_);
}

// ---- a device that cannot map memory ----------------------------------------------------------------------

void device_heap::use_chunks() {
  blocks_.emplace(block_resource_options{.device = device_, .name = name_}, *driver_);
  const device_pool_options options{.stream = marks_.stream(),
                                    .device = device_,
                                    .upstream = &*blocks_,
                                    .bookkeeping = unmapped_handles_.get_allocator().resource(),
                                    .name = name_};
  upstream_ = ordered_upstream(waiting_, options, *driver_);
}

// A device may return a granularity and refuse the first call that reserves, creates or maps memory.
// @return false if the heap has mapped memory; the refusal then has another reason
bool device_heap::try_replace_mapping_by_chunks() {
  release_unmapped_handles();
  auto& regions = ranges_.regions();
  const auto is_mapped = [](heap_region const& each) {
    return each.first != each.last || !each.first->is_free;
  };
  if (held_bytes_ != 0 || std::ranges::any_of(regions, is_mapped)) return false;
  use_chunks();
  const on_device here{*driver_, device_};
  while (!regions.empty()) (void)driver_->free_reservation(ranges_.remove(*regions.front().first));
  report_no_mapping();
  return true;
}

void device_heap::report_no_mapping() noexcept {
  if (!budget_->claim_mapping_report()) return;
  tidemark::detail::report_warning(
      warning_kind::refused_memory, name_,
      "device_pool '%s': device %d cannot map memory; the pool uses fixed chunks of cuMemAlloc", name_,
      device_);
}

// ---- blocks -----------------------------------------------------------------------------------------------

void* device_heap::allocate_slow(std::size_t bytes, std::size_t align) {
  if (pending_.consume(default_alignment)) (void)release_free(0);
  if (is_small(bytes, align)) return allocate_small(bytes, align);
  if (bytes > tidemark::detail::max_block_bytes) refuse(bytes, align, "");
  heap_range const& range = allocate_range(large_size(bytes), std::max(align, default_alignment));
  requested_bytes_ += bytes;
  ++large_allocations_;
  return reinterpret_cast<void*>(range.begin);
}

void* device_heap::allocate_small(std::size_t bytes, std::size_t align) {
  const std::size_t index = device_classes::index_of(class_bytes(bytes, align));
  void* block = slabs_.try_allocate(index);
  if (block == nullptr) {
    add_slab(index);
    block = slabs_.try_allocate(index);
  }
  requested_bytes_ += bytes;
  return block;
}

void device_heap::deallocate_slow(void* block, std::size_t bytes, std::size_t align,
                                  free_result result) noexcept {
  if (finish_deallocation(block, bytes, align, result)) return;
  tidemark::detail::report_violation(violation_kind::bad_deallocate, name_,
                                     "device_pool '%s': %zu bytes are deallocated at %p, where no block of "
                                     "that size is live: a double free, "
                                     "a wrong size or a foreign pointer",
                                     name_, bytes, block);
}

// @param result result of `try_deallocate` @return false, with nothing done, if no such block is live
bool device_heap::finish_deallocation(void* block, std::size_t bytes, std::size_t align,
                                      free_result result) noexcept {
  if (result == free_result::listed) return true;
  const bool trims = pending_.consume(default_alignment);
  if (is_small(bytes, align)) {
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    heap_region const* const region = ranges_.region_of(address);
    if (result == free_result::not_listed)  // an alignment, a posted trim, or another region
      result = deallocate_in_slab(block, bytes, class_bytes(bytes, align));
    if (result == free_result::over_watermark) free_slab(slab_at(*region, address));
  } else if (result == free_result::not_listed) {
    result = deallocate_large(block, bytes);
  }
  if (trims) (void)release_free(0);
  return result != free_result::not_listed;
}

void device_heap::add_slab(std::size_t index) {
  const std::size_t bytes = slabs_.next_slab_bytes(index);
  heap_slab* const slab = slabs_.make(index, bytes);
  try {
    heap_range& range = allocate_range(bytes, slab_alignment(device_classes::bytes(index)));
    ranges_.set_slab(range, *slab);
    slabs_.open(*slab, range);
    slab_bytes_ += bytes;
  } catch (...) {
    slabs_.destroy(*slab);
    throw;
  }
}

void device_heap::free_empty_slabs() noexcept {
  while (heap_slab* const empty = slabs_.find_empty()) free_slab(*empty);
}

void device_heap::refuse(std::size_t bytes, std::size_t align, char const* because) {
  throw out_of_memory{
      {.resource = name_,
       .requested_bytes = bytes,
       .alignment = align,
       .used_bytes = live_bytes(),
       .committed_bytes = held_bytes(),
       .reserved_bytes = held_bytes(),
       .largest_bytes = has_brief_refusals_ ? exhaustion_report::unknown_bytes : largest_request(),
       .because = because}};
}

std::size_t device_heap::largest_request() noexcept {
  if (pending_.consume(default_alignment)) (void)release_free(0);  // as the next request would
  const on_device here{*driver_, device_};
  if (upstream_ != nullptr || !may_map()) return exhaustion_report::unknown_bytes;
  free_empty_slabs();  // as a request without memory does
  std::size_t creatable = free_bytes(*driver_);
  if (creatable == exhaustion_report::unknown_bytes) return creatable;
  const std::size_t limit = budget_->limit(), budgeted = budget_->held_bytes();
  creatable = std::min(creatable, limit - std::min(limit, budgeted));
  const bool moves_idle = keeps_addresses_ || !is_capturing();
  const std::size_t units = creatable / unit_bytes_ + unmapped_handles_.size() +
                            (moves_idle ? ranges_.returnable_bytes() / unit_bytes_ : 0);
  constexpr std::size_t granule = heap_ranges::granule_bytes;
  std::size_t fitting = 0, too_large = total_bytes_ / granule + 1;
  while (too_large - fitting > 1) {
    const std::size_t middle = fitting + (too_large - fitting) / 2;
    (fits(middle * granule, default_alignment, units, moves_idle) ? fitting : too_large) = middle;
  }
  const std::size_t largest = fitting * granule;
  if (largest > device_classes::max_bytes) return largest;
  for (std::size_t index = device_class_count; index-- != 0;) {  // a small block needs a slab
    const std::size_t block_bytes = device_classes::bytes(index);
    if (slabs_.has_free_block(index) ||
        fits(slabs_.next_slab_bytes(index), slab_alignment(block_bytes), units, moves_idle))
      return block_bytes;
  }
  return 0;
}

// Returns true if a range of this size gets memory. @param units units that can be created or, if `moves_idle`,
// are idle
bool device_heap::fits(std::size_t bytes, std::size_t align, std::size_t units,
                       bool moves_idle) const noexcept {
  if (ranges_.best_fit(bytes, align) != nullptr) return true;
  const placement to = cheapest_place(bytes, align);
  if (to.range == nullptr) return align_up(bytes, unit_bytes_) / unit_bytes_ <= units;
  if (!moves_idle) return to.missing <= units;
  // `share_idle` takes no units of the block's own range.
  if (keeps_addresses_) return to.missing + ranges_.returnable_bytes(*to.range) / unit_bytes_ <= units;
  const auto [first, last] = ranges_.whole_units(*to.range);  // other units have memory
  return std::min(last, to.last) - std::max(first, to.first) <= units;
}

// ---- the stream -------------------------------------------------------------------------------------------

// Also returns true if a call on the stream may end a capture.
bool device_heap::is_capturing() const noexcept {
  return capture_state_of(*driver_, stream_) != capture_state::none;
}

// Returns false during a capture that a call to map memory would end.
bool device_heap::may_map() const noexcept {
  return !is_capturing() || driver_->maps_during_captures(device_);
}

// @pre The device is current.
void device_heap::record_mark() noexcept {
  if (is_capturing()) return;
  marks_.query();
  marks_.record();
  freed_since_mark_ = 0;
}

tidemark::detail::block_counts device_heap::counts() const noexcept {
  return {slabs_.allocations() + large_allocations_, slabs_.deallocations() + large_deallocations_, misses_};
}

char const* device_heap::broken_invariant() const noexcept {
  if (char const* const broken = ranges_.broken_invariant()) return broken;
  if (char const* const broken = slabs_.broken_invariant()) return broken;
  std::size_t held = 0, cut = 0, slabs = 0;
  std::vector<physical_handle> handles{unmapped_handles_.begin(), unmapped_handles_.end()};
  for (heap_region const& region : ranges_.regions()) {
    if (region.is_chunk) held += region.addresses.size;
    std::ranges::copy_if(region.units, std::back_inserter(handles),
                         [](physical_handle unit) { return unit != 0; });
    for (heap_range const* range = region.first; range != nullptr; range = range->after) {
      if (range->is_free || range->is_retired) continue;
      cut += range->bytes;
      if (range->slab != nullptr) slabs += range->bytes;
      if (region.is_chunk) continue;
      const std::size_t first = (range->begin - region.addresses.begin) / unit_bytes_;
      for (std::size_t unit = first; addresses(region, unit, unit).begin < range->end(); ++unit) {
        if (region.units[unit] == 0) return "every unit that touches a live block has memory";
      }
    }
  }
  std::ranges::sort(handles);
  if (std::ranges::adjacent_find(handles) != handles.end()) return "each handle serves one address";
  held += handles.size() * unit_bytes_;
  if (held != held_bytes_) return "held_bytes == sum over units and chunks";
  if (cut != cut_bytes_) return "cut_bytes == sum over live ranges";
  if (slabs != slab_bytes_) return "slab_bytes == sum over slabs";
  return nullptr;
}

}  // namespace tidemark::gpu::detail
