// SPDX-License-Identifier: Apache-2.0
// Addresses as numbers, for tests of inaccessible memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace tidemark::test {

/// The first address of made-up ranges.
inline constexpr std::uintptr_t base = 0x1'0000'0000;

inline constexpr std::size_t max_size = std::numeric_limits<std::size_t>::max();

inline std::uintptr_t address_of(void const* block) { return reinterpret_cast<std::uintptr_t>(block); }
inline void* block_at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

}  // namespace tidemark::test
