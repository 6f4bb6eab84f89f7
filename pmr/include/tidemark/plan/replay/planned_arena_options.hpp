// SPDX-License-Identifier: Apache-2.0
/// @file
/// `planned_arena_options` and `planned_arena_stats`: what a planned arena is told, and what it counts. Own
/// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>

namespace tidemark {

/// How a planned arena plans, and what it keeps.
struct planned_arena_options {
  /// Alignment of all planned blocks in bytes, a power of two from 16. Each block takes a multiple of it.
  std::size_t alignment = 256;
  /// A plan is dropped after this many misses; each step without a miss cancels one. The step is planned anew
  /// at its end. If a step misses more than one request in eight, that happens at once. 1 at least.
  std::size_t max_misses = 16;
  /// Maximum kinds of steps whose plans are kept. The kind used least recently is dropped. 1 at least.
  std::size_t max_kinds = 8;
  /// Maximum blocks of one request, of this step and earlier ones, that have planned bytes at the same time.
  /// Further blocks come from the fallback. 1 at least.
  std::size_t max_slots = 4;
  /// Bytes of address space that are reserved at least; 0: what the kind of memory prefers (1 GiB for
  /// virtual memory). A plan that needs more has the range replaced, which waits for a time without
  /// blocks in it.
  std::size_t reserve = 0;
  /// Source of memory that is not planned; null: `std::pmr::get_default_resource()`, on the host
  /// only. Must outlive the arena. Its free memory is returned when a plan takes its place: see docs/plan.md.
  std::pmr::memory_resource* fallback = nullptr;
  /// Name in messages and statistics; must outlive the arena.
  char const* name = "planned_arena";
};

/// A snapshot of a planned arena. If it plans in the memory of its fallback, blocks that outlive their step
/// count as `fallback_allocations`, and as served by the plan.
///
/// `steps == planned_steps + partly_planned_steps + unplanned_steps`,
/// `allocations == planned_allocations + fallback_allocations + outside_allocations`,
/// `used_blocks <= planned_allocations`, `misses <= fallback_allocations`, `lower_bound_bytes <= height_bytes`.
struct planned_arena_stats {
  char const* name = "";                   ///< the arena's name
  std::uint64_t steps = 0;                 ///< ended so far
  std::uint64_t planned_steps = 0;         ///< served by a plan alone
  std::uint64_t partly_planned_steps = 0;  ///< served by a plan and the fallback
  std::uint64_t unplanned_steps = 0;       ///< served by no plan, or without a request
  std::uint64_t allocations = 0;           ///< blocks so far
  std::uint64_t planned_allocations = 0;   ///< in slots of a plan
  std::uint64_t fallback_allocations = 0;  ///< from the fallback in a step
  std::uint64_t outside_allocations = 0;   ///< from the fallback with no step open
  std::uint64_t misses = 0;                ///< of `fallback_allocations`, in steps whose kind had a plan
  std::uint64_t plans_made = 0;            ///< so far, `use` not counted
  std::size_t plans = 0;                   ///< kept now
  std::size_t used_blocks = 0;             ///< in slots now
  std::size_t height_bytes = 0;            ///< of the plan that was used last
  std::size_t lower_bound_bytes = 0;       ///< of the same plan: no plan is lower
  std::size_t committed_bytes = 0;         ///< of memory behind slots now
  std::size_t reserved_bytes = 0;          ///< of addresses for slots now
};

}  // namespace tidemark
