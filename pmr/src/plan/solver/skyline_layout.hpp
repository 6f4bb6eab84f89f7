// SPDX-License-Identifier: Apache-2.0
// docs/planner.md, "Many buffers".
// A layout that is made from below, in O(n log n) for most problems and O(n sqrt n) for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "solver_context.hpp"

namespace tidemark::detail::planning {

/// Places next the buffer that can lie lowest on those that are placed, and of equals the first of an order.
///
/// The skyline is the top of what is placed, by section; plateaus are its longest ranges of one level. The
/// buffer that can lie lowest is one whose sections are all in the lowest plateau. If there is none, nothing
/// will ever lie there, and the plateau is raised to the lower one of its neighbors. So there are fewer
/// than 3 n plateaus in all, however often a buffer could lie on another one.
///
/// That buffer is found in O(sqrt n) at worst, mostly O(log n).
/// For lifetimes, without fixed buffers and alignments above the unit (`is_for`). Memory is linear.
class skyline_layout {
 public:
  explicit skyline_layout(solver_context& context);

  [[nodiscard]] static bool is_for(problem const& instance);

  /// Offers the layout, unless it gets as high as `max_height`. @return false if the search was cut off.
  bool place(order const& by, offset_type max_height);

  /// Of the last layout, by number, if it was completed.
  [[nodiscard]] std::vector<offset_type> const& offsets() const noexcept { return offsets_; }

 private:
  /// Of some buffers that are not placed.
  struct summary {
    std::uint32_t first_rank = no_number;
    std::uint32_t least_end = no_number;
    std::uint32_t last_begin = 0;
  };
  struct plateau {
    offset_type level = no_offset;  // no_offset: there is none that begins here
    std::uint32_t end = 0;
    std::uint32_t begin_before = 0;  // of the plateau to the left
  };
  using lowest_first = std::pair<offset_type, std::uint32_t>;  // a level, and where a plateau begins

  static constexpr std::uint32_t no_number = ~std::uint32_t{0};

  void split(section_range places, bool by_end);
  void restart(order const& by);
  void summarize(std::size_t node);
  void remove(std::uint32_t buffer);
  [[nodiscard]] std::uint32_t first_within(section_range sections);
  void search_within(std::size_t node, section_range sections);
  void set_plateau(section_range sections, offset_type level, std::uint32_t begin_before);
  void put(std::uint32_t begin, section_range sections, offset_type top);
  void raise(std::uint32_t begin);
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
  std::vector<plateau> plateaus_;  // by the section that they begin with
  std::priority_queue<lowest_first, std::vector<lowest_first>, std::greater<>> lowest_;
  std::vector<offset_type> offsets_;
  std::uint32_t found_ = no_number;  // a rank
  std::uint64_t steps_ = 0;
};

}  // namespace tidemark::detail::planning
