// SPDX-License-Identifier: Apache-2.0
// Strategy: a list of all orders as the model. Random sets of leaves are replaced, as what dies is by what is
// born, and after each replacement the tree has just the orders that the list has.
#include "order_tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "tree_orders.hpp"

namespace tidemark::planner::detail {
namespace {

using test::has_order;

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

/// Whether those with a number lie beside each other in an order, but for those with lower numbers.
bool are_gathered(leaves order, std::vector<std::uint32_t> const& numbers, std::uint32_t number) {
  std::erase_if(order, [&](auto leaf) { return numbers[leaf] < number; });
  const auto is_gathered = [&](auto leaf) { return numbers[leaf] == number; };
  const auto first = std::ranges::find_if(order, is_gathered);
  return std::none_of(std::find_if_not(first, order.end(), is_gathered), order.end(), is_gathered);
}

/// A tree of random replacements, and its orders.
struct random_tree {
  order_tree trees;
  order_tree::node_number tree = 0;
  orders model;

  explicit random_tree(std::mt19937_64& random) {
    leaves live{0, 1, 2, 3, 4, 5, 6};
    tree = trees.add(live);
    model = all_orders(live);
    for (order_tree::leaf_number next = 7; next < 15;) {
      std::ranges::shuffle(live, random);
      const leaves removed(live.begin(), live.begin() + 2), added{next, next + 1};
      const std::optional<order_tree::node_number> made = trees.replace(tree, removed, added);
      if (!made) continue;
      tree = *made;
      model = replaced(model, removed, added);
      std::ranges::copy(added, live.begin());
      next += 2;
    }
  }
};

TEST(order_tree, can_gather_what_lies_together_in_some_order_without_what_is_lower) {
  std::mt19937_64 random{11};
  std::size_t apart = 0, gathered = 0;
  for (std::size_t problem = 0; problem < 100; ++problem) {
    const random_tree made{random};
    std::vector<std::uint32_t> numbers(15);
    for (std::uint32_t& each : numbers) each = static_cast<std::uint32_t>(random() % 4);
    for (std::uint32_t number : {1u, 2u}) {
      const bool can = std::ranges::any_of(
          made.model, [&](leaves const& order) { return are_gathered(order, numbers, number); });
      ASSERT_EQ(made.trees.can_gather(made.tree, numbers, number), can) << problem << ' ' << number;
      ++(can ? gathered : apart);
    }
  }
  EXPECT_GT(apart, 10u);
  EXPECT_GT(gathered, 10u);
}

TEST(order_tree, without_some_leaves_has_the_orders_of_the_others) {
  std::mt19937_64 random{13};
  for (std::size_t problem = 0; problem < 20; ++problem) {
    random_tree made{random};
    leaves all, removed;
    made.trees.leaves_of(made.tree, all);
    std::ranges::shuffle(all, random);
    removed.assign(all.begin(), all.begin() + 2);
    const leaves kept(all.begin() + 2, all.end());
    orders left;
    for (leaves order : made.model) {
      std::erase_if(order, [&](auto leaf) { return std::ranges::find(removed, leaf) != removed.end(); });
      left.insert(order);
    }
    const order_tree::node_number tree = made.trees.without(made.tree, removed);
    for (leaves const& order : all_orders(kept))
      ASSERT_EQ(has_order(made.trees, tree, order), left.contains(order)) << problem;
  }
}

TEST(order_tree, puts_leaves_without_a_position_where_they_can_lie) {
  std::mt19937_64 random{17};
  for (std::size_t problem = 0; problem < 20; ++problem) {
    random_tree made{random};
    for (leaves const& order : made.model) {
      std::vector<double> positions(15, order_tree::no_position);
      for (std::size_t k = 2; k < order.size(); ++k) positions[order[k]] = static_cast<double>(k);
      leaves found;
      made.trees.leaves_by(made.tree, positions, found);
      ASSERT_TRUE(made.model.contains(found)) << problem;
      std::erase_if(found, [&](auto leaf) { return positions[leaf] == order_tree::no_position; });
      ASSERT_EQ(found, leaves(order.begin() + 2, order.end())) << problem;
    }
  }
}

}  // namespace
}  // namespace tidemark::planner::detail
