// SPDX-License-Identifier: Apache-2.0
/// @file Lists all orders that the planner's tree represents, from its nodes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <set>
#include <vector>

#include "order_tree.hpp"

namespace tidemark::planner::detail {

class order_tree_orders {
 public:
  using leaves = std::vector<order_tree::leaf_number>;

  [[nodiscard]] static std::set<leaves> of(order_tree const& tree) { return below(tree, tree.top_); }

  /// Returns true if the invariants hold.
  [[nodiscard]] static bool is_consistent(order_tree const& tree) {
    return tree.nodes_[tree.top_].parent == order_tree::no_node && is_consistent(tree, tree.top_);
  }

 private:
  using node_number = order_tree::node_number;

  static bool is_consistent(order_tree const& tree, node_number at) {
    order_tree::node const& here = tree.nodes_[at];
    if (here.is == order_tree::kind::leaf) return here.children.empty() && tree.node_of_[here.leaf] == at;
    return here.children.size() >= 2 && std::ranges::all_of(here.children, [&](node_number child) {
             return tree.nodes_[child].parent == at && is_consistent(tree, child);
           });
  }

  static std::set<leaves> below(order_tree const& tree, node_number at) {
    order_tree::node const& here = tree.nodes_[at];
    if (here.is == order_tree::kind::leaf) return {{here.leaf}};
    std::set<leaves> made;
    std::vector<node_number> children = here.children;
    if (here.is == order_tree::kind::row) {
      add_row(tree, children, made);
      std::ranges::reverse(children);
      add_row(tree, children, made);
      return made;
    }
    std::ranges::sort(children);
    do add_row(tree, children, made);
    while (std::ranges::next_permutation(children).found);
    return made;
  }

  static void add_row(order_tree const& tree, std::vector<node_number> const& children,
                      std::set<leaves>& into) {
    std::set<leaves> rows{{}};
    for (node_number child : children) {
      std::set<leaves> longer;
      for (leaves const& end : below(tree, child)) {
        for (leaves row : rows) {
          row.insert(row.end(), end.begin(), end.end());
          longer.insert(row);
        }
      }
      rows = longer;
    }
    into.insert(rows.begin(), rows.end());
  }
};

}  // namespace tidemark::planner::detail
