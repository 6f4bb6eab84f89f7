// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Promotion".
// Takes decisions of a layout back if they waste too much. Each decision is kept with the changes since. When
// a section gets fuller than the limit, the decision that shaped its plateau is undone and another buffer
// is tried. After enough tries the decision that shaped the plateau below is undone instead. If no try
// holds the limit, the limit is raised to the least occupancy of the tries.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>

#include "skyline_layout.hpp"

namespace tidemark::planner::detail {
namespace {

// Measured values: docs/decisions/0052-large-steps.md.
constexpr std::size_t max_times_back_per_try = 64;  // until the limit is raised
constexpr std::uint64_t steps_per_try = 2;          // of a layout, for each buffer
constexpr std::uint64_t raises_per_step = 2;        // usually fewer are needed

// In measured steps each decision undone was at most 102 decisions before the last one.
constexpr std::size_t max_decisions = 1024;
// The limit counts as held after this many further decisions.
constexpr std::uint32_t farther = 50;

}  // namespace

bool skyline_layout::place_over_fullest(order const& by, std::size_t max_tried) {
  over_fullest_ = true;
  past_ = {};
  past_.limit = static_cast<double>(context_->target());
  past_.max_tried = max_tried;
  past_.steps_left = steps_per_try * max_tried * by.size();
  past_.raises_left = raises_per_step * past_.steps_left;
  occupancy_.restart(instance_->section_loads);
  return place_all(by);
}

/// Records the placement of a buffer on a plateau, so that it can be undone.
void skyline_layout::decide(std::uint32_t rank, std::uint32_t plateau_begin) {
  if (!over_fullest_) return;
  if (past_.decisions.size() == max_decisions) {
    past_.decisions.pop_front();
    ++past_.decisions_before;
    for (; past_.changes_before != past_.decisions.front().first_change; ++past_.changes_before)
      past_.changes.pop_front();
  }
  past_.decisions.push_back({.first_change = past_.changes_before + past_.changes.size(),
                             .rank = rank,
                             .plateau_shaped_by = plateaus_[plateau_begin].shaped_by,
                             .fixed_passed = fixed_passed_,
                             .tried_before = std::exchange(past_.tried, {})});
  if (last_decision() > past_.farthest + farther) {
    past_.farthest = last_decision();
    past_.times_back = 0;
    past_.least = history::none;
  }
}

/// Ends backtracking when the budget is used up. Waits and raises count like placements, because both are
/// undone and repeated as often, and one decision may cause thousands of raises.
void skyline_layout::use_up_one(std::uint64_t& left) {
  if (left == 0) past_.limit = history::none;
  else --left;
}

void skyline_layout::add_to_occupancy(section_range sections, double bytes) {
  occupancy_.add(sections, bytes);
  log_change(wasted{sections, bytes});
}

/// @return the occupancy of the fullest of the sections
double skyline_layout::count_waste(section_range sections, offset_type bytes) {
  add_to_occupancy(sections, static_cast<double>(bytes));
  return occupancy_.largest_in(sections).number;
}

/// Takes back the decision that led above the limit, so that another buffer is tried in its place. If enough
/// buffers were tried there, takes back the decision that shaped the plateau below it. Raises the limit after
/// too many times back.
void skyline_layout::enforce_limit(std::uint32_t number, double fullest) {
  while (fullest > past_.limit) {
    past_.least = std::min(past_.least, fullest);
    std::uint32_t last = number;
    while (is_kept(last) && decision_of(last).tried_before.size() == past_.max_tried)
      last = decision_of(last).plateau_shaped_by;
    if (is_kept(last) && past_.times_back < max_times_back_per_try * past_.max_tried) {
      ++past_.times_back;
      return undo(last);
    }
    raise_limit();
  }
}

/// Raises the limit to the least occupancy of the tries, and makes all buffers available again.
void skyline_layout::raise_limit() {
  past_.limit = std::max(past_.limit, std::exchange(past_.least, history::none));
  past_.times_back = 0;
  for (auto& each : past_.decisions) each.tried_before.clear();
}

/// Undoes all changes since the decision.
void skyline_layout::undo(std::uint32_t number) {
  decision taken = std::move(decision_of(number));
  for (; past_.changes_before + past_.changes.size() != taken.first_change; past_.changes.pop_back()) {
    std::visit([&](auto const& each) { undo(each); }, past_.changes.back());
    ++steps_;
  }
  left_ += last_decision() - number + std::size_t{1};
  fixed_passed_ = taken.fixed_passed;
  past_.tried = std::move(taken.tried_before);
  past_.tried.push_back(taken.rank);
  past_.decisions.erase(past_.decisions.begin() + (number - past_.decisions_before - 1),
                        past_.decisions.end());
}

void skyline_layout::undo(plateau_change const& changed) {
  plateaus_[changed.begin] = changed.before;
  // Higher plateaus are still in the heap.
  if (changed.before.level <= past_.highest_popped) lowest_.emplace(changed.before.level, changed.begin);
}

void skyline_layout::undo(leaf_change const& changed) {
  const bool waits = changed.resumed_at_before != no_offset;
  set_leaf(by_rank_[changed.rank], waits ? summary{} : leaf_of(changed.rank));
  resumes_at_[changed.rank] = changed.resumed_at_before;
  if (waits) waiting_.emplace(changed.resumed_at_before, changed.rank);
}

void skyline_layout::undo(wasted const& bytes) { occupancy_.add(bytes.sections, -bytes.bytes); }

}  // namespace tidemark::planner::detail
