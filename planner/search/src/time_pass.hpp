// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Full steps".
// One pass along time over a step of many buffers that is full at every moment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "order_tree_in_place.hpp"
#include "solver_context.hpp"

namespace tidemark::planner::detail {

/// Looks for a layout of a given height as `time_search` does at first: what is born takes the place of what died just
/// before. It goes from section to section, never back, and gives up at the first one where that cannot be.
///
/// For lifetimes without fixed buffers and alignments above the unit (`is_for`). Memory is linear, and a section takes
/// about as many steps as buffers die and are born there.
class time_pass {
 public:
  explicit time_pass(solver_context& context);

  [[nodiscard]] static bool is_for(problem const& instance);

  /// Offers the layout if it came to the end. @return whether it did
  bool place(offset_type height);

 private:
  using leaf_number = order_tree_in_place::leaf_number;
  using leaves = std::vector<leaf_number>;

  /// What lay in a place, and what lies there after it: from where on each is in `exchanged_`.
  struct exchange_made {
    std::uint32_t died = 0;
    std::uint32_t born = 0;
    std::uint32_t end = 0;
    leaf_number beside = order_tree_in_place::no_leaf;  // of `order_tree_in_place::place`
    bool is_before = false;
  };

  /// The next section, and how many died and were born before it.
  struct position {
    std::uint32_t section = 0;
    std::size_t ended = 0;
    std::size_t begun = 0;
  };

  void go_on(position& at, leaves& died, leaves& born) const;
  [[nodiscard]] bool count_steps(std::size_t placed);
  // Full steps took 3 to 4 for each buffer, of 5,000 as of a million.
  [[nodiscard]] std::uint64_t max_steps() const { return 256 * instance_->buffers.size(); }
  [[nodiscard]] offset_type size_of(leaves const& some) const;
  [[nodiscard]] bool exchange(leaves const& died, leaves const& born);
  [[nodiscard]] bool exchange_in_parts(leaves const& died, leaves const& born);
  void offer_layout();

  solver_context* context_;
  problem const* instance_;
  order by_begin_;  // all buffers
  order by_end_;
  position next_;
  order_tree_in_place tree_;
  std::vector<offset_type> sizes_;  // by leaf: the buffers, and then gaps that never were one
  std::vector<exchange_made> exchanges_;
  leaves exchanged_;
  std::uint64_t steps_ = 0;
  std::uint64_t counted_steps_ = 0;
};

}  // namespace tidemark::planner::detail
