// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Progress and limits".
// How far a search has come, and when it ends: the best layout, the proven bound and the target between them.
// Each stage counts its steps here; every 2^14 of them the clock and the flag to stop are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tidemark/planner.hpp>

#include "problem.hpp"

namespace tidemark::planner::detail {

/// Where the buffers lie.
struct layout {
  std::vector<offset_type> offsets;
  offset_type height = no_offset;
};

/// The layout of a plan, whose offsets are by block.
[[nodiscard]] layout layout_of(problem const& instance, memory_plan const& plan);

/// The best layout so far, the bounds, and the limits.
///
/// `instance().padded_bound <= proven_bound() <= best().height`. What the stages do depends on the problem
/// and on `best()` alone, never on the limits, so that the limits only cut one sequence of steps.
class solver_context {
 public:
  solver_context(problem const& instance, layout start, planner::options const& options);

  [[nodiscard]] problem const& instance() const noexcept { return *instance_; }
  [[nodiscard]] layout const& best() const noexcept { return best_; }
  [[nodiscard]] offset_type proven_bound() const noexcept { return proven_bound_; }
  /// A layout of that height is good enough.
  [[nodiscard]] offset_type target() const noexcept { return target_; }
  [[nodiscard]] std::uint64_t nodes() const noexcept { return nodes_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return options_->seed; }

  /// Begins, or goes on with, the stage of that name. Stages with the same name are one.
  void enter_stage(char const* name);
  /// Counts steps of some nanoseconds each, so that the clock is read often enough.
  /// @return whether the search goes on. Once it was cut off this is false each time, so that who looks at the
  /// last of several answers alone knows it, too.
  [[nodiscard]] bool count_steps(std::uint64_t steps) {
    steps_ += steps;
    if (nodes_ < options_->node_limit && steps_ < next_check_steps_) return true;
    return check_limits();
  }
  /// Counts a block that was placed in `steps` steps. @return as `count_steps` does.
  [[nodiscard]] bool count_node(std::uint64_t steps) {
    ++nodes_;
    return count_steps(steps + node_steps);
  }
  /// Whether there is nothing left to search for, or the search was cut off.
  [[nodiscard]] bool done() const noexcept { return cut_ || best_.height <= target_; }
  /// Takes the layout if it is lower.
  void offer(std::vector<offset_type> const& offsets);
  /// Records that no layout is lower than `height`.
  void raise_bound(offset_type height);
  /// The plan that was found, of the buffers alone, so that it does not say whether it is optimal. @post nothing
  /// else is called
  [[nodiscard]] result finish(std::size_t blocks);

 private:
  using clock = problem::clock;

  // The clock is read after this many steps, mostly some tens of microseconds. A node may take as many steps
  // as there are blocks, and counts as these.
  static constexpr std::uint64_t check_steps = 1U << 14U;
  static constexpr std::uint64_t node_steps = check_steps / 256;

  [[nodiscard]] std::size_t best_height_bytes() const noexcept {
    return best_.height * instance_->unit_bytes;
  }
  bool check_limits();
  void report();
  void leave_stage();

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
  std::size_t stage_ = 0;  // the current one
  std::uint64_t stage_begin_nodes_ = 0;
  clock::time_point stage_begin_;
};

}  // namespace tidemark::planner::detail
