// SPDX-License-Identifier: Apache-2.0
/// @file
/// `arena_stats`: what an arena holds, in numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace tidemark {

/// A snapshot of an arena. `used_bytes <= peak_bytes` and
/// `used_bytes <= committed_bytes + suspended_bytes <= reserved_bytes`.
struct arena_stats {
  char const* name = "";                     ///< the arena's name
  std::size_t used_bytes = 0;                ///< its position: handed out, with padding
  std::size_t peak_bytes = 0;                ///< the highest position so far
  std::size_t committed_bytes = 0;           ///< backed by memory, used or kept
  std::size_t suspended_bytes = 0;           ///< backed by memory again after `resume`; else 0
  std::size_t reserved_bytes = 0;            ///< address space held
  std::size_t chunks = 0;                    ///< chunks held, in use or kept
  std::uint64_t system_calls = 0;            ///< calls to its source of memory so far
  std::optional<std::uint64_t> allocations;  ///< allocations so far; counted at check level 2 only
};

}  // namespace tidemark
