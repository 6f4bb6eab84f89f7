// SPDX-License-Identifier: Apache-2.0
/// @file What tests ask of the planner's trees of orders.
#pragma once

#include <cstddef>
#include <vector>

#include "order_tree.hpp"

namespace tidemark::test {

/// Whether a tree has an order of leaves below 512: then it is the one in which its positions rise.
[[nodiscard]] inline bool has_order(planner::detail::order_tree& trees,
                                    planner::detail::order_tree::node_number tree,
                                    std::vector<planner::detail::order_tree::leaf_number> const& order) {
  std::vector<double> positions(512);
  for (std::size_t k = 0; k < order.size(); ++k) positions[order[k]] = static_cast<double>(k);
  std::vector<planner::detail::order_tree::leaf_number> found;
  trees.leaves_by(tree, positions, found);
  return found == order;
}

}  // namespace tidemark::test
