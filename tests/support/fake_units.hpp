// SPDX-License-Identifier: Apache-2.0
// A fake device whose memory is mapped in small units, so that few bytes are many units.
#pragma once

#include <cstddef>

#include <tidemark/core/units.hpp>

#include "fake_memory.hpp"

namespace tidemark::test {

inline constexpr std::size_t unit = 64 * KiB;

/// Devices of `capacity` units.
inline fake_device_options in_units(std::size_t capacity = 64, gpu::device_number devices = 1) {
  return {.capacity_bytes = capacity * unit, .granularity_bytes = unit, .devices = devices};
}

/// `n` units from the `first` on.
inline byte_range units_of(byte_range range, std::size_t first, std::size_t n) {
  return {range.begin + first * unit, n * unit};
}

}  // namespace tidemark::test
