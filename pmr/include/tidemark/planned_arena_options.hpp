// SPDX-License-Identifier: Apache-2.0
/// @file
/// `planned_arena_options`: how a planned arena plans, and what it keeps.
#pragma once

#include <cstddef>
#include <memory_resource>

#include <tidemark/plan_options.hpp>

namespace tidemark {

/// How a planned arena plans, and what it keeps.
struct planned_arena_options {
  /// How steps are planned: at the end of a step that was recorded, and on its thread. The alignment is that
  /// of all blocks, 16 at least; the time limit is what such a step may take longer, besides the first order of `make_plan`.
  /// What `on_progress` throws ends the planning of that step, and nothing else.
  plan_options planning = {};
  /// A plan that missed so many requests, less the steps that missed none, is given up: the rest of the step comes from the
  /// fallback, and at its end the step is planned anew. 1 at least.
  std::size_t misses_max = 16;
  /// So many plans are kept, for steps of so many kinds that alternate; 1 at least. The one unused for
  /// longest goes.
  std::size_t plans_max = 8;
  /// A request whose blocks outlive their steps gets bytes for so many of them at most; further ones come
  /// from the fallback. 1 at least.
  std::size_t slots_max = 4;
  /// Bytes of address space that are reserved at least; 0: what the kind of memory prefers (1 GiB for virtual
  /// memory). A plan that needs more has the range replaced, which waits for a time without blocks in it.
  std::size_t reserve = 0;
  /// Where memory comes from that is not planned; null: `std::pmr::get_default_resource()`, on the host only.
  /// Must outlive the arena.
  std::pmr::memory_resource* fallback = nullptr;
  /// Name in messages and statistics; must outlive the arena.
  char const* name = "planned_arena";
};

}  // namespace tidemark
