// SPDX-License-Identifier: Apache-2.0
/// @file
/// `allocate_by_halves`: memory of an upstream whose wanted size is a wish. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>

#include <tidemark/core/address_space.hpp>
#include <tidemark/core/byte_range.hpp>

namespace tidemark::detail {

/// `reserve_by_halves` from an upstream: `unit_bytes` bytes for each unit, and `extra_bytes` besides. A `std::bad_alloc`
/// refuses more than `needed`.
/// @throws what the upstream throws for `needed`, and every other exception
[[nodiscard]] inline byte_range allocate_by_halves(std::pmr::memory_resource& upstream, std::size_t needed,
                                                   std::size_t wanted, std::size_t unit_bytes,
                                                   std::size_t align, std::size_t extra_bytes = 0) {
  const auto take = [&](std::size_t units) -> byte_range {
    const std::size_t bytes = units * unit_bytes + extra_bytes;
    if (units == needed) return {reinterpret_cast<std::uintptr_t>(upstream.allocate(bytes, align)), bytes};
    try {
      return {reinterpret_cast<std::uintptr_t>(upstream.allocate(bytes, align)), bytes};
    } catch (std::bad_alloc const&) {
      return {};
    }
  };
  return reserve_by_halves(needed, wanted, take);
}

}  // namespace tidemark::detail
