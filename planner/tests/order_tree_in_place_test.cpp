// SPDX-License-Identifier: Apache-2.0
// Strategy: `order_tree`, which is tested against lists of all orders, as the model. Random sets of leaves are
// replaced in both; they refuse the same sets, and what the one has for an order the other has too. Then the
// replacements are undone from the last to the first by what each said of its place.
#include "order_tree_in_place.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "order_tree.hpp"
#include "tree_orders.hpp"

namespace tidemark::planner::detail {
namespace {

using test::has_order;

using leaves = std::vector<order_tree_in_place::leaf_number>;

leaves numbers(order_tree_in_place::leaf_number first, std::size_t n) {
  leaves made;
  for (; made.size() < n; ++first) made.push_back(first);
  return made;
}

leaves sorted(leaves some) {
  std::ranges::sort(some);
  return some;
}

struct replacement {
  order_tree::node_number before = 0;  // the tree
  order_tree_in_place::place place;
  leaves added;
};

/// The row as it was before a replacement.
leaves undone(leaves const& row, replacement const& last) {
  const auto is_added = [&](auto leaf) { return std::ranges::find(last.added, leaf) != last.added.end(); };
  const auto first = std::ranges::find_if(row, is_added), end = std::find_if_not(first, row.end(), is_added);
  EXPECT_EQ(static_cast<std::size_t>(end - first), last.added.size());
  leaves removed = last.place.removed;
  if (last.place.beside != order_tree_in_place::no_leaf) {
    const auto beside = std::ranges::find(row, last.place.beside);
    EXPECT_NE(beside, row.end());
    if ((beside < first) != last.place.is_before) std::ranges::reverse(removed);
  }
  leaves made(row.begin(), first);
  made.insert(made.end(), removed.begin(), removed.end());
  made.insert(made.end(), end, row.end());
  return made;
}

/// Some leaves that lie beside each other in the row, or any ones.
leaves some_of(leaves row, std::mt19937_64& random) {
  if (random() % 3 == 0) std::ranges::shuffle(row, random);
  const std::size_t n = 1 + random() % std::min<std::size_t>(row.size(), 6);
  const auto first = row.begin() + static_cast<std::ptrdiff_t>(random() % (row.size() - n + 1));
  leaves some(first, first + static_cast<std::ptrdiff_t>(n));
  std::ranges::shuffle(some, random);
  return some;
}

TEST(order_tree_in_place, has_the_orders_of_a_tree_that_is_copied) {
  std::mt19937_64 random{1};
  std::size_t refused = 0, kept = 0;
  for (std::size_t problem = 0; problem < 300; ++problem) {
    leaves row = numbers(0, 2 + random() % 14);
    order_tree model;
    order_tree::node_number tree = model.add(row);
    order_tree_in_place tested;
    tested.restart(row);
    auto next = static_cast<order_tree_in_place::leaf_number>(row.size());
    std::vector<replacement> made;
    for (std::size_t step = 0; step < 30 && row.size() > 1; ++step) {
      const leaves removed = some_of(row, random),
                   added = numbers(next, 1 + random() % (row.size() > 14 ? 1 : 5));
      const order_tree::size before = model.sizes();
      const auto expected = model.replace(tree, removed, added);
      ASSERT_EQ(tested.can_replace(removed), expected.has_value()) << problem << ' ' << step;
      auto place = tested.replace(removed, added);
      ASSERT_EQ(place.has_value(), expected.has_value()) << problem << ' ' << step;
      ASSERT_TRUE(tested.is_consistent()) << problem << ' ' << step;
      if (!place) {
        ++refused;
        model.cut(before);
        continue;
      }
      ++kept;
      ASSERT_EQ(sorted(place->removed), sorted(removed));
      made.push_back({std::exchange(tree, *expected), std::move(*place), added});
      next += static_cast<order_tree_in_place::leaf_number>(added.size());
      row = tested.leaves();
      ASSERT_TRUE(has_order(model, tree, row)) << problem << ' ' << step;
      if (random() % 2 == 0) {
        row.clear();
        model.leaves_of(tree, row);
      }
    }
    for (; !made.empty(); made.pop_back()) {
      row = undone(row, made.back());
      ASSERT_TRUE(has_order(model, made.back().before, row)) << problem << ' ' << made.size();
    }
  }
  EXPECT_GT(refused, 300u);
  EXPECT_GT(kept, 3000u);
}

TEST(order_tree_in_place, groups_what_lies_beside_each_other) {
  order_tree_in_place tree;
  tree.restart(leaves{0, 1, 2, 3, 4, 5});
  ASSERT_TRUE(tree.replace(leaves{0, 1}, leaves{10, 11, 12}));
  ASSERT_TRUE(tree.replace(leaves{12, 2}, leaves{20, 21}));  // a row: 10 and 11, then 20 and 21
  EXPECT_EQ(tree.groups_of(leaves{10, 11, 20}).size(), 2u);
  std::vector<leaves> groups = tree.groups_of(leaves{10, 11, 20, 21, 4, 3});
  for (leaves& each : groups) each = sorted(each);
  std::ranges::sort(groups);
  EXPECT_EQ(groups, (std::vector<leaves>{{3, 4, 10, 11, 20, 21}}));
  groups = tree.groups_of(leaves{10, 20, 21, 4});
  for (leaves& each : groups) each = sorted(each);
  std::ranges::sort(groups);
  EXPECT_EQ(groups, (std::vector<leaves>{{4}, {10}, {20, 21}}));
}

TEST(order_tree_in_place, looks_at_few_nodes_of_a_long_row) {
  // Each replacement puts one leaf more into one row, at its end.
  order_tree_in_place tree;
  tree.restart(numbers(0, 1000));
  order_tree_in_place::leaf_number next = 1000;
  for (order_tree_in_place::leaf_number k = 0; k + 1 < 1000; ++k) {
    ASSERT_TRUE(tree.replace(leaves{k == 0 ? 0 : next - 1, k + 1}, leaves{next, next + 1}));
    next += 2;
  }
  EXPECT_LT(tree.steps(), 20u);
}

}  // namespace
}  // namespace tidemark::planner::detail
