// SPDX-License-Identifier: Apache-2.0
// Strategy: a list of all orders as the model. Random sets of leaves are replaced, as births replace deaths.
// After each replacement the tree has exactly the orders of the list. Then all replacements are undone in
// reverse: in the tree by its log, and in a row by the place that each replacement returned.
#include "order_tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "tree_orders.hpp"

namespace tidemark::planner::detail {
namespace {

using leaves = std::vector<order_tree::leaf_number>;
using orders = std::set<leaves>;

// By leaf, for all leaves of a test.
std::vector<offset_type> const some_sizes(4096, 1);

orders all_orders(leaves some) {
  orders all;
  std::ranges::sort(some);
  do all.insert(some);
  while (std::ranges::next_permutation(some).found);
  return all;
}

leaves numbers(order_tree::leaf_number first, std::size_t n) {
  leaves made;
  for (; made.size() < n; ++first) made.push_back(first);
  return made;
}

bool contains(leaves const& some, order_tree::leaf_number one) {
  return std::ranges::find(some, one) != some.end();
}

/// Returns the orders in which `removed` are consecutive, with each order of `added` in their place.
orders replaced(orders const& all, leaves const& removed, leaves const& added) {
  orders made;
  const orders in_any = all_orders(added);
  for (leaves const& each : all) {
    const auto is_removed = [&](auto leaf) { return contains(removed, leaf); };
    const auto first = std::ranges::find_if(each, is_removed);
    const auto end = std::find_if_not(first, each.end(), is_removed);
    if (static_cast<std::size_t>(end - first) != removed.size()) continue;
    for (leaves const& in_place : in_any) {
      leaves order(each.begin(), first);
      order.insert(order.end(), in_place.begin(), in_place.end());
      order.insert(order.end(), end, each.end());
      made.insert(order);
    }
  }
  return made;
}

struct replacement {
  orders before;
  order_tree::mark mark;
  order_tree::place place;
  leaves added;
};

/// Returns the row before a replacement, without leaves of size 0.
leaves undone(leaves const& row, replacement const& last, std::vector<offset_type> const& sizes) {
  const auto has_no_size = [&](auto leaf) { return sizes[leaf] == 0; };
  const auto is_added = [&](auto leaf) { return contains(last.added, leaf); };
  const auto first = std::ranges::find_if(row, is_added), end = std::find_if_not(first, row.end(), is_added);
  EXPECT_EQ(end - first, std::ranges::count_if(last.added, std::not_fn(has_no_size)));
  leaves removed = last.place.removed;
  std::erase_if(removed, has_no_size);
  for (std::size_t k = 0; k < last.place.beside.size(); ++k) {
    if (sizes[last.place.beside[k]] == 0) continue;
    const auto beside = std::ranges::find(row, last.place.beside[k]);
    EXPECT_NE(beside, row.end());
    if ((beside < first) != (k < last.place.before_n)) std::ranges::reverse(removed);
    break;
  }
  leaves made(row.begin(), first);
  made.insert(made.end(), removed.begin(), removed.end());
  made.insert(made.end(), end, row.end());
  return made;
}

/// Returns the orders without leaves of size 0.
orders with_size(orders const& all, std::vector<offset_type> const& sizes) {
  orders made;
  for (leaves order : all) {
    std::erase_if(order, [&](auto leaf) { return sizes[leaf] == 0; });
    made.insert(order);
  }
  return made;
}

/// Replaces random leaves and checks the tree each time.
class replacements {
 public:
  /// @param has_empty true if some leaves have size 0, but never all leaves of one replacement
  explicit replacements(std::uint64_t seed, bool has_empty = false) : has_empty_{has_empty}, random_{seed} {
    live_ = numbers(0, 2 + random_() % 5);
    next_ = static_cast<order_tree::leaf_number>(live_.size());
    tree.restart(live_);
    model = all_orders(live_);
  }

  void replace_some() {
    std::ranges::shuffle(live_, random_);
    const auto removed_n = static_cast<std::ptrdiff_t>(
        1 + random_() % std::min<std::size_t>(live_.size(), random_() % 8 == 0 ? 4 : 2));
    const leaves removed(live_.begin(), live_.begin() + removed_n);
    const leaves added =
        numbers(next_, 1 + random_() % (live_.size() > 5 ? removed.size() : removed.size() + 1));
    for (std::size_t k = 0; k < added.size(); ++k)
      sizes[added[k]] = has_empty_ && k != 0 && random_() % 2 == 0 ? 0 : 1;
    const orders expected = replaced(model, removed, added);
    ASSERT_EQ(tree.can_replace(removed), !expected.empty());
    const order_tree::mark mark = tree.now();
    std::optional<order_tree::place> place = tree.replace(removed, added, sizes);
    ASSERT_EQ(place.has_value(), !expected.empty());
    if (!place) {
      ++refused;
      ASSERT_EQ(order_tree_orders::of(tree), model);
      return;
    }
    ASSERT_EQ(std::set(place->removed.begin(), place->removed.end()),
              std::set(removed.begin(), removed.end()));
    made.push_back({std::exchange(model, expected), mark, std::move(*place), added});
    live_.erase(live_.begin(), live_.begin() + removed_n);
    live_.insert(live_.end(), added.begin(), added.end());
    next_ += static_cast<order_tree::leaf_number>(added.size());
    ASSERT_EQ(order_tree_orders::of(tree), model);
    ASSERT_TRUE(order_tree_orders::is_consistent(tree));
    ASSERT_TRUE(model.contains(tree.leaves()));
  }

  order_tree tree;
  orders model;
  std::vector<replacement> made;
  std::vector<offset_type> sizes = some_sizes;  // by leaf
  std::size_t refused = 0;

 private:
  bool has_empty_;
  std::mt19937_64 random_;
  leaves live_;
  order_tree::leaf_number next_ = 0;
};

TEST(order_tree, represents_the_orders_with_each_replaced_set_contiguous) {
  std::size_t refused = 0, kept = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    replacements tested{seed};
    for (std::size_t step = 0; step < 12; ++step) {
      ASSERT_NO_FATAL_FAILURE(tested.replace_some()) << seed << ' ' << step;
      if (step % 5 == 4) tested.tree.forget();
    }
    refused += tested.refused;
    kept += tested.made.size();
  }
  EXPECT_GT(refused, 20u);
  EXPECT_GT(kept, 100u);
}

TEST(order_tree, restores_leaf_orders_on_undo) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    replacements tested{seed, seed % 2 == 1};
    for (std::size_t step = 0; step < 12; ++step) ASSERT_NO_FATAL_FAILURE(tested.replace_some());
    leaves row = tested.tree.leaves();
    std::erase_if(row, [&](auto leaf) { return tested.sizes[leaf] == 0; });
    for (; !tested.made.empty(); tested.made.pop_back()) {
      replacement const& last = tested.made.back();
      tested.tree.undo(last.mark);
      ASSERT_EQ(order_tree_orders::of(tested.tree), last.before) << seed;
      ASSERT_TRUE(order_tree_orders::is_consistent(tested.tree)) << seed;
      row = undone(row, last, tested.sizes);
      ASSERT_TRUE(with_size(last.before, tested.sizes).contains(row)) << seed << ' ' << tested.made.size();
    }
  }
}

TEST(order_tree, finds_the_leaves_around_given_leaves) {
  order_tree tree;
  tree.restart(leaves{0, 1, 2, 3});
  ASSERT_TRUE(tree.replace(leaves{0, 1}, leaves{4, 5, 6}, some_sizes));
  leaves around = tree.leaves_around(leaves{4, 5});
  std::ranges::sort(around);
  EXPECT_EQ(around, (leaves{4, 5, 6}));
  EXPECT_EQ(tree.leaves_around(leaves{4, 2}).size(), 5u);
}

/// Returns true if the leaves of this number are consecutive, ignoring leaves of lower numbers.
bool are_gathered(leaves order, std::vector<std::uint32_t> const& of, std::uint32_t number) {
  std::erase_if(order, [&](auto leaf) { return of[leaf] < number; });
  const auto is_gathered = [&](auto leaf) { return of[leaf] == number; };
  const auto first = std::ranges::find_if(order, is_gathered);
  return std::none_of(std::find_if_not(first, order.end(), is_gathered), order.end(), is_gathered);
}

TEST(order_tree, gathers_leaves_that_some_order_makes_contiguous) {
  std::mt19937_64 random{11};
  std::size_t apart = 0, gathered = 0;
  for (std::uint64_t problem = 0; problem < 100; ++problem) {
    replacements made{problem};
    for (std::size_t step = 0; step < 10; ++step) ASSERT_NO_FATAL_FAILURE(made.replace_some());
    std::vector<std::uint32_t> of(512);
    for (std::uint32_t& each : of) each = static_cast<std::uint32_t>(random() % 3);
    for (std::uint32_t number : {0u, 1u}) {
      const bool can = std::ranges::any_of(
          made.model, [&](leaves const& order) { return are_gathered(order, of, number); });
      ASSERT_EQ(made.tree.can_gather(of, number), can) << problem << ' ' << number;
      ++(can ? gathered : apart);
    }
  }
  EXPECT_GT(apart, 10u);
  EXPECT_GT(gathered, 10u);
}

TEST(order_tree, keeps_the_orders_of_the_other_leaves_after_removal) {
  for (std::uint64_t problem = 0; problem < 60; ++problem) {
    replacements made{problem};
    for (std::size_t step = 0; step < 10; ++step) ASSERT_NO_FATAL_FAILURE(made.replace_some());
    const order_tree::mark before = made.tree.now();
    leaves removed = made.tree.leaves();
    removed.resize((removed.size() - 1) / 2);
    orders left;
    for (leaves order : made.model) {
      std::erase_if(order, [&](auto leaf) { return contains(removed, leaf); });
      left.insert(order);
    }
    for (order_tree::leaf_number leaf : removed) made.tree.remove(leaf);
    ASSERT_EQ(order_tree_orders::of(made.tree), left) << problem;
    ASSERT_TRUE(order_tree_orders::is_consistent(made.tree)) << problem;
    made.tree.undo(before);
    ASSERT_EQ(order_tree_orders::of(made.tree), made.model) << problem;
  }
}

TEST(order_tree, visits_only_nodes_near_a_replacement) {
  // Each pair is nested in another pair; a replacement must not visit the outer pairs.
  order_tree tree;
  tree.restart(leaves{0});
  for (order_tree::leaf_number next = 1; next < 2001; next += 2) {
    const std::uint64_t before = tree.steps();
    ASSERT_TRUE(tree.replace(leaves{next - 1}, leaves{next, next + 1}, some_sizes));
    EXPECT_LT(tree.steps() - before, 20u);
  }
}

}  // namespace
}  // namespace tidemark::planner::detail
