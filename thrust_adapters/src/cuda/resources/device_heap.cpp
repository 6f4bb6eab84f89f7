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

using tidemark::detail::add_saturating;
using tidemark::detail::align_up;
using tidemark::detail::free_result;

constexpr std::size_t block_alignment = device_classes::granule_bytes;
// Many times the device's memory, because blocks move to new addresses as free ranges get short.
constexpr std::size_t addresses_per_byte_of_memory = 8;
// The heap creates new memory, instead of moving units, up to this share above the peak of live bytes. Up to
// the second share it creates new memory instead of waiting, if this is enough for the block.
constexpr std::size_t slack_before_moves = 96, slack_before_waits = 64;
// Without moves, blocks go to ranges with memory first up to this share above the peak of live bytes. Beyond
// the share, best fit places them, and a repeated step finds memory at the same places. A block that lacks
// more than this share gets memory by moves beyond the limit.
constexpr std::size_t slack_before_best_fit = 16;
// Maximum free ranges without full memory that are tried for one block.
constexpr int places_tried = 16;
// The next blocks may need memory too. Marks behind the next frees show which memory may move.
constexpr int marks_after_need = 8;
constexpr std::size_t least_units_per_mark = 8;
constexpr std::size_t max_chunk_bytes = 64 * MiB;

// Blocks of a power of two up to a page are aligned to their size.
std::size_t slab_alignment(std::size_t block_bytes) noexcept {
  const bool is_aligned = std::has_single_bit(block_bytes) && block_bytes <= heap_region::page_bytes;
  return is_aligned ? block_bytes : block_alignment;
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
  device_pool_options complete = options;
  if (complete.upstream == nullptr) {
    const on_device here{driver, device_};
    require_memory(driver, "cudaSetDevice", here.result(), name_);
    const status granularity = driver.granularity(device_, unit_bytes_);
    if (granularity == status::not_supported || whole_allocations::are_needed()) {
      complete.upstream = &blocks_.emplace(block_resource_options{.device = device_, .name = name_}, driver);
      if (granularity == status::not_supported) {
        tidemark::detail::report_warning(
            warning_kind::refused_memory, name_,
            "device_pool '%s': device %d cannot map memory; the pool uses fixed chunks of cuMemAlloc", name_,
            device_);
      }
    } else {
      memory_info info;
      require_memory(driver, "cuMemGetAllocationGranularity", granularity, name_);
      require_memory(driver, "cuMemGetInfo", driver.memory(info), name_);
      total_bytes_ = align_up(info.total_bytes, unit_bytes_);
      ranges_.set_unit_bytes(unit_bytes_);
    }
  }
  if (complete.upstream != nullptr) upstream_ = ordered_upstream(waiting_, complete, driver);
  if (!keeps_addresses_ && posts_trims)
    budget_subscription_ = budget_->add_member([this] { return post_trim(), false; });
}

device_heap::~device_heap() {
  budget_subscription_ = {};
  release();
  if (held_bytes_ != 0) (void)release_idle(0);  // a refusal of the driver may pass
  if (held_bytes_ == 0) unmap_retired();
  const on_device here{*driver_, device_};
  const bool capturing = held_bytes_ != 0 && is_capturing();
  for (heap_region const& region : ranges_.regions()) {
    const bool is_empty = region.first == region.last &&
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

// ---- blocks -----------------------------------------------------------------------------------------------

void* device_heap::allocate_slow(std::size_t bytes, std::size_t align) {
  if (pending_.consume(block_alignment)) (void)release_free(0);
  if (is_small(bytes, align)) {
    const std::size_t index = device_classes::index_of(class_bytes(bytes, align));
    void* block = slabs_.try_allocate(index);
    if (block == nullptr) {
      add_slab(index);
      block = slabs_.try_allocate(index);
    }
    requested_bytes_ += bytes;
    return block;
  }
  if (bytes > tidemark::detail::max_block_bytes) refuse(bytes, align, "");
  heap_range const& range = allocate_range(large_size(bytes), std::max(align, block_alignment));
  large_bytes_ += range.bytes;
  requested_bytes_ += bytes;
  ++large_allocations_;
  return reinterpret_cast<void*>(range.begin);
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
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const bool trims = pending_.consume(block_alignment);
  heap_range* const range = ranges_.live_at(address);
  if (is_small(bytes, align)) {
    if (result == free_result::not_listed && (trims || align > block_alignment))
      result = deallocate_in_slab(block, bytes, device_classes::index_of(class_bytes(bytes, align)));
    if (result == free_result::over_watermark) free_slab(*range->slab);
  } else if (range != nullptr && range->slab == nullptr && !range->is_retired && range->begin == address &&
             range->bytes == large_size(bytes)) {
    large_bytes_ -= range->bytes;
    requested_bytes_ -= bytes;
    ++large_deallocations_;
    free_range(*range);
    result = free_result::listed;
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
  } catch (...) {
    slabs_.destroy(*slab);
    throw;
  }
}

void device_heap::free_slab(heap_slab& slab) noexcept { free_range(slabs_.close(slab)); }

void device_heap::free_empty_slabs() noexcept {
  while (heap_slab* const empty = slabs_.find_empty()) free_slab(*empty);
}

void device_heap::refuse(std::size_t bytes, std::size_t align, char const* because) {
  throw out_of_memory{{.resource = name_,
                       .requested_bytes = bytes,
                       .alignment = align,
                       .used_bytes = live_bytes(),
                       .committed_bytes = held_bytes(),
                       .reserved_bytes = held_bytes(),
                       .largest_bytes = largest_request(),
                       .because = because}};
}

std::size_t device_heap::largest_request() noexcept {
  if (upstream_ != nullptr || !may_map()) return exhaustion_report::unknown_bytes;
  free_empty_slabs();  // as a request without memory does
  const on_device here{*driver_, device_};
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
    (fits(middle * granule, units) ? fitting : too_large) = middle;
  }
  const std::size_t largest = fitting * granule;
  if (largest > device_classes::max_bytes) return largest;
  for (std::size_t index = device_class_count; index-- != 0;) {  // a small block needs a slab
    const std::size_t block_bytes = device_classes::bytes(index);
    const std::size_t padding = slab_alignment(block_bytes) - block_alignment;
    if (slabs_.has_free_block(index) || slabs_.next_slab_bytes(index) + padding <= largest)
      return block_bytes;
  }
  return 0;
}

// Returns true if a range of this size gets memory. @param units idle units, and units that can be created
bool device_heap::fits(std::size_t bytes, std::size_t units) const noexcept {
  if (ranges_.best_fit(bytes, block_alignment) != nullptr) return true;
  const placement to = cheapest_place(bytes, block_alignment);
  if (to.range == nullptr) return align_up(bytes, unit_bytes_) / unit_bytes_ <= units;
  const auto [first, last] = ranges_.whole_units(*to.range);
  return std::min(last, to.last) - std::max(first, to.first) <= units;  // other units have memory
}

// ---- ranges -----------------------------------------------------------------------------------------------

// The second try selects a new place, because slabs and callbacks of the budget may free blocks of this heap.
// Free chunks are returned first, because the upstream may need them.
heap_range& device_heap::allocate_range(std::size_t bytes, std::size_t align) {
  char const* refusal = "";
  const auto make_room = [&] {
    free_empty_slabs();
    const std::size_t released = upstream_ != nullptr ? release_free(0) : 0;
    const bool relieved = budget_->relieve(&budget_subscription_);
    free_empty_slabs();
    return relieved || released != 0;
  };
  try {
    if (heap_range* const taken = try_allocate_range(bytes, align, refusal)) return *taken;
    (void)make_room();
  } catch (std::bad_alloc const&) {
    if (!make_room()) throw;
  }
  if (heap_range* const taken = try_allocate_range(bytes, align, refusal)) return *taken;
  release_unmapped_handles();  // others may need less
  refuse(bytes, align, refusal);
}

heap_range* device_heap::try_allocate_range(std::size_t bytes, std::size_t align, char const*& refusal) {
  ranges_.prepare();
  heap_range* const ready = ranges_.best_fit(bytes, align);
  if (ready != nullptr && (prefers_memory() || !fits_a_smaller_range(bytes, align, *ready)))
    return &cut(*ready, heap_ranges::place_in(*ready, bytes, align), bytes);
  if (upstream_ != nullptr) {
    const std::size_t padded = add_saturating(bytes, align - block_alignment);
    if (padded > tidemark::detail::max_block_bytes) refuse(bytes, align, "");
    heap_range& chunk = add_chunk(padded);
    heap_range& taken = cut(chunk, heap_ranges::place_in(chunk, bytes, align), bytes);
    ++misses_;
    return &taken;
  }
  if (bytes > total_bytes_ || align > addresses_per_byte_of_memory * total_bytes_) {
    refusal = device_memory_exhausted;
    return nullptr;
  }
  // A smaller range without memory may have been preferred to a range with memory.
  const auto cut_ready_range = [&]() -> heap_range* {
    heap_range* const fits = ranges_.best_fit(bytes, align);
    return fits != nullptr ? &cut(*fits, heap_ranges::place_in(*fits, bytes, align), bytes) : nullptr;
  };
  placement to = cheapest_place(bytes, align);
  if (to.range != nullptr && to.missing == 0) return &cut(*to.range, to.begin, bytes);
  const on_device here{*driver_, device_};
  require_memory(*driver_, "cudaSetDevice", here.result(), name_);
  if (!may_map()) {
    refusal = no_mapping_in_captures;
    return cut_ready_range();
  }
  if (to.range == nullptr) {
    if (!add_reservation(add_saturating(bytes, align > unit_bytes_ ? align : 0))) {
      refusal = no_addresses;
      return cut_ready_range();
    }
    to = cheapest_place(bytes, align);
  }
  heap_region& region = *to.range->region;
  if (region.units.size() < to.last) {
    region.freed_at.resize(to.last, 0);
    region.units.resize(to.last, 0);
  }
  if (!gather(to, cut_bytes_ + bytes, refusal)) return cut_ready_range();
  const outcome mapped = map(to);
  if (mapped.result == status::out_of_memory) {
    refusal = device_memory_exhausted;
    return cut_ready_range();
  }
  require_success(*driver_, mapped.call, mapped.result);
  heap_range& taken = cut(*to.range, to.begin, bytes);
  ++misses_;
  return &taken;
}

heap_range& device_heap::cut(heap_range& from, std::uintptr_t begin, std::size_t bytes) {
  heap_ranges::reserve_pages(*from.region, begin + bytes);
  cut_bytes_ += bytes;
  peak_cut_bytes_ = std::max(peak_cut_bytes_, cut_bytes_);
  const std::size_t missing_before =
      from.missing_bytes == 0 ? 0 : place_at(from, from.begin, begin - from.begin).missing * unit_bytes_;
  heap_range& taken = ranges_.cut(from, begin, bytes, missing_before);
  stranded_idle_bytes_ = std::min(stranded_idle_bytes_, idle_bytes());
  return taken;
}

void device_heap::free_range(heap_range& live) noexcept {
  cut_bytes_ -= live.bytes;
  freed_since_mark_ += live.bytes;
  if (!live.region->is_chunk) {
    const std::uintptr_t base = live.region->addresses.begin;
    std::fill(live.region->freed_at.begin() + static_cast<std::ptrdiff_t>((live.begin - base) / unit_bytes_),
              live.region->freed_at.begin() +
                  static_cast<std::ptrdiff_t>(align_up(live.end() - base, unit_bytes_) / unit_bytes_),
              marks_.next());
  }
  (void)ranges_.free_and_merge(live);
  if (marks_due_ != 0 &&
      freed_since_mark_ >= std::max(held_bytes_ / 16, least_units_per_mark * unit_bytes_)) {
    const on_device here{*driver_, device_};
    record_mark();
    --marks_due_;
  }
}

// ---- memory behind addresses ------------------------------------------------------------------------------

bool device_heap::prefers_memory() const noexcept {
  return may_move(move_budget::moves_per_wait) ||
         held_bytes_ < peak_cut_bytes_ + peak_cut_bytes_ / slack_before_best_fit;
}

bool device_heap::fits_a_smaller_range(std::size_t bytes, std::size_t align,
                                       heap_range const& ready) const noexcept {
  heap_range const* const smallest = ranges_.lacking().first(bytes);
  return smallest != nullptr && smallest->bytes < ready.bytes &&
         heap_ranges::place_in(*smallest, bytes, align) != 0;
}

device_heap::placement device_heap::place_at(heap_range& range, std::uintptr_t begin,
                                             std::size_t bytes) const noexcept {
  heap_region const& region = *range.region;
  placement here{.range = &range,
                 .begin = begin,
                 .first = (begin - region.addresses.begin) / unit_bytes_,
                 .last = align_up(begin + bytes - region.addresses.begin, unit_bytes_) / unit_bytes_};
  const std::size_t known = std::clamp(region.units.size(), here.first, here.last);
  const auto units = region.units.begin();
  here.missing = here.last - known +
                 static_cast<std::size_t>(std::count(units + static_cast<std::ptrdiff_t>(here.first),
                                                     units + static_cast<std::ptrdiff_t>(known), 0u));
  return here;
}

// Finds the place in a free range with the fewest units without memory, and the lowest of these places. The
// place is the start of the range or of a unit. Returns no range if the block does not fit.
device_heap::placement device_heap::cheapest_place_in(heap_range& range, std::size_t bytes,
                                                      std::size_t align) const noexcept {
  const std::uintptr_t lowest = heap_ranges::place_in(range, bytes, align);
  if (lowest == 0) return {};
  heap_region const& region = *range.region;
  placement best = place_at(range, lowest, bytes);
  const std::size_t units = align_up(bytes, unit_bytes_) / unit_bytes_;
  const auto lacks = [&](std::size_t unit) { return unit >= region.units.size() || region.units[unit] == 0; };
  std::size_t first = align_up(range.begin - region.addresses.begin, unit_bytes_) / unit_bytes_;
  if (best.missing == 0 || align > unit_bytes_ || first >= region.units.size()) return best;
  std::uintptr_t begin = region.addresses.begin + first * unit_bytes_;
  if (begin > range.end() || bytes > range.end() - begin) return best;
  std::size_t missing = place_at(range, begin, bytes).missing, fewest = best.missing;
  for (std::uintptr_t at = begin;;) {
    if (missing < fewest) {
      fewest = missing;
      begin = at;
    }
    missing += std::size_t{lacks(first + units)} - std::size_t{lacks(first)};
    at += unit_bytes_;
    if (++first >= region.units.size() || at > range.end() || bytes > range.end() - at) break;
  }
  return fewest < best.missing ? place_at(range, begin, bytes) : best;
}

// Prefers the fewest units without memory, then the smallest range. Always includes the largest free range.
device_heap::placement device_heap::cheapest_place(std::size_t bytes, std::size_t align) const noexcept {
  placement best;
  const auto consider = [&](heap_range* range) {
    const placement here = cheapest_place_in(*range, bytes, align);
    if (here.range != nullptr && (best.range == nullptr || here.missing < best.missing)) best = here;
  };
  int tries = prefers_memory() ? places_tried : 1;
  free_lists const& lacking = ranges_.lacking();
  for (heap_range* at = lacking.first(bytes); at != nullptr && --tries >= 0; at = lacking.next(*at)) {
    consider(at);
    if (best.range != nullptr && best.missing == 0) return best;
  }
  if (tries < 0 && (prefers_memory() || best.range == nullptr)) consider(lacking.last());
  return best;
}

bool device_heap::add_reservation(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) return false;
  const std::size_t most = (keeps_addresses_ ? 1 : addresses_per_byte_of_memory) * total_bytes_;
  const byte_range range = reserve_addresses(*driver_, align_up(bytes, unit_bytes_), most, unit_bytes_);
  if (range.empty()) return false;
  try {
    ranges_.add(range, false);
  } catch (...) {
    (void)driver_->free_reservation(range);
    throw;
  }
  return true;
}

// A chunk is a quarter as large as all chunks before it, which keeps the number and the unused parts small.
heap_range& device_heap::add_chunk(std::size_t bytes) {
  const std::size_t wanted = std::clamp(held_bytes_ / 4, 2 * MiB, max_chunk_bytes);
  constexpr std::size_t granule = heap_ranges::granule_bytes;
  const byte_range chunk =
      tidemark::detail::allocate_by_halves(*upstream_, align_up(bytes, granule) / granule,
                                           std::max(bytes, wanted) / granule, granule, block_alignment);
  try {
    heap_range& added = ranges_.add(chunk, true);
    held_bytes_ += chunk.size;
    return added;
  } catch (...) {
    upstream_->deallocate(chunk.data(), chunk.size, block_alignment);
    throw;
  }
}

bool device_heap::gather(placement const& to, std::size_t live_bytes, char const*& refusal) {
  unmapped_handles_.reserve(std::max(to.missing, unmapped_handles_.size()));
  const auto lacks = [&] { return to.missing - std::min(to.missing, unmapped_handles_.size()); };
  const bool may_unmap = !keeps_addresses_ && !is_capturing();
  const auto move_idle = [&] {
    move_budget_.spend_moves(
        unmap_idle(lacks(), to, [&](physical_handle memory) { unmapped_handles_.push_back(memory); }));
  };
  const auto wait_and_move = [&] {
    move_budget_.spend_wait();
    if (marks_.wait()) move_idle();
  };
  const std::size_t most = std::max(peak_cut_bytes_, live_bytes);
  const auto create_within = [&](std::size_t slack) {
    const std::size_t wanted = (most + slack) / unit_bytes_ + 2, held = held_bytes_ / unit_bytes_;
    if (wanted >= held + lacks()) create(lacks(), refusal);
  };
  if (keeps_addresses_) share_idle(lacks(), to);
  create_within(most / slack_before_moves);
  if (lacks() == 0) return true;
  const auto is_worth_moves = [&](std::uint64_t moves) {
    return may_move(moves) || lacks() * unit_bytes_ > most / slack_before_best_fit;
  };
  if (may_unmap && is_worth_moves(lacks())) {
    marks_.query();
    move_idle();
    create_within(most / slack_before_waits);
    if (lacks() != 0 && is_worth_moves(lacks() + move_budget::moves_per_wait) &&
        ranges_.returnable_bytes() >= lacks() * unit_bytes_)
      wait_and_move();
  }
  create(lacks(), refusal);
  if (lacks() != 0 && may_unmap) {
    marks_.query();
    move_idle();
    if (lacks() != 0) wait_and_move();
  }
  if (!keeps_addresses_) marks_due_ = marks_after_need;
  if (may_unmap && freed_since_mark_ != 0) record_mark();
  return lacks() == 0;
}

// Creates as many units as the device and its budget have.
void device_heap::create(std::size_t units, char const*& refusal) {
  for (; units != 0; --units) {
    device_budget::claim claim{*budget_, unit_bytes_};
    refusal = device_limit_reached;
    if (!claim.is_allowed()) return;
    refusal = device_memory_exhausted;
    physical_handle memory = 0;
    const status created = driver_->create(device_, unit_bytes_, memory);
    if (created == status::out_of_memory) return;
    require_success(*driver_, "cuMemCreate", created);
    claim.commit();
    held_bytes_ += unit_bytes_;
    unmapped_handles_.push_back(memory);  // capacity is reserved
  }
}

// Takes idle units for other addresses of a heap that keeps addresses. Graphs may use the old addresses,
// which stay mapped to the same memory and are retired. Work on the old and on the new addresses is in the
// order of the stream, as if a block were reused in place.
void device_heap::share_idle(std::size_t units, placement const& but) {
  ranges_.visit_largest_first([&](heap_range& range) {
    if (units == 0) return false;
    heap_region& region = *range.region;
    if (&range == but.range || region.is_chunk) return true;
    auto [first, last] = ranges_.whole_units(range);
    last = std::min(last, region.units.size());
    while (last > first && region.units[last - 1] == 0) --last;
    std::size_t begin = last;
    while (begin > first && last - begin < units && region.units[begin - 1] != 0) --begin;
    if (begin >= last) return true;
    ranges_.prepare();
    const byte_range idle = addresses(region, begin, last);
    heap_ranges::reserve_pages(region, idle.end());
    const std::size_t missing_before =
        range.missing_bytes == 0
            ? 0
            : place_at(range, range.begin, idle.begin - range.begin).missing * unit_bytes_;
    for (std::size_t unit = begin; unit < last; ++unit)
      unmapped_handles_.push_back(std::exchange(region.units[unit], 0));  // capacity is reserved
    ranges_.retire(range, idle.begin, idle.size, missing_before);
    units -= last - begin;
    move_budget_.spend_moves(last - begin);
    return true;
  });
  ranges_.prepare();
}

// @pre No work uses the addresses.
void device_heap::unmap_retired() noexcept {
  const on_device here{*driver_, device_};
  for (heap_region& region : ranges_.regions()) {
    for (heap_range* range = region.first; range != nullptr;) {
      heap_range* const next =
          range->after != nullptr && range->after->is_free ? range->after->after : range->after;
      if (range->is_retired && driver_->unmap({range->begin, range->bytes}) == status::success)
        ranges_.restore(*range);
      range = next;
    }
  }
}

// Takes units first from ranges without complete memory, because such a range serves no block. Takes units of
// large ranges before those of small ranges.
template <class Take>
std::size_t device_heap::unmap_idle(std::size_t units, placement const& but, Take take) noexcept {
  std::size_t taken = 0;
  ranges_.visit_largest_first([&](heap_range& range) {
    if (range.region->is_chunk) return true;
    auto [first, last] = ranges_.whole_units(range);
    if (&range == but.range) {
      taken += unmap_idle_of(range, first, std::min(last, but.first), units - taken, take);
      first = std::max(first, but.last);
    }
    if (taken < units) taken += unmap_idle_of(range, first, last, units - taken, take);
    return taken < units;
  });
  return taken;
}

// One call unmaps a run of units.
template <class Take>
std::size_t device_heap::unmap_idle_of(heap_range& range, std::size_t first, std::size_t last,
                                       std::size_t units, Take take) noexcept {
  heap_region& region = *range.region;
  const auto is_idle = [&](std::size_t unit) {
    return region.units[unit] != 0 && marks_.has_passed(region.freed_at[unit]);
  };
  std::size_t taken = 0;
  for (last = std::min(last, region.units.size()); last > first && taken < units;) {
    if (!is_idle(last - 1)) {
      --last;
      continue;
    }
    std::size_t begin = last - 1;
    while (begin > first && last - begin < units - taken && is_idle(begin - 1)) --begin;
    status unmapped = driver_->unmap(addresses(region, begin, last));
    if (unmapped != status::success &&
        begin != last - 1) {  // the documentation does not promise it for a run
      begin = last - 1;
      unmapped = driver_->unmap(addresses(region, begin, last));
    }
    if (unmapped != status::success) break;
    for (std::size_t unit = begin; unit < last; ++unit) take(std::exchange(region.units[unit], 0));
    taken += last - begin;
    last = begin;
  }
  if (taken != 0) ranges_.set_missing(range, range.missing_bytes + taken * unit_bytes_);
  return taken;
}

// Maps a run of units, and makes the run accessible by one call. If that fails, the handles stay unmapped.
outcome device_heap::map(placement const& to) noexcept {
  heap_region& region = *to.range->region;
  outcome result;
  for (std::size_t unit = to.first; unit < to.last && result.good();) {
    const std::size_t first = unit;
    for (; unit < to.last && region.units[unit] == 0; ++unit) {
      result = {driver_->map(addresses(region, unit, unit + 1), unmapped_handles_.back()), "cuMemMap"};
      if (!result.good()) break;
      region.units[unit] = unmapped_handles_.back();
      unmapped_handles_.pop_back();
    }
    if (unit == first) {
      ++unit;
      continue;
    }
    const status allowed = driver_->allow_access(addresses(region, first, unit), device_set{device_});
    if (allowed == status::success) {
      ranges_.set_missing(*to.range, to.range->missing_bytes - (unit - first) * unit_bytes_);
      continue;
    }
    result = {allowed, "cuMemSetAccess"};
    for (std::size_t each = first; each < unit; ++each) {
      const status unmapped = driver_->unmap(addresses(region, each, each + 1));
      if (unmapped == status::success) unmapped_handles_.push_back(region.units[each]);
      else lose_unit(unmapped);
      region.units[each] = 0;
    }
  }
  return result;
}

// ---- returning memory -------------------------------------------------------------------------------------

std::size_t device_heap::release_free(std::size_t target_bytes) noexcept {
  return keeps_addresses_ ? 0 : release_idle(target_bytes);
}

std::size_t device_heap::release_idle(std::size_t target_bytes) noexcept {
  if (target_bytes == 0) free_empty_slabs();
  if (idle_bytes() <= target_bytes) return 0;
  if (upstream_ != nullptr) return release_chunks(target_bytes);
  const on_device here{*driver_, device_};
  if (here.result() != status::success || is_capturing()) return 0;
  const std::size_t before = held_bytes_;
  const auto release_passed = [&] {
    const auto excess = [&] {
      return (idle_bytes() - std::min(idle_bytes(), target_bytes) + unit_bytes_ - 1) / unit_bytes_;
    };
    if (excess() != 0) release_unmapped_handles();
    if (excess() != 0) (void)unmap_idle(excess(), {}, [&](physical_handle memory) { release_unit(memory); });
    return excess() == 0;
  };
  marks_.query();
  if (!release_passed() && marks_.wait()) (void)release_passed();
  return before - held_bytes_;
}

std::size_t device_heap::release_chunks(std::size_t target_bytes) noexcept {
  std::size_t released = 0;
  auto& regions = ranges_.regions();
  for (auto at = regions.begin(); at != regions.end() && idle_bytes() > target_bytes;) {
    heap_range& first = *(at++)->first;
    if (!first.is_free || first.after != nullptr) continue;
    const byte_range chunk = ranges_.remove(first);
    held_bytes_ -= chunk.size;
    released += chunk.size;
    upstream_->deallocate(chunk.data(), chunk.size, block_alignment);
  }
  return released;
}

void device_heap::release_unmapped_handles() noexcept {
  const on_device here{*driver_, device_};
  while (!unmapped_handles_.empty()) {
    const physical_handle memory = unmapped_handles_.back();
    unmapped_handles_.pop_back();
    release_unit(memory);
  }
}

void device_heap::release_unit(physical_handle memory) noexcept {
  const status released = driver_->release(memory);
  if (released != status::success) return lose_unit(released);
  held_bytes_ -= unit_bytes_;
  budget_->subtract_bytes(unit_bytes_);
}

void device_heap::lose_unit(status because) noexcept {
  held_bytes_ -= unit_bytes_;  // the budget still counts the unit
  report_lost(*driver_, name_, "cuMemRelease", because, unit_bytes_);
}

void device_heap::release() noexcept {
  for (heap_region& region : ranges_.regions()) {
    for (heap_range* range = region.first; range != nullptr; range = range->after) {
      if (range->slab != nullptr) slabs_.destroy(*range->slab);
    }
    std::ranges::fill(region.freed_at, marks_.next());
  }
  slabs_.forget();
  ranges_.free_all();
  requested_bytes_ = large_bytes_ = cut_bytes_ = 0;
  large_deallocations_ = large_allocations_;
  (void)release_idle(0);
  if (held_bytes_ == 0) unmap_retired();
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
  std::size_t held = 0, cut = 0, large = 0;
  std::vector<physical_handle> handles{unmapped_handles_.begin(), unmapped_handles_.end()};
  for (heap_region const& region : ranges_.regions()) {
    if (region.is_chunk) held += region.addresses.size;
    std::ranges::copy_if(region.units, std::back_inserter(handles),
                         [](physical_handle unit) { return unit != 0; });
    for (heap_range const* range = region.first; range != nullptr; range = range->after) {
      if (range->is_free || range->is_retired) continue;
      cut += range->bytes;
      if (range->slab == nullptr) large += range->bytes;
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
  if (large != large_bytes_) return "large_bytes == sum over live blocks beyond the classes";
  return nullptr;
}

}  // namespace tidemark::gpu::detail
