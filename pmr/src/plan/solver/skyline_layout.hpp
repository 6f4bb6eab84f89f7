// SPDX-License-Identifier: Apache-2.0
// docs/planner.md, "Many buffers".
// A layout that is made from below, in O(n log n) for most problems and O(n sqrt n) for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "section_maximum.hpp"
#include "solver_context.hpp"
#include "space.hpp"

namespace tidemark::detail::planning {

/// Places next the buffer that can lie lowest on those that are placed, and of equals the first of an order.
///
/// The skyline is the top of what is placed, by section; plateaus are its longest ranges of one level. The
/// buffer that can lie lowest is one whose sections are all in the lowest plateau. If there is none, nothing
/// will ever lie there, and the plateau is raised to the lower one of its neighbors. So there are fewer
/// than 3 n plateaus in all, however often a buffer could lie on another one.
///
/// Where buffers are aligned further, a plateau is raised no further than to the next multiple of a larger power of
/// two, on which more of them can lie. One that fixed buffers are in the way of waits until the lowest plateau is as high
/// as it can lie, and no plateau is raised past that. So a plateau is raised once more for each bit of the largest
/// alignment, and for each offset at most that something waits for.
///
/// The layout can go by the sections that would first become too high, too: then next is the first of the order
/// over the fullest section of the lowest plateau, as long as one lies there, with what its alignment asks for below it.
///
/// The next buffer is found in O(sqrt n) at worst, mostly O(log n). One that is in conflict with k fixed ones waits k
/// times at most. For lifetimes. Memory is linear, and O(log n) for a fixed buffer.
class skyline_layout {
 public:
  /// Which of those that can lie lowest is next.
  enum class next_buffer : std::uint8_t {
    first,        ///< of the order
    over_fullest  ///< the first over the section with the most bytes that are wasted or not yet placed
  };

  /// @pre not a graph
  explicit skyline_layout(solver_context& context);

  /// Whether it should come first of many buffers: not where they wait too often for fixed ones to give a first plan
  /// soon, nor where much is padding, as nothing is put there later.
  [[nodiscard]] static bool pays(problem const& instance);

  /// Offers the layout, unless it gets as high as `max_height`. @return false if the search was cut off.
  bool place(order const& by, offset_type max_height, next_buffer next = next_buffer::first);

  /// Of the last layout, by number, if it was completed.
  [[nodiscard]] std::vector<offset_type> const& offsets() const noexcept { return offsets_; }

 private:
  /// Of some buffers that are not placed.
  struct summary {
    std::uint32_t first_rank = no_number;
    std::uint8_t least_align_bits = 255;
    section_range least{no_number, no_number};  // the first beginning and the first end
    section_range last{0, 0};
  };
  struct plateau {
    offset_type level = no_offset;  // no_offset: there is none that begins here
    std::uint32_t end = 0;
    std::uint32_t begin_before = 0;  // of the plateau to the left
  };
  using level_of = std::pair<offset_type, std::uint32_t>;  // of a plateau, or of a rank
  using lowest_first = std::priority_queue<level_of, std::vector<level_of>, std::greater<>>;

  static constexpr std::uint32_t no_number = ~std::uint32_t{0};

  void split(section_range places, bool by_end);
  void restart(order const& by);
  void summarize(std::size_t node);
  [[nodiscard]] summary leaf_of(std::uint32_t rank) const;
  void set_leaf(std::uint32_t buffer, summary const& now);
  void remove(std::uint32_t buffer) { set_leaf(buffer, {}); }
  void wake(offset_type level);
  void take_out_fixed_below(offset_type level);
  [[nodiscard]] offset_type lowest_offset(std::uint32_t number, offset_type level);
  [[nodiscard]] std::uint32_t first_within(section_range sections, section_range over, offset_type level);
  void search_within(std::size_t node, section_range sections, section_range over, std::uint8_t align_bits);
  [[nodiscard]] std::uint32_t next_on(section_range plateau, offset_type level, next_buffer next);
  void set_plateau(section_range sections, offset_type level, std::uint32_t begin_before);
  void put(std::uint32_t begin, section_range sections, offset_type top);
  offset_type raise(std::uint32_t begin);
  void join_right(std::uint32_t begin);

  solver_context* context_;
  problem const* instance_;
  // All buffers: the first half begin no later than the second, the first quarter end no later than the
  // second, and so on in turns (a k-d tree). So a node has buffers that are near each other.
  order leaves_;
  std::vector<std::uint32_t> at_;  // by number, where it is in `leaves_`
  std::size_t leaf_n_;
  std::vector<summary> tree_;  // of `leaves_`; node k has the children 2k and 2k + 1
  order by_rank_;
  std::vector<plateau> plateaus_;       // by the section that they begin with
  lowest_first lowest_;                 // by where plateaus begin
  lowest_first waiting_;                // by rank, what can lie no lower
  std::uint8_t align_bits_ = 0;         // of the largest alignment
  std::optional<section_space> fixed_;  // where some are fixed
  order fixed_by_end_;
  std::size_t fixed_passed_ = 0;  // how many of them ended below the lowest plateau
  std::vector<range_reader> readers_;
  section_maximum fullness_;  // what is in a section, and what was wasted there
  std::vector<offset_type> offsets_;
  std::uint32_t found_ = no_number;  // a rank
  std::uint64_t steps_ = 0;
};

}  // namespace tidemark::detail::planning
