// SPDX-License-Identifier: Apache-2.0
/// @file
/// `planned_arena_options` and `planned_arena_stats`: options and statistics of a planned arena. Own nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>

namespace tidemark {

class allocation_observer;

/// Options of a planned arena.
struct planned_arena_options {
  /// Alignment of all planned blocks in bytes, a power of two from 16. Blocks are rounded up to it.
  std::size_t alignment = 256;
  /// The plan is dropped after this many misses; each step without a miss cancels one. The end of the step
  /// makes a new plan. More than one miss in eight requests of a step drops the plan at once. At least 1.
  std::size_t max_misses = 16;
  /// Maximum kinds of steps with a plan. A new kind replaces the least recently used kind. At least 1.
  std::size_t max_kinds = 8;
  /// Maximum planned blocks of one request that are live at once, from this step and earlier steps. Further
  /// blocks come from the fallback. At least 1.
  std::size_t max_slots = 4;
  /// Minimum bytes of reserved address space; 0: the default of the memory kind (1 GiB for virtual memory). A
  /// plan that needs more replaces the range once it has no blocks.
  std::size_t reserve = 0;
  /// Source of memory that is not planned; null: `std::pmr::get_default_resource()`, on the host only. Must
  /// outlive the arena. Planned steps make the fallback return its unused memory: see docs/plan_decide.md.
  std::pmr::memory_resource* fallback = nullptr;
  /// Name in messages and statistics; must outlive the arena.
  char const* name = "planned_arena";
  /// Sees each block and each step; must outlive the arena. `TIDEMARK_TRACE` of the environment may add a
  /// trace. An observed arena allocates on its slow path, by the same plans.
  allocation_observer* observer = nullptr;
};

/// A snapshot of a planned arena. If it plans in the memory of its fallback, blocks that outlive their step
/// count as `fallback_allocations`, and as served by the plan.
///
/// `steps == planned_steps + partly_planned_steps + unplanned_steps`,
/// `allocations == planned_allocations + fallback_allocations + outside_allocations`,
/// `used_blocks <= planned_allocations`, `misses <= fallback_allocations`,
/// `lower_bound_bytes <= height_bytes`.
struct planned_arena_stats {
  char const* name = "";                   ///< name of the arena
  std::uint64_t steps = 0;                 ///< steps that have ended
  std::uint64_t planned_steps = 0;         ///< steps that a plan served alone
  std::uint64_t partly_planned_steps = 0;  ///< steps that a plan and the fallback served
  std::uint64_t unplanned_steps = 0;       ///< steps that no plan served, or without requests
  std::uint64_t allocations = 0;           ///< blocks up to now
  std::uint64_t planned_allocations = 0;   ///< blocks in slots of a plan
  std::uint64_t fallback_allocations = 0;  ///< blocks from the fallback in a step
  std::uint64_t outside_allocations = 0;   ///< blocks from the fallback with no open step
  std::uint64_t misses = 0;                ///< `fallback_allocations` in steps whose kind had a plan
  std::uint64_t plans_made = 0;            ///< plans made up to now, without `use`
  std::size_t plans = 0;                   ///< plans kept now
  std::size_t used_blocks = 0;             ///< blocks in slots now
  std::size_t height_bytes = 0;            ///< height of the most recently used plan
  std::size_t lower_bound_bytes = 0;       ///< lower bound of the same plan
  std::size_t committed_bytes = 0;         ///< bytes of memory behind slots now
  std::size_t reserved_bytes = 0;          ///< bytes of addresses for slots now

  /// Adds each number of another arena, and keeps the name.
  planned_arena_stats& operator+=(planned_arena_stats const& other) noexcept {
    constexpr std::uint64_t planned_arena_stats::* counts[] = {&planned_arena_stats::steps,
                                                               &planned_arena_stats::planned_steps,
                                                               &planned_arena_stats::partly_planned_steps,
                                                               &planned_arena_stats::unplanned_steps,
                                                               &planned_arena_stats::allocations,
                                                               &planned_arena_stats::planned_allocations,
                                                               &planned_arena_stats::fallback_allocations,
                                                               &planned_arena_stats::outside_allocations,
                                                               &planned_arena_stats::misses,
                                                               &planned_arena_stats::plans_made};
    constexpr std::size_t planned_arena_stats::* sizes[] = {
        &planned_arena_stats::plans,           &planned_arena_stats::used_blocks,
        &planned_arena_stats::height_bytes,    &planned_arena_stats::lower_bound_bytes,
        &planned_arena_stats::committed_bytes, &planned_arena_stats::reserved_bytes};
    for (auto const count : counts) this->*count += other.*count;
    for (auto const size : sizes) this->*size += other.*size;
    return *this;
  }
};

}  // namespace tidemark
