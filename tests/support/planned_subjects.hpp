// SPDX-License-Identifier: Apache-2.0
// `planned_arena` as a subject of the conformance suite: with no step open, in one that is recorded, and in
// steps that run by plans as soon as they repeat.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/core/upstream_memory.hpp>
#include <tidemark/plan/replay/planned_arena.hpp>

#include "recording_supply.hpp"
#include "subject_traits.hpp"
#include "telemetry_subjects.hpp"

namespace tidemark::test {

/// A planned arena whose memory and fallback are a supply's. The fallback is an arena, so that its memory can
/// be used again without asking the supply.
class planned_ground : public subject_traits<8 * MiB>, private adaptor_ground {
 public:
  using arena_type = basic_planned_arena<upstream_memory>;

  explicit planned_ground(supply_type& supply)
      : adaptor_ground{&supply}, memory_{options_on(upstream()), &supply} {}

  arena_type& resource() { return memory_; }
  void recycle() { adaptor_ground::recycle(); }
  void check() const { check_one_of(64, memory_); }
  /// But for the memory behind plans, which a dropped plan returns whatever the fallback does
  /// then.
  [[nodiscard]] std::vector<std::size_t> state() const {
    const planned_arena_stats stats = memory_.stats();
    return {stats.steps,
            stats.planned_steps,
            stats.partly_planned_steps,
            stats.planned_allocations,
            stats.fallback_allocations,
            stats.allocations,
            stats.outside_allocations,
            stats.misses,
            stats.plans_made,
            stats.plans,
            stats.used_blocks};
  }

 private:
  static planned_arena_options options_on(std::pmr::memory_resource* fallback) {
    planned_arena_options options;
    options.fallback = fallback;
    return options;
  }

  arena_type memory_;
};

/// No step is open: everything goes to the fallback.
using planned_outside_subject = planned_ground;

/// All in one step, which is recorded.
class planned_record_subject : public planned_ground {
 public:
  explicit planned_record_subject(supply_type& supply) : planned_ground{supply}, step_{resource()} {}

 private:
  arena_type::step step_;
};

/// Recycles the step. The next step follows a plan while it repeats the requests.
class planned_steps_subject : public planned_ground {
 public:
  explicit planned_steps_subject(supply_type& supply) : planned_ground{supply} { step_.emplace(resource()); }

  void recycle() {
    step_.reset();
    planned_ground::recycle();
    step_.emplace(resource());
  }

 private:
  std::optional<arena_type::step> step_;
};

}  // namespace tidemark::test
