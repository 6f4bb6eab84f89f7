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

/// Searches for a layout of a given height in which each birth takes the place of earlier deaths.
///
/// At each moment the memory is a row of live buffers and gaps. A dying buffer becomes a gap. Births replace
/// consecutive gaps, and leave a smaller gap and its empty remainders. A later exchange may take a part of a
/// gap; the rest then lies in its first remainder. An `order_tree` represents all possible orders of the row,
/// so the search decides only which gaps to take.
///
/// The search does not see all layouts: it finds a layout or gives up, and proves nothing. Memory is O(n),
/// and O(n) for each live buffer if the search goes back.
class time_search {
 public:
  /// @pre `is_for` the problem; for other problems the object must not be used
  explicit time_search(solver_context& context);

  /// Returns true for lifetimes without fixed buffers and without alignments above the unit.
  [[nodiscard]] static bool is_for(problem const& instance) {
    return !instance.graph && can_lie_anywhere(instance);
  }
  /// Returns true if the search may go back. A tree can be as deep as its number of leaves, and each level
  /// takes some hundred bytes of the thread's stack.
  [[nodiscard]] static bool can_backtrack(problem const& instance) {
    return is_for(instance) && instance.buffers.size() <= 2048;
  }

  /// Visits at most `max_nodes` moments. @return never `impossible` @pre `can_backtrack` for the problem
  outcome probe(offset_type height, std::uint64_t max_nodes);

  /// Visits each moment once, without going back. Gives up at the first moment whose births do not fit into
  /// the place of its deaths.
  /// @return true if the pass reached the end
  bool pass(offset_type height);

  /// The offsets of the layout that was found.
  [[nodiscard]] std::vector<offset_type> const& offsets() const noexcept { return offsets_; }

 private:
  using leaf_number = order_tree::leaf_number;
  using leaves = std::vector<leaf_number>;

  /// A buffer or a gap in the row.
  struct leaf {
    std::uint32_t buffer = no_rank;  // `no_rank` if the leaf never was a buffer
    bool is_gap = false;
    leaf_number remainder = no_rank;  // of a gap: takes the rest if the gap is cut
  };
  /// Deaths and births of a moment. Exchanged if a try goes backwards.
  struct moment {
    std::span<std::uint32_t const> deaths;
    std::span<std::uint32_t const> births;
  };
  /// The numbers of deaths and births before a moment.
  struct position {
    std::size_t ended = 0;
    std::size_t begun = 0;
  };
  /// Consecutive gaps, and the births in their place.
  struct exchange {
    leaves gaps;
    order births;
    offset_type part = 0;  // bytes taken from the last gap; 0: all
  };
  /// A way to place the births of a moment, usually a single exchange.
  using choice = std::vector<exchange>;
  /// The next kind of choices to list.
  enum class stage : std::uint8_t { one_gap_more, around, two_places, two_gaps_more, one_less, none };
  /// The state before a choice, for `restore`.
  struct state {
    order_tree::mark tree;
    std::size_t leaf_n = 0;
    std::size_t step_n = 0;
    std::size_t exchanged_n = 0;
    std::size_t cut_n = 0;
  };
  /// A moment on the path, and its choices.
  struct level {
    state before;
    leaves fresh;            // gaps of the deaths of this moment
    leaves old;              // the other gaps, the nearest to the fresh gaps first
    bool all_gaps = false;   // true if no buffer is live
    offset_type needed = 0;  // bytes of the births
    stage next_stage = stage::one_gap_more;
    std::vector<choice> choices;
    std::size_t next_choice = 0;
  };
  /// An applied exchange: the beginnings of its parts in `exchanged_`, which are the removed leaves, the
  /// added leaves, and the leaves beside them before and behind (`order_tree::place`).
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
  void exit_level();
  [[nodiscard]] state current() const;
  void restore(state const& at);
  void backtrack();
  [[nodiscard]] bool later_deaths_gather();
  [[nodiscard]] bool place_in_pass(level& at);
  [[nodiscard]] bool apply(choice const& made);
  [[nodiscard]] bool apply(exchange const& made);
  void remove_remainders_of(leaves const& gaps);
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
  [[nodiscard]] bool are_consecutive(leaves const& gaps);
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
  std::vector<std::uint32_t> birth_of_;  // moment number, by buffer
  std::vector<std::uint32_t> death_of_;
  std::uint64_t tries_ = 0;
  std::array<double, 4> reached_{}, tried_{};  // by kind of try: mean of the furthest levels; number of tries
  std::uint64_t nodes_end_ = 0;
  offset_type height_ = 0;
  // State of the current try:
  bool backwards_ = false;
  std::size_t kind_ = 0;              // 1: backwards, 2: with look-ahead, 3: both
  std::vector<bool> is_passed_over_;  // by moment, if the try looks ahead
  std::vector<std::uint32_t> deaths_of_leaves_;
  std::vector<std::uint32_t> dying_n_;  // by moment: number of leaves that die there
  std::size_t at_ = 0;                  // the current level
  std::size_t furthest_ = 0;            // the last level reached so far
  std::uint64_t failures_ = 0;
  std::uint64_t failures_there_ = 0;  // since the try reached `furthest_`
  order_tree tree_;
  std::vector<leaf> leaves_;
  std::vector<offset_type> sizes_;  // by leaf
  leaves leaf_of_;                  // by buffer
  std::vector<step> steps_;
  leaves exchanged_;
  leaves cuts_;  // the gaps that were cut, in order
  std::vector<level> levels_;
  std::vector<offset_type> offsets_;
};

}  // namespace tidemark::planner::detail
