// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/memory/detail/mapped_range.hpp>

#include <algorithm>

namespace tidemark::cuda::detail {

std::size_t mapped_range::bytes_of(bool unit::* state) const noexcept {
  return static_cast<std::size_t>(std::ranges::count(units_, true, state)) * unit_bytes_;
}

std::size_t mapped_range::first_of(byte_range part) const noexcept {
  return (part.begin - range_.begin) / unit_bytes_;
}

// One past the last recorded unit of `part`.
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

outcome mapped_range::map_one(std::size_t index) noexcept {
  unit& one = units_[index];
  if (!one.held) {
    const status created = driver_->create(device_, unit_bytes_, one.memory);
    if (created != status::success) return {created, "cuMemCreate"};
    one.held = true;
  }
  if (!one.mapped) {
    const status mapped = driver_->map(addresses(index, index + 1), one.memory);
    if (mapped != status::success) return {mapped, "cuMemMap"};
    one.mapped = true;
  }
  return {};
}

// One call allows access to all units of a run.
outcome mapped_range::map(byte_range part) noexcept {
  const std::size_t last = last_of(part);
  const auto is_due = [&](std::size_t i) { return units_[i].wanted && !units_[i].usable; };
  for (std::size_t i = first_of(part); i < last;) {
    if (!is_due(i)) {
      ++i;
      continue;
    }
    const std::size_t first = i;
    for (; i < last && is_due(i); ++i) {
      const outcome mapped = map_one(i);
      if (!mapped.good()) return mapped;
    }
    const status allowed = driver_->allow_access(addresses(first, i), device_);
    if (allowed != status::success) return {allowed, "cuMemSetAccess"};
    for (std::size_t usable = first; usable < i; ++usable) units_[usable].usable = true;
  }
  return {};
}

outcome mapped_range::unmap(byte_range part) noexcept {
  for (std::size_t i = first_of(part); i < last_of(part); ++i) {
    if (!units_[i].mapped) continue;
    const status unmapped = driver_->unmap(addresses(i, i + 1));
    if (unmapped != status::success) return {unmapped, "cuMemUnmap"};
    units_[i].mapped = units_[i].usable = false;
  }
  return {};
}

outcome mapped_range::release(byte_range part) noexcept {
  outcome result;
  for (std::size_t i = first_of(part); i < last_of(part); ++i) {
    unit& one = units_[i];
    if (!one.held || one.mapped) continue;
    const status released = driver_->release(one.memory);
    one.held = released != status::success;
    if (one.held) result = {released, "cuMemRelease"};
  }
  return result;
}

}  // namespace tidemark::cuda::detail
