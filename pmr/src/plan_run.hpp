// SPDX-License-Identifier: Apache-2.0
// How far a search has come, and when it ends.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tidemark/plan.hpp>

#include "plan_problem.hpp"

namespace tidemark::detail::planning {

/// Where the pieces lie.
struct layout {
  std::vector<granules> offsets;
  granules height = nowhere;
};

/// The best layout so far, what it is measured against, and the limits.
///
/// `asked().lower_bound <= proven() <= best().height`. What the stages do depends on the problem and on
/// `best()` alone, never on the limits, so that the limits only cut one sequence of steps.
class search_run {
 public:
  search_run(problem const& asked, plan_options const& options);

  [[nodiscard]] problem const& asked() const noexcept { return *asked_; }
  [[nodiscard]] layout const& best() const noexcept { return best_; }
  [[nodiscard]] granules proven() const noexcept { return proven_; }
  /// A layout of that height is good enough.
  [[nodiscard]] granules wanted() const noexcept { return wanted_; }
  [[nodiscard]] std::uint64_t nodes() const noexcept { return nodes_; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return options_->seed; }

  /// Begins, or goes on with, the stage of that name. Stages with the same name are one.
  void enter(char const* stage);
  /// Counts a block that was placed. @return whether the search goes on: false once it was cut off.
  [[nodiscard]] bool count() {
    ++nodes_;
    if (nodes_ < next_look_) return true;
    return look();
  }
  /// Counts steps of some nanoseconds that are no blocks placed, so that the clock is looked at in time.
  /// @return as `count` does.
  [[nodiscard]] bool spend(std::uint64_t steps) {
    steps_ += steps;
    if (steps_ < next_clock_) return true;
    return look();
  }
  /// Whether there is nothing left to search for, or the search was cut off.
  [[nodiscard]] bool over() const noexcept { return cut_ || best_.height <= wanted_; }
  /// Takes the layout if it is lower. @return whether it is.
  bool offer(std::vector<granules> const& offsets, granules height);
  /// Notes that no layout is lower than `height`.
  void prove(granules height);
  /// From now on the limits hold.
  void obey_limits();
  /// The plan it came to. @post nothing else is called
  [[nodiscard]] plan finish(std::size_t block_n);

 private:
  using clock = problem::clock;

  bool look();
  void report();
  void leave();

  problem const* asked_;
  plan_options const* options_;
  layout best_;
  granules proven_;
  granules wanted_;  // >= proven_
  bool limited_ = false;
  bool cut_ = false;
  std::uint64_t nodes_ = 0;
  std::uint64_t next_look_;  // at so many nodes
  std::uint64_t steps_ = 0;
  std::uint64_t next_clock_;  // at so many steps
  clock::time_point begin_;
  clock::time_point reported_;
  std::vector<plan_stage> stages_;
  std::size_t stage_ = 0;  // the one it is in
  std::uint64_t stage_begin_nodes_ = 0;
  clock::time_point stage_begin_;
};

}  // namespace tidemark::detail::planning
