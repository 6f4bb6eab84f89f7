// SPDX-License-Identifier: Apache-2.0
// The units of memory: created, moved, shared and returned.
#include <tidemark/cuda/resources/detail/device_heap.hpp>

#include <algorithm>
#include <optional>
#include <utility>

#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>

#include "../driver/driver_errors.hpp"

namespace tidemark::gpu::detail {
namespace {

// The heap creates memory up to the peak of live bytes and a slack of at least a unit, and moves idle units
// for the rest of a block. The slack is this share of the peak, and grows with the moves beyond the budget.
// `moves_per_peak` of them make it as large as the peak.
constexpr std::size_t slack_share = 55, moves_per_peak = 16'000;
// The slack after a trim of an empty heap, which a program with plans begins with. With plans and after any
// other trim it is a unit: steps with plans repeat, and a trimmed program needs little memory. The first moves
// beyond the budget, `moves_per_peak` or these for each unit, make neither larger, because the first step of
// each kind needs moves.
constexpr std::size_t slack_share_of_plans = 280, lean_moves_per_unit = 4;
// From this number of missing units on, the heap asks the driver whether the device has them before it moves
// any.
constexpr std::size_t units_to_ask_for = 32;
// The next blocks may need memory too. Marks behind the next frees show which memory may move.
constexpr int marks_after_need = 8;

}  // namespace

bool device_heap::gather(placement const& to, std::size_t live_bytes, char const*& refusal) {
  unmapped_handles_.reserve(std::max(to.missing, unmapped_handles_.size()));
  heap_region& region = *to.range->region;
  region.reserve_pages(addresses(region, to.first, to.last).end());  // `map` may retire them
  ranges_.prepare();
  const auto lacks = [&] { return to.missing - std::min(to.missing, unmapped_handles_.size()); };
  const bool may_unmap = !keeps_addresses_ && !is_capturing();
  const auto move_idle = [&] {
    move_budget_.add_moves(
        unmap_idle(lacks(), to, [&](physical_handle memory) { unmapped_handles_.push_back(memory); }));
  };
  const auto [begin, end] = ranges_.whole_units(*to.range);  // all units without memory are among them
  const std::size_t own = std::min(end, to.last) - std::max(begin, to.first) - to.missing;
  const auto idle_elsewhere = [&] { return ranges_.returnable_bytes() / unit_bytes_ - own; };
  const auto wait_and_move = [&] {
    move_budget_.add_wait();
    if (marks_.wait()) move_idle();
  };
  const std::size_t movable = may_unmap || keeps_addresses_ ? idle_elsewhere() : 0;
  if (lacks() >= movable + units_to_ask_for && !can_create(lacks() - movable, refusal)) return false;
  const std::size_t peak = std::max(peak_cut_bytes_, live_bytes);
  const std::size_t most = (peak + std::max(slack(peak), unit_bytes_)) / unit_bytes_;
  if (keeps_addresses_) share_idle(lacks(), to);
  const std::size_t shared = unmapped_handles_.size();
  create(std::min(lacks(), most - std::min(most, held_bytes_ / unit_bytes_)), refusal);
  if (lacks() == 0) return true;
  if (may_unmap) {
    marks_.query();
    move_idle();
    // Idle memory that serves less of the block is not worth a wait.
    if (lacks() != 0 && ranges_.returnable_bytes() >= lacks() * unit_bytes_ / 8 * 7) wait_and_move();
  }
  create(lacks(), refusal);
  if (lacks() != 0 && may_unmap) {
    marks_.query();
    move_idle();
    if (lacks() != 0 && idle_elsewhere() != 0) wait_and_move();
  }
  if (keeps_addresses_ && lacks() != 0) release_unmapped_handles(shared);  // others may need new memory
  if (!keeps_addresses_) marks_due_ = marks_after_need;
  if (may_unmap && freed_since_mark_ != 0) record_mark();
  return lacks() == 0;
}

// Returns the bytes beyond the peak up to which the heap creates memory.
std::size_t device_heap::slack(std::size_t peak_bytes) const noexcept {
  const std::size_t units = peak_bytes / unit_bytes_;
  std::uint64_t debt = move_budget_.debt(counts().allocations, all_cut_bytes_ / unit_bytes_, units);
  std::size_t least = peak_bytes / slack_share;
  if (is_lean()) {
    least = begins_plans() ? peak_bytes / slack_share_of_plans : 0;
    debt -= std::min<std::uint64_t>(debt, std::max(moves_per_peak, units * lean_moves_per_unit));
  }
  return least + peak_bytes / moves_per_peak * std::min<std::size_t>(debt, moves_per_peak);
}

// Returns true unless the budget or the device refuses these units.
bool device_heap::can_create(std::size_t units, char const*& refusal) noexcept {
  const std::size_t bytes = units * unit_bytes_;
  refusal = device_limit_reached;
  if (!budget_->has_room(bytes) && !(budget_->trim_pools() && budget_->has_room(bytes))) return false;
  refusal = device_memory_exhausted;
  return free_bytes(*driver_) >= bytes;
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
  ranges_.visit_free(heap_ranges::visit_order::largest_first, [&](heap_range& range) {
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
    for (std::size_t unit = begin; unit < last; ++unit)
      unmapped_handles_.push_back(std::exchange(region.units[unit], 0));  // capacity is reserved
    retire(range, idle);
    units -= last - begin;
    move_budget_.add_moves(last - begin);
    return true;
  });
  ranges_.prepare();
}

// Makes units of a free range a range that no block gets. @pre The units count as units with memory;
// `prepare` and `reserve_pages` were called.
void device_heap::retire(heap_range& range, byte_range units) noexcept {
  ranges_.retire(range, units.begin, units.size, missing_before(range, units.begin));
}

// Unmaps retired ranges after a wait for the stream. @return true if no retired range is left. @pre No graph
// that uses the addresses is launched any more.
bool device_heap::unmap_retired() noexcept {
  std::optional<on_device> here;
  bool all = true;
  for (heap_region& region : ranges_.regions()) {
    for (heap_range* range = region.first; range != nullptr;) {
      heap_range* const next =
          range->after != nullptr && range->after->is_free ? range->after->after : range->after;
      if (range->is_retired) {
        if (!here) {
          here.emplace(*driver_, device_);
          if (here->result() != status::success || is_capturing() || !marks_.wait()) return false;
        }
        if (driver_->unmap({range->begin, range->bytes}) == status::success) ranges_.restore(*range);
        else all = false;
      }
      range = next;
    }
  }
  return all;
}

// Takes units first from ranges without complete memory, because such a range serves no block. A move takes
// the units of small ones first, because a large one needs fewer units to serve a block.
template <class Take>
std::size_t device_heap::unmap_idle(std::size_t units, placement const& but, Take take) noexcept {
  std::size_t taken = 0;
  const bool moves = but.range != nullptr;
  using enum heap_ranges::visit_order;
  ranges_.visit_free(moves ? smallest_first : largest_first, [&](heap_range& range) {
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
  if (taken != 0) ranges_.set_missing(range, range.missing_units + taken);
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
      ranges_.set_missing(*to.range, to.range->missing_units - (unit - first));
      continue;
    }
    result = {allowed, "cuMemSetAccess"};
    unmap_unused(*to.range, first, unit);
  }
  return result;
}

// Unmaps a run of units that has no access. Addresses that stay mapped are retired; no work uses these
// addresses, and the memory serves other addresses.
void device_heap::unmap_unused(heap_range& range, std::size_t first, std::size_t last) noexcept {
  heap_region& region = *range.region;
  for (std::size_t unit = first; unit < last; ++unit)
    unmapped_handles_.push_back(std::exchange(region.units[unit], 0));  // `map` got the handles from there
  while (first < last && driver_->unmap(addresses(region, first, first + 1)) == status::success) ++first;
  if (first == last) return;
  ranges_.set_missing(range, range.missing_units - (last - first));
  retire(range, addresses(region, first, last));
}

// ---- returning memory -------------------------------------------------------------------------------------

std::size_t device_heap::release_free(std::size_t target_bytes) noexcept {
  return keeps_addresses_ ? 0 : release_idle(target_bytes);
}

std::size_t device_heap::release_idle(std::size_t target_bytes) noexcept {
  if (target_bytes == 0) {
    free_empty_slabs();
    lean_until_ = counts().allocations + lean_allocations;
    was_empty_ = held_bytes_ == 0;
  }
  if (target_bytes < peak_cut_bytes_) peak_cut_bytes_ = std::min(peak_cut_bytes_, cut_bytes_ + target_bytes);
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
    upstream_->deallocate(chunk.data(), chunk.size, default_alignment);
  }
  return released;
}

void device_heap::release_unmapped_handles(std::size_t kept) noexcept {
  const on_device here{*driver_, device_};
  while (unmapped_handles_.size() > kept) {
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
      if (!range->is_free && range->slab != nullptr) slabs_.destroy(*range->slab);
    }
    std::ranges::fill(region.freed_at, marks_.next());
  }
  slabs_.forget();
  ranges_.free_all();
  requested_bytes_ = slab_bytes_ = cut_bytes_ = 0;
  serves_plans_ = false;
  large_deallocations_ = large_allocations_;
  if (unmap_retired()) (void)release_idle(0);  // a retired mapping would keep the memory of its handles
}

}  // namespace tidemark::gpu::detail
