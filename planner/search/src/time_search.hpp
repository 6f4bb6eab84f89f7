// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Along time".
// A search for a layout of a given height that goes from moment to moment.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "order_tree.hpp"
#include "search_buffers.hpp"
#include "solver_context.hpp"

namespace tidemark::planner::detail {

/// Looks for layouts of a given height in which what is born lies where something died.
///
/// At each moment the memory is a row of live buffers and gaps. What dies becomes a gap. What is born takes the
/// place of some gaps that lie beside each other, and what is left over of them is a gap again. In which order the
/// row lies is left open: an `order_tree` stands for all orders that are still possible. Only which gaps are taken
/// is decided. Where a step is full they are mostly those that died at that moment, and there is hardly anything to
/// search.
///
/// What is left over can lie in several places among what is born. So a few empty gaps are born with it, its
/// spares: where later only a part of it is taken, the rest lies in the first spare, whose spares are the others.
/// Where all of it is taken, its empty spares leave the row.
///
/// It does not see all layouts, and so never proves that there is none: it finds one, or gives up. Where nothing
/// fits it goes back, further each time. After some failures the next try begins with other choices, from
/// the first moment or from the last in turn. Of many buffers it never goes back (`pass`).
///
/// For lifetimes without fixed buffers and alignments above the unit (`is_for`). Memory is O(n), and where it goes back
/// O(n) for each buffer that is live.
class time_search {
 public:
  /// @pre `is_for` the problem, or it is not used
  explicit time_search(solver_context& context);

  [[nodiscard]] static bool is_for(problem const& instance) {
    return !instance.graph && can_lie_anywhere(instance);
  }
  /// Whether it may go back: a tree can be as deep as there are leaves, some hundred bytes of the thread's stack a node.
  [[nodiscard]] static bool goes_back(problem const& instance) {
    return is_for(instance) && instance.buffers.size() <= 2048;
  }

  /// Visits at most `max_nodes` moments. @return never `impossible` @pre `goes_back` for the problem
  outcome probe(offset_type height, std::uint64_t max_nodes);

  /// Goes over the moments once, and gives up where what is born fits into what just died in no way that is tried.
  /// @return whether it came to the end
  bool pass(offset_type height);

  /// Of the layout that was found.
  [[nodiscard]] std::vector<offset_type> const& offsets() const noexcept { return offsets_; }

 private:
  using leaf_number = order_tree::leaf_number;
  using leaves = std::vector<leaf_number>;

  /// A buffer or a gap in the row.
  struct leaf {
    std::uint32_t buffer = no_rank;  // no_rank: it never was one
    bool is_gap = false;
    leaf_number spare = no_rank;  // of a gap: it can take some of its bytes to another place
  };
  /// What dies and what is born at a moment; the other way round where a try goes backwards.
  struct moment {
    std::span<std::uint32_t const> deaths;
    std::span<std::uint32_t const> births;
  };
  /// How many ended and began before a moment.
  struct position {
    std::size_t ended = 0;
    std::size_t begun = 0;
  };
  /// Gaps that lie beside each other, and what is born in their place.
  struct exchange {
    leaves gaps;
    order births;
    offset_type part = 0;  // bytes that are taken of the last of the gaps; 0: all
  };
  /// A way to place what is born at a moment: mostly one exchange.
  using choice = std::vector<exchange>;
  /// Which choices are found next.
  enum class stage : std::uint8_t { one_gap_more, around, two_places, two_gaps_more, one_less, none };
  /// What there was before a choice.
  struct state {
    order_tree::mark tree;
    std::size_t leaf_n = 0;
    std::size_t step_n = 0;
    std::size_t exchanged_n = 0;
    std::size_t cut_n = 0;
  };
  /// A moment on the way, and its choices.
  struct level {
    state before;
    leaves fresh;            // gaps of what died at the moment
    leaves old;              // the other gaps, the nearest to the fresh ones first
    bool all_gaps = false;   // whether nothing is live
    offset_type needed = 0;  // by what is born
    stage next_stage = stage::one_gap_more;
    std::vector<choice> choices;
    std::size_t next_choice = 0;
  };
  /// An exchange that was made: where in `exchanged_` is what was removed, what was added, and what lay beside it before and
  /// behind (`order_tree::place`).
  struct step {
    std::size_t removed = 0;
    std::size_t added = 0;
    std::size_t before = 0;
    std::size_t behind = 0;
    std::size_t end = 0;
  };

  void find_moments();
  [[nodiscard]] moment now() const;
  [[nodiscard]] std::uint32_t death_of(std::uint32_t i) const;
  [[nodiscard]] bool try_again(std::uint64_t max_failures);
  void begin(bool backwards);
  void enter();
  void leave();
  [[nodiscard]] state current() const;
  void restore(state const& at);
  void go_back();
  [[nodiscard]] bool later_deaths_gather();
  [[nodiscard]] bool place_in_pass(level& at);
  [[nodiscard]] bool apply(choice const& made);
  [[nodiscard]] bool apply(exchange const& made);
  void remove_spares_of(leaves const& gaps);
  [[nodiscard]] bool can_cut(leaf_number gap) const;
  void cut(leaf_number gap, offset_type part);
  void find_fresh(level& at);
  void find_old(level& at);
  void sort_by_distance(level& at);
  [[nodiscard]] bool find_choices(level& at);
  void find_choices_of(level& at, stage which);
  void shuffle_choices(level& at);
  void add_choice(level& at, leaves gaps, offset_type part = 0);
  void add_with(level& at, leaves some, leaves const& old, offset_type part = 0);
  void add_with_one(level& at, leaves const& some);
  void add_with_two(level& at);
  void add_with_exactly_three(level& at);
  void add_around(level& at);
  void add_two_places(level& at);
  [[nodiscard]] bool lie_together(leaves const& gaps);
  [[nodiscard]] std::vector<exchange> exchanges_of(level const& at, leaves const& gaps,
                                                   order const& births) const;
  [[nodiscard]] offset_type size_of(std::span<leaf_number const> gaps) const;
  [[nodiscard]] offset_type bytes_of(std::span<std::uint32_t const> births) const;
  void find_offsets();

  solver_context* context_;
  problem const* instance_;
  order by_begin_;  // all buffers
  order by_end_;
  std::vector<position> moments_;  // and the end
  std::mt19937_64 random_;
  std::vector<std::uint32_t> birth_of_;  // by buffer, the number of the moment
  std::vector<std::uint32_t> death_of_;
  std::uint64_t tries_ = 0;
  std::array<double, 4> reached_{}, tried_{};  // by kind of try: mean of the levels that they came to; number
  std::uint64_t nodes_end_ = 0;
  offset_type height_ = 0;
  // Of the try:
  bool backwards_ = false;
  std::size_t kind_ = 0;              // 1: it goes backwards, 2: it looks ahead, 3: both
  std::vector<bool> is_passed_over_;  // by moment, where it looks ahead
  std::vector<std::uint32_t> deaths_of_leaves_;
  std::vector<std::uint32_t> dying_n_;  // by moment, how many leaves die there
  std::size_t at_ = 0;                  // the current level
  std::size_t furthest_ = 0;            // the last level so far
  std::uint64_t failures_ = 0;
  std::uint64_t failures_there_ = 0;  // since it came to `furthest_`
  order_tree tree_;
  std::vector<leaf> leaves_;
  std::vector<offset_type> sizes_;  // by leaf
  leaves leaf_of_;                  // by buffer
  std::vector<step> steps_;
  leaves exchanged_;
  leaves cuts_;  // the gaps that were cut, in turn
  std::vector<level> levels_;
  std::vector<offset_type> offsets_;
};

}  // namespace tidemark::planner::detail
