// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Along time".
// All orders of some leaves in which given sets of them lie beside each other: a PQ-tree that is changed in
// place. Nodes count what is removed from the leaves up; what lies around is taken apart from the lowest node
// around all down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "problem.hpp"

namespace tidemark::planner::detail {

/// A PQ-tree (K. Booth, G. Lueker, "Testing for the consecutive ones property", 1976): it stands for all orders
/// of its leaves in which the children of a node "any" come in any order, and those of a node "row" in theirs or
/// backwards. Leaves are replaced, so that it follows what is live from moment to moment.
///
/// A replacement takes steps for the nodes around what is removed and their children. Each node is logged before its
/// children change, so that an earlier tree is there again after `undo`.
///
/// Invariants: a leaf has no children, another node has two or more; a child has its node as the parent.
class order_tree {
 public:
  using leaf_number = std::uint32_t;
  using node_number = std::uint32_t;
  using leaf_numbers = std::span<leaf_number const>;

  /// The place of removed leaves, which is known once the leaves that were beside them have places.
  struct place {
    std::vector<leaf_number> removed;  ///< in the order in which they lay, or backwards
    std::vector<leaf_number>
        beside;  ///< some that stay; of those with a size each says which; none: both are possible
    std::size_t before_n =
        0;  ///< the first of these lie before them in the order of `removed`, the others behind
  };
  /// The state of the tree at a time, for `undo`.
  struct mark {
    std::size_t log = 0;
    std::size_t nodes = 0;
    std::size_t freed = 0;
    node_number top = 0;
  };

  /// A tree whose leaves come in any order. @pre at least one
  void restart(leaf_numbers some);

  /// Keeps the orders in which `removed` lie beside each other, with `added` in their place, in any order. If there
  /// are none, the tree stays as it is. @pre `removed` are some leaves of the tree, and `added` is not empty
  /// @param sizes by leaf; those without a size may never have a place of their own
  [[nodiscard]] std::optional<place> replace(leaf_numbers removed, leaf_numbers added,
                                             std::span<offset_type const> sizes);

  /// True if they lie beside each other in some order. @pre some leaves of the tree
  [[nodiscard]] bool can_replace(leaf_numbers removed) { return can_replace_below(count_removed(removed)); }

  /// Keeps the orders without a leaf. @pre it is not the only one
  void remove(leaf_number leaf);

  /// True if some order has the leaves with a number beside each other, but for leaves with lower numbers.
  /// @param numbers by leaf
  [[nodiscard]] bool can_gather(std::span<std::uint32_t const> numbers, std::uint32_t number) {
    gathered_.clear();
    return gather(top_, numbers, number) != gathered::apart;
  }

  /// One of the orders.
  [[nodiscard]] std::vector<leaf_number> leaves() { return leaves_below(top_); }

  /// The leaves below the lowest node that has all of these below it.
  [[nodiscard]] std::vector<leaf_number> leaves_around(leaf_numbers these) {
    return leaves_below(count_removed(these));
  }

  [[nodiscard]] mark now() const noexcept { return {log_.size(), nodes_.size(), freed_.size(), top_}; }
  /// @pre nothing was forgotten since
  void undo(mark to);
  /// Makes all changes final: they cannot be undone any more, and take no memory.
  void forget();

  /// How many nodes were looked at since the last `restart`.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

 private:
  friend class order_tree_orders;  // of the tests
  static constexpr node_number no_node = ~node_number{0};
  using nodes = std::vector<node_number>;

  enum class kind : std::uint8_t { leaf, any, row };
  struct node {
    kind is = kind::leaf;
    leaf_number leaf = 0;
    node_number parent = no_node;
    nodes children;
  };
  /// Counts of the last replacement in which a node was around removed leaves.
  struct tally {
    std::uint32_t round = 0;
    std::uint32_t waiting_n = 0;  // children around removed leaves that were not looked at yet
    std::uint32_t removed_n = 0;  // leaves below it
    std::uint32_t full_n = 0;     // children below which all are removed
    std::uint32_t partial_n = 0;  // children below which some are
  };
  /// The parts of a node at one side of the removed leaves: from the outside in, and from the inside out.
  struct side {
    nodes kept;
    nodes full;
  };
  /// The possible places of gathered leaves among the leaves below a node that are not ignored.
  enum class gathered : std::uint8_t { ignored, none, all, at_an_end, inside, apart };

  [[nodiscard]] node_number new_node(kind is);
  [[nodiscard]] node_number new_leaves(leaf_numbers some);
  node& change(node_number at);
  void set_children(node_number at, nodes children);
  void substitute(node_number was, node_number is);
  template <class Visit>
  void each_node_below(node_number at, Visit visit);
  [[nodiscard]] std::vector<leaf_number> leaves_below(node_number at);

  [[nodiscard]] bool touch(node_number at);
  [[nodiscard]] bool is_touched(node_number at) const { return tallies_[at].round == round_; }
  [[nodiscard]] bool is_full(node_number at) const {
    return is_touched(at) && tallies_[at].full_n == nodes_[at].children.size();
  }
  void count_waiting(leaf_numbers removed);
  [[nodiscard]] node_number count_removed(leaf_numbers removed);
  [[nodiscard]] nodes removed_last(node_number at) const;
  [[nodiscard]] bool lie_together(nodes const& row, bool at_end) const;
  [[nodiscard]] bool can_replace_below(node_number root) const;

  void replace_below(node_number root, node_number in_place, place& made);
  void take_apart(node_number at, side& into);
  void take_out(nodes const& some, place& made);
  void find_beside(node_number in_place, std::span<offset_type const> sizes, place& made);

  [[nodiscard]] gathered gather(node_number at, std::span<std::uint32_t const> numbers, std::uint32_t number);
  [[nodiscard]] static gathered in_any(std::span<gathered const> children);
  [[nodiscard]] static gathered in_row(std::span<gathered const> children);

  std::vector<node> nodes_;
  std::vector<tally> tallies_;        // by node
  std::vector<node_number> node_of_;  // by leaf
  node_number top_ = no_node;
  std::vector<std::pair<node_number, node>> log_;  // what nodes were
  nodes freed_;                                    // since the last `forget`
  nodes free_;
  std::uint32_t round_ = 0;
  nodes queue_;
  nodes stack_;
  std::vector<gathered> gathered_;  // a stack, of `gather`
  std::uint64_t steps_ = 0;
};

}  // namespace tidemark::planner::detail
