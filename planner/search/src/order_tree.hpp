// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Along time".
// All orders of some leaves in which given sets of them lie beside each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tidemark::planner::detail {

/// A PQ-tree (K. Booth, G. Lueker, "Testing for the consecutive ones property", 1976): it stands for all orders
/// of its leaves in which the children of a node "any" come in any order, and those of a node "row" in theirs or
/// backwards. Leaves are replaced, so that it follows what is live from moment to moment.
///
/// Nodes are never changed, only added: an earlier tree is there again after `cut`. A replacement takes steps
/// in proportion to the leaves.
class order_tree {
 public:
  using leaf_number = std::uint32_t;
  using node_number = std::uint32_t;
  static constexpr double no_position = -1;
  /// What there was at a time.
  struct size {
    std::size_t nodes = 0;
    std::size_t children = 0;
  };

  /// A tree whose leaves come in any order. @pre at least one
  [[nodiscard]] node_number add(std::span<leaf_number const> leaves);

  /// The orders of a tree in which `removed` lie beside each other, with `added` in their place, in any order.
  /// Empty if there are none. @pre `removed` are some leaves of the tree, and `added` is not empty
  [[nodiscard]] std::optional<node_number> replace(node_number tree, std::span<leaf_number const> removed,
                                                   std::span<leaf_number const> added);

  /// The orders of a tree, without some of its leaves. @pre one is left
  [[nodiscard]] node_number without(node_number tree, std::span<leaf_number const> removed);

  /// Whether some order has the leaves with a number beside each other, but for those with lower numbers.
  /// @param numbers by leaf
  [[nodiscard]] bool can_gather(node_number tree, std::span<std::uint32_t const> numbers,
                                std::uint32_t number) const;

  /// The leaves of a tree, in one of its orders.
  void leaves_of(node_number tree, std::vector<leaf_number>& into) const;

  /// The leaves below the lowest node that has all of these below it.
  void leaves_around(node_number tree, std::span<leaf_number const> these, std::vector<leaf_number>& into);

  /// The order of a tree in which the positions of its leaves rise, those without one (`no_position`) anywhere.
  /// @pre there is one, and those with one position can come in any order that the tree has
  void leaves_by(node_number tree, std::span<double const> positions, std::vector<leaf_number>& into);

  [[nodiscard]] size sizes() const noexcept { return {nodes_.size(), children_.size()}; }
  void cut(size to);

 private:
  enum class kind : std::uint8_t { leaf, any, row };
  struct node {
    kind is = kind::leaf;
    std::uint32_t begin = 0;  // of its children; of a leaf: its number
    std::uint32_t end = 0;
  };
  /// How many leaves there are below a node, and how many of them are to be removed.
  struct count {
    std::uint32_t removed = 0;
    std::uint32_t all = 0;
    [[nodiscard]] bool none() const noexcept { return removed == 0; }
    [[nodiscard]] bool full() const noexcept { return removed == all; }
  };
  using nodes = std::vector<node_number>;
  /// Where those that are gathered can lie among the leaves below a node that are not ignored.
  enum class gathered : std::uint8_t { ignored, none, all, at_an_end, inside, apart };

  [[nodiscard]] std::span<node_number const> children_of(node_number at) const;
  [[nodiscard]] nodes copied_children(node_number at) const;
  [[nodiscard]] node_number add_leaf(leaf_number leaf);
  [[nodiscard]] node_number add_node(kind is, nodes const& children);
  void mark(std::span<leaf_number const> leaves, bool removed);
  count count_below(node_number at);
  [[nodiscard]] node_number lowest_around(node_number tree, std::size_t n) const;
  [[nodiscard]] std::optional<node_number> rebuild(node_number at, node_number root, node_number in_place);
  [[nodiscard]] std::optional<node_number> replace_below(node_number root, node_number in_place);
  [[nodiscard]] std::optional<node_number> replace_in_any(node_number root, node_number in_place);
  [[nodiscard]] std::optional<node_number> replace_in_row(node_number root, node_number in_place);
  [[nodiscard]] bool add_kept(node_number at, nodes& row);
  [[nodiscard]] node_number kept_of(node_number at);

  [[nodiscard]] gathered gather(node_number at, std::span<std::uint32_t const> numbers,
                                std::uint32_t number) const;
  [[nodiscard]] gathered gather_in_any(node_number at, std::span<std::uint32_t const> numbers,
                                       std::uint32_t number) const;
  [[nodiscard]] gathered gather_in_row(node_number at, std::span<std::uint32_t const> numbers,
                                       std::uint32_t number) const;

  /// The mean position of the leaves below it.
  struct mean {
    double sum = 0;
    double n = 0;
    [[nodiscard]] double value() const noexcept { return n == 0 ? no_position : sum / n; }
  };
  mean mean_below(node_number at, std::span<double const> positions);
  void add_by(node_number at, std::vector<leaf_number>& into);

  std::vector<node> nodes_;
  nodes children_;
  std::vector<bool> is_removed_;  // by leaf
  std::vector<count> counts_;     // by node, of the last replacement
  std::vector<double> means_;     // by node, of the last order
};

}  // namespace tidemark::planner::detail
