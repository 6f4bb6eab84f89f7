// SPDX-License-Identifier: Apache-2.0
// Strategy: a list of all orders as the model. Random sets of leaves are replaced, as what dies is by what is
// born, and after each replacement the tree has just the orders that the list has.
#include "../../pmr/src/plan/solver/order_tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <vector>

namespace tidemark::detail::planning {
namespace {

using leaves = std::vector<order_tree::leaf_number>;
using orders = std::set<leaves>;

orders all_orders(leaves some) {
  orders all;
  std::ranges::sort(some);
  do all.insert(some);
  while (std::ranges::next_permutation(some).found);
  return all;
}

/// The orders in which `removed` lie beside each other, with each order of `added` in their place.
orders replaced(orders const& all, leaves const& removed, leaves const& added) {
  orders made;
  for (leaves const& each : all) {
    const auto is_removed = [&](auto leaf) { return std::ranges::find(removed, leaf) != removed.end(); };
    const auto first = std::ranges::find_if(each, is_removed);
    const auto end = std::find_if_not(first, each.end(), is_removed);
    if (static_cast<std::size_t>(end - first) != removed.size()) continue;
    for (leaves const& in_place : all_orders(added)) {
      leaves order(each.begin(), first);
      order.insert(order.end(), in_place.begin(), in_place.end());
      order.insert(order.end(), end, each.end());
      made.insert(order);
    }
  }
  return made;
}

/// Whether the tree has an order: then it is the one in which its positions rise.
bool has_order(order_tree& trees, order_tree::node_number tree, leaves const& order) {
  std::vector<double> positions(64);
  for (std::size_t k = 0; k < order.size(); ++k) positions[order[k]] = static_cast<double>(k);
  leaves found;
  trees.leaves_by(tree, positions, found);
  return found == order;
}

TEST(order_tree, has_the_orders_in_which_each_replaced_set_lay_together) {
  std::mt19937_64 random{7};
  std::size_t refused = 0, kept = 0;
  for (std::size_t problem = 0; problem < 20; ++problem) {
    order_tree trees;
    leaves live{0, 1, 2, 3, 4, 5};
    order_tree::leaf_number next = 6;
    order_tree::node_number tree = trees.add(live);
    orders model = all_orders(live);
    for (std::size_t step = 0; step < 6; ++step) {
      std::ranges::shuffle(live, random);
      const std::size_t removed_n = 1 + random() % 3;
      const leaves removed(live.begin(), live.begin() + static_cast<std::ptrdiff_t>(removed_n));
      leaves added;
      for (std::size_t n = removed_n; n != 0; --n) added.push_back(next++);
      const orders expected = replaced(model, removed, added);
      const auto before = trees.sizes();
      const std::optional<order_tree::node_number> made = trees.replace(tree, removed, added);
      ASSERT_EQ(made.has_value(), !expected.empty()) << problem << ' ' << step;
      if (!made) {
        ++refused;
        trees.cut(before);
        next -= static_cast<order_tree::leaf_number>(removed_n);
        continue;
      }
      ++kept;
      tree = *made;
      model = expected;
      std::ranges::copy(added, live.begin());
      for (leaves const& order : all_orders(live))
        ASSERT_EQ(has_order(trees, tree, order), model.contains(order)) << problem << ' ' << step;
    }
  }
  EXPECT_GT(refused, 3u);
  EXPECT_GT(kept, 10u);
}

TEST(order_tree, keeps_an_earlier_tree_as_it_was) {
  order_tree trees;
  const order_tree::node_number first = trees.add(leaves{0, 1, 2, 3});
  const auto before = trees.sizes();
  ASSERT_TRUE(trees.replace(first, leaves{0, 2}, leaves{4}));
  trees.cut(before);
  EXPECT_TRUE(has_order(trees, first, {0, 1, 2, 3}));
  EXPECT_TRUE(has_order(trees, first, {3, 0, 2, 1}));
}

TEST(order_tree, finds_what_lies_around_some_leaves) {
  order_tree trees;
  order_tree::node_number tree = trees.add(leaves{0, 1, 2, 3});
  tree = trees.replace(tree, leaves{0, 1}, leaves{4, 5, 6}).value();
  leaves around;
  trees.leaves_around(tree, leaves{4, 5}, around);
  std::ranges::sort(around);
  EXPECT_EQ(around, (leaves{4, 5, 6}));
  around.clear();
  trees.leaves_around(tree, leaves{4, 2}, around);
  EXPECT_EQ(around.size(), 5u);
}

}  // namespace
}  // namespace tidemark::detail::planning
