// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Plateaus".
// A layout that is made from below: next comes what can lie lowest, in O(n log n) for most problems. By the
// fullest sections it takes up to some 50 times that.
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

/// Places next the buffer that can lie lowest on those that are placed, and of equals the first of an order.
///
/// The skyline is the top of what is placed, by section; plateaus are its longest ranges of one level. The
/// buffer that can lie lowest is one whose sections are all in the lowest plateau. If there is none, nothing
/// will ever lie there, and the plateau is raised to the lower one of its neighbors. So there are fewer
/// than 3 n plateaus in a layout that does not go back, however often a buffer could lie on another one.
///
/// Where buffers are aligned further, a plateau is raised no further than to the next multiple of the least
/// alignment of those that could lie on it. One that fixed buffers are in the way of waits until the lowest
/// plateau is as high as it can lie, and no plateau is raised past that. So a plateau is raised once more for
/// each alignment, and for each offset at most that something waits for. For fixed ones that live in all
/// sections hardly anything waits: what is larger than the room below the next of them is passed over, and no
/// plateau that it lies on is raised past its end.
///
/// The layout can go by the sections that would first become too high, too: then next is the first of the
/// order over the fullest section of the lowest plateau, as long as one lies there, with what its alignment
/// asks for below it. The fullest has the most bytes that are in it or were wasted there: so high will the
/// layout be. Where a plateau is raised and a section gets fuller than a limit, the decision that shaped the
/// plateau is taken back, and the next of the order is tried there (backjumping: J. Gaschnig, 1979). Where
/// all that could lie on a plateau was tried, it is raised as if there were none. The limit begins at the
/// target. Where no try holds it, it is raised to the least that one came to.
///
/// The next buffer is found in O(sqrt n) at worst, mostly O(log n); where some are fixed in all sections in
/// O(n^(2/3)). One that is in conflict with k fixed ones that do not live in all sections waits k times at
/// most where it does not go back. For lifetimes. Memory is linear, and O(log n) for a fixed buffer.
class skyline_layout {
 public:
  /// @pre not a graph
  explicit skyline_layout(solver_context& context);

  /// Whether it should come first of many buffers: not where they wait too often for fixed ones to give a first plan
  /// soon, nor where much is padding, as nothing is put there later.
  [[nodiscard]] static bool pays(problem const& instance);

  /// Offers the layout. @return false if the search was cut off.
  bool place(order const& by);

  /// The same by the fullest sections. Where a decision is taken back, `max_tried` others are
  /// tried in its place. It goes back until it has placed buffers or let them wait 2 n `max_tried` times,
  /// or raised plateaus twice as often.
  bool place_over_fullest(order const& by, std::size_t max_tried);

  /// Of the last layout, by number, if it was completed.
  [[nodiscard]] std::vector<offset_type> const& offsets() const noexcept { return offsets_; }

 private:
  /// Of some buffers that are not placed.
  struct summary {
    std::uint32_t first_rank = no_number;
    std::uint8_t least_align_bits = 255;
    section_range least{no_number, no_number};  // the first beginning and the first end
    section_range last{0, 0};
    offset_type least_size = no_offset;
  };
  /// What the tree is split by, in turns; by sizes only where some are fixed throughout, as they leave rooms.
  enum class axis : std::uint8_t { begin, end, size };
  /// Which of them could be next.
  struct query {
    section_range within;     // has all its sections there
    section_range over;       // and all of these
    std::uint8_t align_bits;  // at most
    offset_type room;         // at least its size
  };
  struct plateau {
    offset_type level = no_offset;  // no_offset: there is none that begins here
    std::uint32_t end = 0;
    std::uint32_t begin_before = 0;  // of the plateau to the left
    std::uint32_t shaped_by = 0;     // the number of the last decision that did, if any
  };
  /// What can be taken back.
  struct plateau_change {
    std::uint32_t begin;
    plateau before;
  };
  struct leaf_change {
    std::uint32_t rank;
    offset_type wakes_at_before;  // no_offset: it was in the tree
  };
  struct wasted {
    section_range sections;
    double bytes;
  };
  using change = std::variant<plateau_change, leaf_change, wasted>;
  /// To place a buffer. They are numbered from 1.
  struct decision {
    std::uint64_t first_change;
    std::uint32_t rank;
    std::uint32_t plateau_shaped_by;
    std::size_t fixed_passed;
    order tried_before;  // ranks
  };
  /// What a layout over the fullest sections goes back by.
  struct history {
    static constexpr double none = std::numeric_limits<double>::infinity();
    double limit = none;                 // of the fullness; where there is none, nothing is taken back
    std::size_t max_tried = 0;           // in the place of one
    std::uint64_t steps_left = 0;        // buffers to place or to let wait, until whatever comes is taken
    std::uint64_t raises_left = 0;       // likewise
    std::deque<change> changes;          // since the first of `decisions`
    std::uint64_t changes_before = 0;    // that are forgotten
    std::deque<decision> decisions;      // the last ones
    std::uint32_t decisions_before = 0;  // that are forgotten
    std::uint32_t farthest = 0;          // the decision from which on `times_back` was counted anew
    std::size_t times_back = 0;
    double least = none;             // fullness that one of these times came to
    order tried;                     // ranks that led to too much waste where the next one is placed
    offset_type highest_popped = 0;  // level; a plateau above it is in `lowest_` still
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
  void remove(std::uint32_t rank, offset_type wakes_at = no_offset);
  void wake(offset_type level);
  void take_out_fixed_below(offset_type level);
  [[nodiscard]] offset_type lowest_offset(std::uint32_t number, offset_type level);
  [[nodiscard]] range next_fixed_throughout(offset_type level) const;
  [[nodiscard]] offset_type room_at(offset_type level) const;
  [[nodiscard]] std::uint32_t first_of(query const& asked);
  void search(std::size_t node, query const& asked);
  [[nodiscard]] std::uint8_t least_align_bits(section_range sections, offset_type room);
  [[nodiscard]] std::uint32_t next_on(section_range sections, offset_type level);
  plateau& change_plateau(std::uint32_t begin);
  void set_plateau(section_range sections, offset_type level, std::uint32_t begin_before);
  void put(std::uint32_t begin, section_range sections, offset_type top);
  [[nodiscard]] offset_type level_above(std::uint32_t begin);
  void raise(std::uint32_t begin, offset_type level);
  void join_right(std::uint32_t begin);
  void pop_lowest();

  // Where it goes by the fullest section: skyline_backjumping.cpp.
  void note(change const& noted) {
    if (past_.limit != history::none) past_.changes.push_back(noted);
  }
  void decide(std::uint32_t rank, std::uint32_t plateau_begin);
  void add_to_fullness(section_range sections, double bytes);
  double count_waste(section_range sections, offset_type bytes);
  void hold_limit(std::uint32_t number, double fullest);
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
  void take_back(std::uint32_t number);
  void take_back(plateau_change const& changed);
  void take_back(leaf_change const& changed);
  void take_back(wasted const& bytes);

  solver_context* context_;
  problem const* instance_;
  // All buffers: the first half begin no later than the second, the first quarter end no later than the
  // second, and so on in turns, by size too where some are fixed throughout (a k-d tree). So a node has
  // buffers that are near each other.
  order leaves_;
  std::vector<std::uint32_t> at_;  // by number, where it is in `leaves_`
  std::size_t leaf_n_;
  std::vector<summary> tree_;  // of `leaves_`; node k has the children 2k and 2k + 1
  order by_rank_;
  std::vector<plateau> plateaus_;       // by the section that they begin with
  lowest_first lowest_;                 // by where plateaus begin
  lowest_first waiting_;                // by rank, what can lie no lower; may have some that do not wait
  std::vector<offset_type> wakes_at_;   // by rank; no_offset: does not wait
  bool any_aligned_ = false;            // further than to 1
  std::optional<section_space> fixed_;  // where some are fixed
  range_set fixed_throughout_;          // bytes of those that live in all sections
  order fixed_by_offset_;
  std::size_t fixed_passed_ = 0;  // how many of them began below a raised plateau
  std::vector<range_reader> readers_;
  bool over_fullest_ = false;
  section_maximum fullness_;  // what is in a section, and what was wasted there
  history past_;
  std::size_t left_ = 0;  // to be placed
  std::vector<offset_type> offsets_;
  std::uint32_t found_ = no_number;  // a rank
  std::uint64_t steps_ = 0;
};

}  // namespace tidemark::planner::detail
