// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Full steps".
// All orders of some leaves in which given sets of them lie beside each other, of very many leaves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tidemark::planner::detail {

/// A PQ-tree as `order_tree` is one, but changed in place: an earlier tree is lost, and a replacement takes
/// steps in proportion to the nodes that lie between the removed leaves, not to all.
///
/// The children of a node are linked in both directions, without a first direction, so that a row is turned round
/// in O(1). Where rows are joined, the children of the shorter ones get another parent. Memory is
/// O(leaves), and nothing recurses.
///
/// Invariants, of each node below the top, and of that:
/// - a leaf has child_n == 0 and node_of_[leaf] == the node, another node child_n >= 2;
/// - the links lead from `first` over child_n children to `last`, and back; these two have no other link;
/// - parent == the node, of each child; the top has no parent.
class order_tree_in_place {
 public:
  using leaf_number = std::uint32_t;
  static constexpr leaf_number no_leaf = ~leaf_number{0};

  /// Where some leaves were, as is known once all that was beside them lies somewhere.
  struct place {
    std::vector<leaf_number> removed;  ///< in the order in which they lay, or backwards
    leaf_number beside = no_leaf;      ///< one that stays; no_leaf: both ways are possible
    bool is_before = false;            ///< whether that one lies before them in the order of `removed`
  };

  /// A tree whose leaves come in any order. @pre at least one
  void restart(std::span<leaf_number const> leaves);

  /// Keeps the orders in which `removed` lie beside each other, with `added` in their place, in any order. If there
  /// are none, the tree stays as it is. @pre `removed` are some leaves of the tree, and `added` is not empty
  [[nodiscard]] std::optional<place> replace(std::span<leaf_number const> removed,
                                             std::span<leaf_number const> added);

  /// Whether there are orders in which they lie beside each other. @pre some leaves of the tree
  [[nodiscard]] bool can_replace(std::span<leaf_number const> removed);

  /// Some leaves in groups: those that lie beside each other in a row, or below one node in any order.
  /// @pre at least one, of the tree
  [[nodiscard]] std::vector<std::vector<leaf_number>> groups_of(std::span<leaf_number const> some);

  /// One of the orders.
  [[nodiscard]] std::vector<leaf_number> leaves();

  /// Whether the invariants hold. O(nodes).
  [[nodiscard]] bool is_consistent() const;

  /// How many nodes were looked at by the last call.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

 private:
  using node_number = std::uint32_t;
  static constexpr node_number no_node = ~node_number{0};

  enum class kind : std::uint8_t { leaf, any, row };
  struct node {
    kind is = kind::leaf;
    leaf_number leaf = no_leaf;
    node_number parent = no_node;
    std::array<node_number, 2> beside{no_node, no_node};  // in no direction
    node_number first = no_node;                          // of its children, and last: the two ends
    node_number last = no_node;
    std::uint32_t child_n = 0;
    // Of the last replacement in which it was one of those around the removed leaves:
    std::uint32_t round = 0;
    std::uint32_t waiting_n = 0;  // children that are around removed leaves, and were not looked at yet
    std::uint32_t removed_n = 0;  // leaves below it
    std::uint32_t full_n = 0;     // children below which all are removed
    std::uint32_t partial_n = 0;  // children below which some are
    std::array<node_number, 2> partial{no_node, no_node};
    node_number first_full = no_node;
    node_number next_full = no_node;
  };
  /// Some nodes that are linked, the ends of which have no other link, in a row that they are to be part of.
  struct segment {
    node_number first = no_node;
    node_number last = no_node;
    std::uint32_t n = 1;
    node_number parent = no_node;  // whose children they are; no_node: none
  };
  /// What is removed from a row, and what is beside that and stays; no_node: nothing.
  struct cut {
    node_number before = no_node;
    node_number first = no_node;
    node_number last = no_node;
    node_number after = no_node;
  };
  /// What a node beside the removed leaves comes apart into.
  struct parts {
    std::vector<segment> kept;      // the nearest to the removed leaves last
    std::vector<node_number> full;  // the nearest to what is kept last
  };

  [[nodiscard]] node_number new_node(kind is);
  [[nodiscard]] node_number new_leaves(std::span<leaf_number const> leaves);
  [[nodiscard]] node_number next_of(node_number at, node_number before) const;
  [[nodiscard]] bool has_consistent_children(node_number at) const;
  void relink(node_number at, node_number was, node_number is);
  void append(node_number parent, node_number child);
  void unlink(node_number child);
  void substitute(node_number was, node_number is);
  void free(node_number at) { free_.push_back(at); }

  [[nodiscard]] bool touch(node_number at);
  [[nodiscard]] bool is_touched(node_number at) const { return at != no_node && nodes_[at].round == round_; }
  [[nodiscard]] bool is_full(node_number at) const;
  void count_waiting(std::span<leaf_number const> removed);
  [[nodiscard]] node_number count_removed(std::span<leaf_number const> removed);
  [[nodiscard]] bool is_row_at_end(node_number at) const;
  [[nodiscard]] node_number near_end(node_number at) const;
  [[nodiscard]] std::optional<cut> find_cut(node_number root) const;
  [[nodiscard]] std::optional<cut> find_cut_in_row(node_number root) const;
  void collect_run(node_number end, std::vector<std::vector<leaf_number>>& into);

  void replace_in_any(node_number root, node_number in_place, place& made);
  void replace_in_row(node_number root, cut const& out, node_number in_place, place& made);
  void take_apart(node_number at, parts& into);
  [[nodiscard]] node_number take_row_apart(node_number at, parts& into);
  void splice(node_number row, cut const& out, std::vector<segment> const& chain);
  void adopt(node_number parent, segment const& children);
  void collect(node_number at, std::vector<leaf_number>& into, bool frees);
  void find_beside(node_number in_place, node_number before, place& made) const;

  std::vector<node> nodes_;
  std::vector<node_number> free_;
  std::vector<node_number> node_of_;  // by leaf
  node_number top_ = no_node;
  std::uint32_t round_ = 0;
  std::vector<node_number> queue_;
  std::vector<node_number> stack_;
  std::uint64_t steps_ = 0;
};

}  // namespace tidemark::planner::detail
