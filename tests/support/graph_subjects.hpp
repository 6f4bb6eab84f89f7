// SPDX-License-Identifier: Apache-2.0
// Graph arenas, switches and rehearsals as subjects of the conformance suite and of the model test.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/core/units.hpp>
#include <tidemark/graph/capture_switch.hpp>
#include <tidemark/graph/graph_arena.hpp>
#include <tidemark/graph/rehearse.hpp>

#include "recording_supply.hpp"
#include "subject_traits.hpp"

namespace tidemark::test {

/// A graph arena on its own memory. It reuses nothing by itself; recycling resets all of it.
class graph_arena_subject : public subject_traits<1 * MiB, 8 * MiB> {
 public:
  explicit graph_arena_subject(supply_type& upstream) : arena_{capacity, &upstream} {}

  graph_arena& resource() { return arena_; }
  void recycle() { arena_.reset(); }
  void check() const { check_one_of(256, arena_); }
  [[nodiscard]] std::vector<std::size_t> state() const { return state_of(arena_); }

  static std::vector<std::size_t> state_of(graph_arena const& arena) {
    const graph_arena_stats stats = arena.stats();
    return {stats.allocations,   stats.deallocations,     stats.bad_deallocations, stats.used_blocks,
            stats.peak_blocks,   stats.used_bytes,        stats.peak_bytes,        stats.high_water_bytes,
            arena.layout().hash, arena.layout().alignment};
  }

 private:
  graph_arena arena_;
};

inline std::vector<std::size_t> state_of(capture_switch const& memory) {
  const capture_switch_stats stats = memory.stats();
  return {stats.allocations, stats.deallocations,   stats.used_blocks,
          stats.peak_blocks, stats.used_bytes,      stats.peak_bytes,
          stats.total_bytes, stats.deferred_blocks, stats.frozen_threads};
}

/// The upstream of a switch: an arena, so that memory can be reused without calling the supply. Above it a
/// resource compares each returned block with the allocated one.
class switch_ground {
 protected:
  explicit switch_ground(std::pmr::memory_resource* supply) : arena_{supply} {}
  std::pmr::memory_resource* upstream() { return &exact_; }
  void recycle_ground() { arena_.reset(); }

 private:
  upstream_arena arena_;
  recording_resource exact_{&arena_};
};

/// A switch outside of captures.
class capture_switch_subject : public subject_traits<64 * MiB>, private switch_ground {
 public:
  explicit capture_switch_subject(supply_type& supply) : switch_ground{&supply}, switch_{upstream()} {}

  capture_switch& resource() { return switch_; }
  void recycle() { recycle_ground(); }
  void check() const { switch_.check_invariants(); }
  [[nodiscard]] std::vector<std::size_t> state() const { return state_of(switch_); }

 private:
  capture_switch switch_;
};

/// A switch in a capture that has an arena.
class frozen_switch_subject
    : public subject_traits<graph_arena_subject::largest, graph_arena_subject::capacity> {
 public:
  explicit frozen_switch_subject(supply_type& supply)
      : arena_{capacity, &supply}, switch_{std::pmr::null_memory_resource()} {
    switch_.install_arena(arena_);
    switch_.freeze();
  }
  frozen_switch_subject(frozen_switch_subject const&) = delete;
  frozen_switch_subject& operator=(frozen_switch_subject const&) = delete;
  ~frozen_switch_subject() { switch_.unfreeze().release(); }

  capture_switch& resource() { return switch_; }
  void recycle() { arena_.reset(); }
  void check() const {
    switch_.check_invariants();
    check_one_of(256, arena_);
  }
  [[nodiscard]] std::vector<std::size_t> state() const {
    std::vector<std::size_t> both = state_of(switch_);
    for (const std::size_t one : graph_arena_subject::state_of(arena_)) both.push_back(one);
    return both;
  }

 private:
  graph_arena arena_;
  capture_switch switch_;  // knows nothing to hand out but the arena's
};

/// A switch in a capture without an arena. Its allocations are returned when the graph ends, at which time it
/// is recycled.
class baking_switch_subject : public subject_traits<64 * MiB>, private switch_ground {
 public:
  explicit baking_switch_subject(supply_type& supply) : switch_ground{&supply}, switch_{upstream()} {
    switch_.freeze();
  }
  baking_switch_subject(baking_switch_subject const&) = delete;
  baking_switch_subject& operator=(baking_switch_subject const&) = delete;
  ~baking_switch_subject() { switch_.unfreeze().release(); }

  capture_switch& resource() { return switch_; }
  void recycle() {
    switch_.unfreeze().release();
    recycle_ground();
    switch_.freeze();
  }
  void check() const { check_one_of(16, switch_); }
  [[nodiscard]] std::vector<std::size_t> state() const { return state_of(switch_); }

 private:
  capture_switch switch_;
};

/// A rehearsal whose blocks can be used.
class rehearsal_subject : public subject_traits<64 * MiB>, private switch_ground {
 public:
  explicit rehearsal_subject(supply_type& supply) : switch_ground{&supply}, rehearsal_{upstream()} {}

  rehearsal& resource() { return rehearsal_; }
  void recycle() { recycle_ground(); }
  [[nodiscard]] std::vector<std::size_t> state() const {
    const graph_layout layout = rehearsal_.layout();
    return {layout.bytes, layout.alignment, layout.allocations, layout.hash};
  }

 private:
  rehearsal rehearsal_;
};

}  // namespace tidemark::test
