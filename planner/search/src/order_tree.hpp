// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Along time".
// Represents all orders of some leaves in which given sets of leaves are consecutive: a PQ-tree that is
// changed in place. A replacement counts removed leaves from the leaves up, then dissolves the nodes around
// them from the top down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "problem.hpp"

namespace tidemark::planner::detail {

/// A PQ-tree (K. Booth, G. Lueker, "Testing for the consecutive ones property", 1976). Represents all orders
/// of its leaves in which the children of an `any` node come in any order, and the children of a `row` node
/// come forwards or backwards. Leaves are replaced, so the tree follows the live buffers from moment to
/// moment.
///
/// A replacement takes steps for the nodes around the removed leaves and for their children. Each node is
/// logged before its children change, so that `undo` can restore an earlier tree.
///
/// Invariants: a leaf has no children; every other node has at least two; the parent of a child is its node.
class order_tree {
 public:
  using leaf_number = std::uint32_t;
  using node_number = std::uint32_t;
  using leaf_numbers = std::span<leaf_number const>;

  /// The place of removed leaves. Their offsets follow from the leaves beside them.
  struct place {
    std::vector<leaf_number> removed;  ///< in the order in which they lay, or reversed
    std::vector<leaf_number>
        beside;  ///< leaves that stay; each one with a size fixes the direction; empty: both are possible
    std::size_t before_n = 0;  ///< the first `before_n` leaves lie before `removed`, the others behind
  };
  /// A state of the tree, for `undo`.
  struct mark {
    std::size_t log = 0;
    std::size_t nodes = 0;
    std::size_t freed = 0;
    node_number top = 0;
  };

  /// Restarts with a tree whose leaves come in any order. @pre `some` is not empty
  void restart(leaf_numbers some);

  /// Keeps the orders in which the leaves of `removed` are consecutive, and puts `added` in their place in
  /// any order. Leaves the tree unchanged and returns `nullopt` if no order remains.
  /// @pre `removed` are leaves of the tree, and `added` is not empty
  /// @param sizes by leaf; a leaf of size 0 may never have its own place
  [[nodiscard]] std::optional<place> replace(leaf_numbers removed, leaf_numbers added,
                                             std::span<offset_type const> sizes);

  /// Returns true if the leaves are consecutive in some order. @pre `removed` are leaves of the tree
  [[nodiscard]] bool can_replace(leaf_numbers removed) { return can_replace_below(count_removed(removed)); }

  /// Removes a leaf from all orders. @pre the tree has another leaf
  void remove(leaf_number leaf);

  /// Returns true if some order has all leaves of this number beside each other. Leaves with lower numbers
  /// are ignored.
  /// @param numbers by leaf
  [[nodiscard]] bool can_gather(std::span<std::uint32_t const> numbers, std::uint32_t number) {
    gathered_.clear();
    return gather(top_, numbers, number) != gathered::apart;
  }

  /// Returns one of the orders.
  [[nodiscard]] std::vector<leaf_number> leaves() { return leaves_below(top_); }

  /// Returns the leaves below the lowest common ancestor of these leaves.
  [[nodiscard]] std::vector<leaf_number> leaves_around(leaf_numbers these) {
    return leaves_below(count_removed(these));
  }

  [[nodiscard]] mark now() const noexcept { return {log_.size(), nodes_.size(), freed_.size(), top_}; }
  /// Restores the tree of an earlier mark. @pre `forget` was not called since
  void undo(mark to);
  /// Makes all changes final and frees the log.
  void forget();

  /// Number of nodes visited since the last `restart`.
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
  /// Counters of the last replacement that touched a node.
  struct tally {
    std::uint32_t round = 0;
    std::uint32_t waiting_n = 0;  // touched children that were not counted yet
    std::uint32_t removed_n = 0;  // removed leaves below the node
    std::uint32_t full_n = 0;     // children whose leaves are all removed
    std::uint32_t partial_n = 0;  // children of which some leaves are removed
  };
  /// The children of dissolved nodes on one side of the removed leaves: `kept` from the outside in, `full`
  /// from the inside out.
  struct side {
    nodes kept;
    nodes full;
  };
  /// Possible positions of the gathered leaves below a node. Ignored leaves do not count.
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
  [[nodiscard]] bool are_consecutive(nodes const& row, bool at_end) const;
  [[nodiscard]] bool can_replace_below(node_number root) const;

  void replace_below(node_number root, node_number in_place, place& made);
  void dissolve(node_number at, side& into);
  void remove_nodes(nodes const& some, place& made);
  void find_beside(node_number in_place, std::span<offset_type const> sizes, place& made);

  [[nodiscard]] gathered gather(node_number at, std::span<std::uint32_t const> numbers, std::uint32_t number);
  [[nodiscard]] static gathered in_any(std::span<gathered const> children);
  [[nodiscard]] static gathered in_row(std::span<gathered const> children);

  std::vector<node> nodes_;
  std::vector<tally> tallies_;        // by node
  std::vector<node_number> node_of_;  // by leaf
  node_number top_ = no_node;
  std::vector<std::pair<node_number, node>> log_;  // earlier states of nodes
  nodes freed_;                                    // nodes freed since the last `forget`
  nodes free_;
  std::uint32_t round_ = 0;
  nodes queue_;
  nodes stack_;
  std::vector<gathered> gathered_;  // the stack of `gather`
  std::uint64_t steps_ = 0;
};

}  // namespace tidemark::planner::detail
