// SPDX-License-Identifier: Apache-2.0
/// @file
/// `planned_arena_stats`: what a planned arena did and holds, in numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark {

/// A snapshot of a planned arena.
///
/// `allocations == planned_allocations + fallback_allocations + outside_allocations`, and `used_blocks <=
/// planned_allocations`. `misses <= fallback_allocations`. `lower_bound_bytes <= height_bytes`.
struct planned_arena_stats {
  char const* name = "";                   ///< the arena's name
  std::uint64_t steps = 0;                 ///< ended so far
  std::uint64_t planned_steps = 0;         ///< of these, those that asked nothing of the fallback
  std::uint64_t allocations = 0;           ///< blocks handed out so far
  std::uint64_t planned_allocations = 0;   ///< of these, in slots of a plan
  std::uint64_t fallback_allocations = 0;  ///< of these, from the fallback in a step
  std::uint64_t outside_allocations = 0;   ///< of these, from the fallback with no step open
  std::uint64_t misses = 0;                ///< requests that a plan was there for, and had no free slot
  std::uint64_t plans_made = 0;            ///< so far, by planning a step that was recorded
  std::size_t plans = 0;                   ///< kept now
  std::size_t used_blocks = 0;             ///< in slots now
  std::size_t height_bytes = 0;            ///< of the plan that was used last
  std::size_t lower_bound_bytes = 0;       ///< of the same: below that no plan is
  std::size_t committed_bytes = 0;         ///< of memory behind slots now
  std::size_t reserved_bytes = 0;          ///< of addresses for slots now
};

}  // namespace tidemark
