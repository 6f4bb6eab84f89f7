// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/memory/detail/mapped_range.hpp>

#include <algorithm>
#include <bit>

namespace tidemark::gpu::detail {

std::size_t mapped_range::bytes_of(bool unit::* state) const noexcept {
  return static_cast<std::size_t>(std::ranges::count(units_, true, state)) * unit_bytes_;
}

std::size_t mapped_range::first_of(byte_range part) const noexcept {
  return (part.begin - range_.begin) / unit_bytes_;
}

// Returns one past the last recorded unit of `part`.
std::size_t mapped_range::last_of(byte_range part) const noexcept {
  return std::min((part.end() - range_.begin) / unit_bytes_, units_.size());
}

byte_range mapped_range::addresses(std::size_t first, std::size_t last) const noexcept {
  return {range_.begin + first * unit_bytes_, (last - first) * unit_bytes_};
}

bool mapped_range::want(byte_range part, bool wanted) noexcept {
  const std::size_t last = (part.end() - range_.begin) / unit_bytes_;
  if (wanted && last > units_.size()) {
    try {
      units_.resize(last);
    } catch (...) {
      return false;
    }
  }
  for (std::size_t i = first_of(part); i < last_of(part); ++i) units_[i].wanted = wanted;
  return true;
}

// Returns the units of the handle that contains a unit; only the unit if it is not held.
mapped_range::units mapped_range::handle_at(std::size_t index) const noexcept {
  if (!units_[index].held) return {index, index + 1};
  const std::size_t n = std::size_t{1} << units_[index].order;
  const std::size_t first = index / n * n;
  return {first, first + n};
}

bool mapped_range::is_due(std::size_t index) const noexcept {
  return units_[index].wanted && !units_[index].usable;
}

bool mapped_range::may_unmap(std::size_t index, units part) const noexcept {
  if (!units_[index].mapped) return false;
  const units handle = handle_at(index);
  for (std::size_t i = handle.first; i < handle.last; ++i) {
    if (units_[i].wanted && (i < part.first || i >= part.last)) return false;
  }
  return true;
}

// Returns the units of the largest permitted handle at a unit: a power of two.
std::size_t mapped_range::largest_at(std::size_t index, std::size_t last) const noexcept {
  std::size_t largest = std::min(handle_units_max_, std::max<std::size_t>(index / 4, 1));
  if (index != 0) largest = std::min(largest, index & ~(index - 1));  // begins at a multiple of its size
  std::size_t room = 1;
  while (room < largest && index + room < last && units_[index + room].wanted && !units_[index + room].held) {
    ++room;
  }
  return std::bit_floor(std::min(largest, room));
}

// Creates a handle for as many units as possible, all of them before `last`.
outcome mapped_range::create_at(std::size_t index, std::size_t last) noexcept {
  physical_handle memory = 0;
  for (std::size_t n = largest_at(index, last);; n /= 2) {
    device_budget::claim claim{*budget_, n * unit_bytes_};
    const status created =
        claim.is_allowed() ? driver_->create(memory_, n * unit_bytes_, memory) : status::out_of_memory;
    if (created == status::success) claim.commit();
    if (created == status::out_of_memory && n != 1) continue;
    if (created != status::success) return {created, "cuMemCreate"};
    for (std::size_t i = index; i < index + n; ++i) {
      units_[i].memory = memory;
      units_[i].order = static_cast<std::uint8_t>(std::countr_zero(n));
      units_[i].held = true;
    }
    return {};
  }
}

outcome mapped_range::map_one(std::size_t index, std::size_t last) noexcept {
  if (!units_[index].held) {
    const outcome created = create_at(index, last);
    if (!created.good()) return created;
  }
  if (units_[index].mapped) return {};
  const units handle = handle_at(index);
  const status mapped = driver_->map(addresses(handle.first, handle.last), units_[index].memory);
  if (mapped != status::success) return {mapped, "cuMemMap"};
  for (std::size_t i = handle.first; i < handle.last; ++i) units_[i].mapped = true;
  return {};
}

// One call permits access to all handles of a run.
outcome mapped_range::map(byte_range part) noexcept {
  const std::size_t last = last_of(part);
  for (std::size_t i = first_of(part); i < last;) {
    if (!is_due(i)) {
      ++i;
      continue;
    }
    units run{i, i};
    while (run.last < last && is_due(run.last)) {
      const outcome mapped = map_one(run.last, last);
      if (!mapped.good()) return mapped;
      const units handle = handle_at(run.last);
      run = {std::min(run.first, handle.first), handle.last};
    }
    const status allowed = driver_->allow_access(addresses(run.first, run.last), accessible_from_);
    if (allowed != status::success) return {allowed, "cuMemSetAccess"};
    for (i = run.first; i < run.last; ++i) units_[i].usable = true;
  }
  return {};
}

std::size_t mapped_range::mapped_front(byte_range part, std::size_t least_bytes) const noexcept {
  const std::size_t first = first_of(part), last = last_of(part);
  const std::size_t least = first + (least_bytes + unit_bytes_ - 1) / unit_bytes_;
  std::size_t front = first;
  while (front < std::min(least, last) && units_[front].mapped) front = handle_at(front).last;
  return front < least ? 0 : (std::min(front, last) - first) * unit_bytes_;
}

std::vector<mapped_handle> mapped_range::handles_behind(byte_range part) const {
  const std::size_t last = (part.end() - range_.begin + unit_bytes_ - 1) / unit_bytes_;
  if (last > units_.size()) return {};
  std::vector<mapped_handle> handles;
  for (std::size_t i = first_of(part); i < last; ++i) {
    if (!units_[i].wanted || !units_[i].usable) return {};
    const units handle = handle_at(i);
    if (i == handle.first || handles.empty())
      handles.push_back({.addresses = addresses(handle.first, handle.last), .memory = units_[i].memory});
  }
  return handles;
}

// One call unmaps a run of whole mappings, as llama.cpp's pool does. The documentation does not promise this
// for any run; if a run is refused, its mappings are unmapped one by one.
outcome mapped_range::unmap_run(units run) noexcept {
  const status unmapped = driver_->unmap(addresses(run.first, run.last));
  if (unmapped == status::success) {
    for (std::size_t i = run.first; i < run.last; ++i) units_[i].mapped = units_[i].usable = false;
    return {};
  }
  if (handle_at(run.first).last == run.last) return {unmapped, "cuMemUnmap"};
  for (std::size_t i = run.first; i < run.last;) {
    const units handle = handle_at(i);
    const outcome one = unmap_run(handle);
    if (!one.good()) return one;
    i = handle.last;
  }
  return {};
}

outcome mapped_range::unmap(byte_range part) noexcept {
  const units within{first_of(part), last_of(part)};
  for (std::size_t i = within.first; i < within.last;) {
    units run = handle_at(i);
    if (may_unmap(i, within)) {
      while (run.last < within.last && may_unmap(run.last, within)) run.last = handle_at(run.last).last;
      const outcome unmapped = unmap_run(run);
      if (!unmapped.good()) return unmapped;
    }
    i = run.last;
  }
  return {};
}

outcome mapped_range::release(byte_range part) noexcept {
  outcome result;
  const std::size_t last = last_of(part);
  for (std::size_t i = first_of(part); i < last;) {
    const units handle = handle_at(i);
    if (units_[i].held && !units_[i].mapped) {
      const status released = driver_->release(units_[i].memory);
      if (released != status::success) result = {released, "cuMemRelease"};
      else budget_->subtract_bytes((handle.last - handle.first) * unit_bytes_);
      for (std::size_t each = handle.first; each < handle.last; ++each) {
        units_[each].held = released != status::success;
      }
    }
    i = handle.last;
  }
  return result;
}

}  // namespace tidemark::gpu::detail
