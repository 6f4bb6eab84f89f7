// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Plateaus".
// Builds a layout upwards: the next buffer is the lowest possible one. Takes O(n log n) for most problems,
// and up to about 50 times as long over the fullest sections.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <utility>
#include <variant>
#include <vector>

#include "section_maximum.hpp"
#include "solver_context.hpp"
#include "space.hpp"

namespace tidemark::planner::detail {

/// Places the buffer that can lie lowest, and among equals the first of an order. For lifetimes.
///
/// A plateau is a maximal range of sections of one skyline level. If no buffer fits on the lowest plateau, it
/// is raised to its lower neighbor. A layout without backtracking has fewer than 3 n plateaus. Over the
/// fullest sections, a section above a limit makes the layout take decisions back (backjumping).
///
/// Finding the next buffer takes O(sqrt n) at worst, usually O(log n), and O(n^(2/3)) if some buffers are
/// fixed in all sections. A buffer in conflict with k other fixed buffers waits at most k times without
/// backtracking. Memory is linear, plus O(log n) for each fixed buffer.
class skyline_layout {
 public:
  /// @pre not a graph
  explicit skyline_layout(solver_context& context);

  /// Returns true if promotion suits the problem. It needs few conflicts with fixed buffers, because a buffer
  /// may wait for each, and little padding, because padding is never filled.
  [[nodiscard]] static bool pays(problem const& instance);

  /// Offers the layout of the order `by`. @return false if the search was cut off
  bool place(order const& by);

  /// Offers the layout over the fullest sections. Tries up to `max_tried` buffers in place of one that was
  /// undone. Backtracking ends after 2 n `max_tried` placements and waits, or twice as many raises.
  /// @return as for `place`
  bool place_over_fullest(order const& by, std::size_t max_tried);

  /// Offsets of the last layout by number, if the layout was completed.
  [[nodiscard]] std::vector<offset_type> const& offsets() const noexcept { return offsets_; }

 private:
  /// Summary of some unplaced buffers.
  struct summary {
    std::uint32_t first_rank = no_number;
    std::uint8_t least_align_bits = 255;
    section_range least{no_number, no_number};  // least begin and least end
    section_range last{0, 0};
    offset_type least_size = no_offset;
  };
  /// The keys that split the tree, in turns. Sizes split only if some buffers are fixed throughout, because
  /// these leave rooms.
  enum class axis : std::uint8_t { begin, end, size };
  /// Conditions on the next buffer.
  struct query {
    section_range within;     // contains its lifespan
    section_range over;       // is contained in its lifespan
    std::uint8_t align_bits;  // maximum alignment
    offset_type room;         // maximum size
  };
  struct plateau {
    offset_type level = no_offset;  // no_offset: no plateau begins here
    std::uint32_t end = 0;
    std::uint32_t begin_before = 0;  // begin of the plateau to the left
    std::uint32_t shaped_by = 0;     // number of the last decision that shaped it, or 0
  };
  /// Changes that can be undone.
  struct plateau_change {
    std::uint32_t begin;
    plateau before;
  };
  struct leaf_change {
    std::uint32_t rank;
    offset_type resumed_at_before;  // no_offset: the leaf was in the tree
  };
  struct wasted {
    section_range sections;
    double bytes;
  };
  using change = std::variant<plateau_change, leaf_change, wasted>;
  /// The placement of a buffer. Decisions are numbered from 1.
  struct decision {
    std::uint64_t first_change;
    std::uint32_t rank;
    std::uint32_t plateau_shaped_by;
    std::size_t fixed_passed;
    order tried_before;  // ranks
  };
  /// The state for backtracking over the fullest sections.
  struct history {
    static constexpr double none = std::numeric_limits<double>::infinity();
    double limit = none;                 // of the occupancy; `none`: nothing is undone
    std::size_t max_tried = 0;           // in the place of one buffer
    std::uint64_t steps_left = 0;        // placements and waits until backtracking ends
    std::uint64_t raises_left = 0;       // raises until backtracking ends
    std::deque<change> changes;          // since the first of `decisions`
    std::uint64_t changes_before = 0;    // changes already dropped
    std::deque<decision> decisions;      // the last decisions
    std::uint32_t decisions_before = 0;  // decisions already dropped
    std::uint32_t farthest = 0;          // decision at which `times_back` was last reset
    std::size_t times_back = 0;
    double least = none;             // least occupancy that a try reached
    order tried;                     // ranks that wasted too much at the next place
    offset_type highest_popped = 0;  // level; higher plateaus are still in `lowest_`
  };
  using level_of = std::pair<offset_type, std::uint32_t>;  // of a plateau, or of a rank
  using lowest_first = std::priority_queue<level_of, std::vector<level_of>, std::greater<>>;

  static constexpr std::uint32_t no_number = ~std::uint32_t{0};

  void split(section_range places, axis by);
  bool place_all(order const& by);
  void restart(order const& by);
  void summarize(std::size_t node);
  [[nodiscard]] summary leaf_of(std::uint32_t rank) const;
  void set_leaf(std::uint32_t buffer, summary const& now);
  void remove(std::uint32_t rank, offset_type resumes_at = no_offset);
  void resume_waiting(offset_type level);
  void subtract_fixed_below(offset_type level);
  [[nodiscard]] offset_type lowest_offset(std::uint32_t number, offset_type level);
  [[nodiscard]] range next_fixed_throughout(offset_type level) const;
  [[nodiscard]] offset_type room_at(offset_type level) const;
  [[nodiscard]] std::uint32_t first_of(query const& asked);
  void search(std::size_t node, query const& asked);
  [[nodiscard]] std::uint8_t least_align_bits(section_range sections, offset_type room);
  [[nodiscard]] std::uint32_t next_on(section_range sections, offset_type level);
  plateau& change_plateau(std::uint32_t begin);
  void set_plateau(section_range sections, offset_type level, std::uint32_t begin_before);
  void set_top(std::uint32_t begin, section_range sections, offset_type top);
  [[nodiscard]] offset_type level_above(std::uint32_t begin);
  void raise(std::uint32_t begin, offset_type level);
  void join_right(std::uint32_t begin);
  void pop_lowest();

  // Layouts over the fullest section: skyline_backjumping.cpp.
  void log_change(change const& logged) {
    if (past_.limit != history::none) past_.changes.push_back(logged);
  }
  void decide(std::uint32_t rank, std::uint32_t plateau_begin);
  void add_to_occupancy(section_range sections, double bytes);
  double count_waste(section_range sections, offset_type bytes);
  void enforce_limit(std::uint32_t number, double fullest);
  void raise_limit();
  void use_up_one(std::uint64_t& left);
  [[nodiscard]] bool was_tried(std::uint32_t rank) const {
    return std::ranges::find(past_.tried, rank) != past_.tried.end();
  }
  [[nodiscard]] bool is_kept(std::uint32_t number) const { return number > past_.decisions_before; }
  [[nodiscard]] decision& decision_of(std::uint32_t number) {
    return past_.decisions[number - past_.decisions_before - 1];
  }
  [[nodiscard]] std::uint32_t last_decision() const {
    return past_.decisions_before + static_cast<std::uint32_t>(past_.decisions.size());
  }
  void undo(std::uint32_t number);
  void undo(plateau_change const& changed);
  void undo(leaf_change const& changed);
  void undo(wasted const& bytes);

  solver_context* context_;
  problem const* instance_;
  // All buffers as a k-d tree. Levels split by begin and by end in turns, and also by size if some buffers
  // are fixed throughout. The buffers of a node are therefore near each other.
  order leaves_;
  std::vector<std::uint32_t> at_;  // by number, position in `leaves_`
  std::size_t leaf_n_;
  std::vector<summary> tree_;  // of `leaves_`; node k has the children 2k and 2k + 1
  order by_rank_;
  std::vector<plateau> plateaus_;        // by first section
  lowest_first lowest_;                  // by first section of the plateau
  lowest_first waiting_;                 // by rank, waiting buffers; may have stale entries
  std::vector<offset_type> resumes_at_;  // by rank; no_offset: does not wait
  bool any_aligned_ = false;             // to more than 1
  std::optional<section_space> fixed_;   // if some buffers are fixed
  range_set fixed_throughout_;           // bytes of buffers that live in all sections
  order fixed_by_offset_;
  std::size_t fixed_passed_ = 0;  // fixed buffers that began below a raised plateau
  std::vector<range_reader> readers_;
  bool over_fullest_ = false;
  section_maximum occupancy_;  // load plus waste, by section
  history past_;
  std::size_t left_ = 0;  // unplaced buffers
  std::vector<offset_type> offsets_;
  std::uint32_t found_ = no_number;  // a rank
  std::uint64_t steps_ = 0;
};

}  // namespace tidemark::planner::detail
