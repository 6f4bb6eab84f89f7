// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Progress and limits".
// Keeps the state of a search: the best layout, the proven bound, the target and the limits. Stages report
// their steps here. The clock and the stop flag are read every 2^14 steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tidemark/planner.hpp>

#include "problem.hpp"

namespace tidemark::planner::detail {

/// An offset for each buffer.
struct layout {
  std::vector<offset_type> offsets;
  offset_type height = no_offset;
};

/// Returns the layout of a plan whose offsets are indexed by block.
[[nodiscard]] layout layout_of(problem const& instance, memory_plan const& plan);

/// The best layout, the bounds and the limits of a search.
///
/// Invariant: `instance().padded_bound <= proven_bound() <= best().height`. The stages depend only on the
/// problem and on `best()`, never on the limits. The limits therefore cut off one fixed sequence of steps.
class solver_context {
 public:
  solver_context(problem const& instance, layout start, planner::options const& options);

  [[nodiscard]] problem const& instance() const noexcept { return *instance_; }
  [[nodiscard]] layout const& best() const noexcept { return best_; }
  [[nodiscard]] offset_type proven_bound() const noexcept { return proven_bound_; }
  /// The search ends when it has a layout of this height or lower.
  [[nodiscard]] offset_type target() const noexcept { return target_; }
  [[nodiscard]] std::uint64_t nodes() const noexcept { return nodes_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return options_->seed; }

  /// Begins or resumes the stage of this name. Stages with equal names share one record.
  void enter_stage(char const* name);
  /// Counts steps of a few nanoseconds each, so that the clock is read often enough.
  /// @return true if the search continues. After a cut-off each call returns false, so callers may check only
  ///   the last of several results.
  [[nodiscard]] bool count_steps(std::uint64_t steps) {
    steps_ += steps;
    if (nodes_ < options_->node_limit && steps_ < next_check_steps_) return true;
    return check_limits();
  }
  /// Counts a block that was placed in `steps` steps. @return as for `count_steps`
  [[nodiscard]] bool count_node(std::uint64_t steps) {
    ++nodes_;
    return count_steps(steps + node_steps);
  }
  /// Returns true if the best layout meets the target or the search was cut off.
  [[nodiscard]] bool done() const noexcept { return cut_ || best_.height <= target_; }
  /// Replaces the best layout if `offsets` is lower.
  void offer(std::vector<offset_type> const& offsets);
  /// Records the proof that no layout is lower than `height`.
  void raise_bound(offset_type height);
  /// Returns the best plan of the buffers. Does not set `optimal`. @post no other member is called
  [[nodiscard]] result finish(std::size_t blocks);

 private:
  using clock = problem::clock;

  // Number of steps between two reads of the clock, usually some tens of microseconds. A node counts at least
  // `node_steps` steps, because a node may visit all blocks.
  static constexpr std::uint64_t check_steps = 1U << 14U;
  static constexpr std::uint64_t node_steps = check_steps / 256;

  [[nodiscard]] std::size_t best_height_bytes() const noexcept {
    return best_.height * instance_->unit_bytes;
  }
  bool check_limits();
  void report();
  void end_stage();

  problem const* instance_;
  planner::options const* options_;
  layout best_;
  offset_type proven_bound_;
  offset_type target_;  // >= proven_bound_
  bool cut_ = false;
  std::uint64_t nodes_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t next_check_steps_ = check_steps;
  clock::time_point begin_;
  clock::time_point reported_;
  std::vector<stage> stages_;
  std::size_t stage_ = 0;  // index of the current stage
  std::uint64_t stage_begin_nodes_ = 0;
  clock::time_point stage_begin_;
};

}  // namespace tidemark::planner::detail
