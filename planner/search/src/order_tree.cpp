// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Along time".
// The PQ-tree. `count_removed` counts the removed leaves of each node, from the leaves up to their lowest
// common ancestor. The removed leaves can be consecutive if each node on the way has at most one partial
// child (the ancestor at most two), and if the removed children of each row are contiguous. Then the nodes
// are dissolved from the top down, and the kept children form a row around the added leaves. `gather` tests
// leaves that are not removed yet, from the top down.
#include "order_tree.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <ranges>

namespace tidemark::planner::detail {

// ---- nodes ------------------------------------------------------------------------------------------------

order_tree::node_number order_tree::new_node(kind is) {
  if (free_.empty()) {
    free_.push_back(static_cast<node_number>(nodes_.size()));
    nodes_.emplace_back();
    if (tallies_.size() < nodes_.size()) tallies_.emplace_back();
  }
  const node_number made = free_.back();
  free_.pop_back();
  nodes_[made] = {.is = is, .leaf = 0, .parent = no_node, .children = {}};
  return made;
}

order_tree::node_number order_tree::new_leaves(leaf_numbers some) {
  nodes made;
  for (leaf_number leaf : some) {
    const node_number added = made.emplace_back(new_node(kind::leaf));
    nodes_[added].leaf = leaf;
    if (node_of_.size() <= leaf) node_of_.resize(leaf + std::size_t{1});
    node_of_[leaf] = added;
  }
  if (made.size() == 1) return made.front();
  const node_number parent = new_node(kind::any);
  set_children(parent, std::move(made));
  return parent;
}

/// Logs a node whose children or parent links are about to change.
order_tree::node& order_tree::change(node_number at) {
  log_.emplace_back(at, nodes_[at]);
  steps_ += nodes_[at].children.size() / 8 + 1;
  return nodes_[at];
}

/// @pre the node is new or was logged
void order_tree::set_children(node_number at, nodes children) {
  for (node_number child : children) nodes_[child].parent = at;
  nodes_[at].children = std::move(children);
}

/// Puts node `is` in the place of node `was`.
void order_tree::substitute(node_number was, node_number is) {
  const node_number parent = nodes_[was].parent;
  nodes_[is].parent = parent;
  if (parent == no_node) top_ = is;
  else *std::ranges::find(change(parent).children, was) = is;
}

void order_tree::restart(leaf_numbers some) {
  nodes_.clear();
  free_.clear();
  freed_.clear();
  log_.clear();
  steps_ = 0;
  top_ = new_leaves(some);
}

/// Restores nodes from the last log entry to the first. The entry of the mark is restored last, so its
/// children get the right parents.
void order_tree::undo(mark to) {
  for (; log_.size() != to.log; log_.pop_back()) {
    auto& [at, was] = log_.back();
    nodes_[at] = std::move(was);
    for (node_number child : nodes_[at].children) nodes_[child].parent = at;
  }
  nodes_.resize(to.nodes);
  freed_.resize(to.freed);
  top_ = to.top;
  nodes_[top_].parent = no_node;
}

void order_tree::forget() {
  log_.clear();
  free_.insert(free_.end(), freed_.begin(), freed_.end());
  freed_.clear();
}

template <class Visit>
void order_tree::each_node_below(node_number at, Visit visit) {
  stack_.assign(1, at);
  while (!stack_.empty()) {
    const node_number here = stack_.back();
    stack_.pop_back();
    ++steps_;
    if (visit(here)) return;
    stack_.insert(stack_.end(), nodes_[here].children.rbegin(), nodes_[here].children.rend());
  }
}

std::vector<order_tree::leaf_number> order_tree::leaves_below(node_number at) {
  std::vector<leaf_number> made;
  each_node_below(at, [&](node_number here) {
    if (nodes_[here].is == kind::leaf) made.push_back(nodes_[here].leaf);
    return false;
  });
  return made;
}

void order_tree::remove(leaf_number leaf) {
  const node_number parent = nodes_[node_of_[leaf]].parent;
  nodes& left = change(parent).children;
  left.erase(std::ranges::find(left, node_of_[leaf]));
  freed_.push_back(node_of_[leaf]);
  if (left.size() != 1) return;
  freed_.push_back(parent);
  substitute(parent, left.front());
}

// ---- nodes around the removed leaves ----------------------------------------------------------------------

/// @return true if this replacement had not touched the node yet
bool order_tree::touch(node_number at) {
  if (is_touched(at)) return false;
  tallies_[at] = {.round = round_};
  return true;
}

/// Walks up from the removed leaves until only their lowest common ancestor remains.
void order_tree::count_waiting(leaf_numbers removed) {
  ++round_;
  queue_.clear();
  for (leaf_number leaf : removed) {
    (void)touch(node_of_[leaf]);
    queue_.push_back(node_of_[leaf]);
  }
  std::size_t at_top = 0;
  for (std::size_t k = 0; queue_.size() - k + at_top > 1; ++k) {
    if (queue_[k] == top_) {
      at_top = 1;
      continue;
    }
    const node_number parent = nodes_[queue_[k]].parent;
    if (touch(parent)) queue_.push_back(parent);
    ++tallies_[parent].waiting_n;
  }
  steps_ += queue_.size();
}

/// Counts the removed leaves below each touched node. @return the lowest common ancestor. The ancestor is the
/// last entry of `queue_`, in which each node follows all nodes below it
order_tree::node_number order_tree::count_removed(leaf_numbers removed) {
  count_waiting(removed);
  queue_.resize(removed.size());
  for (std::size_t k = 0;; ++k) {
    const node_number at = queue_[k];
    if (nodes_[at].is == kind::leaf) tallies_[at].removed_n = 1;
    if (tallies_[at].removed_n == removed.size()) return at;
    tally& parent = tallies_[nodes_[at].parent];
    parent.removed_n += tallies_[at].removed_n;
    ++(is_full(at) ? parent.full_n : parent.partial_n);
    if (--parent.waiting_n == 0) queue_.push_back(nodes_[at].parent);
  }
}

/// Returns the children of a node. Reverses a row if needed, so that the removed end is last.
order_tree::nodes order_tree::removed_last(node_number at) const {
  nodes children = nodes_[at].children;
  if (is_full(children.front()) || !is_touched(children.back())) std::ranges::reverse(children);
  return children;
}

/// Returns true if the removed children of a row are contiguous and only the outermost ones are partial. If
/// `at_end`, they must reach the last child, and only the first of them may be partial.
bool order_tree::are_consecutive(nodes const& row, bool at_end) const {
  const auto touched = [&](node_number each) { return is_touched(each); };
  const auto first = std::ranges::find_if(row, touched);
  auto last = std::prev(row.end());
  while (!at_end && !is_touched(*last)) --last;
  return std::all_of(first + 1, at_end ? row.end() : std::max(first + 1, last),
                     [&](node_number each) { return is_full(each); });
}

bool order_tree::can_replace_below(node_number root) const {
  for (node_number at : queue_) {
    if (is_full(at)) continue;
    const bool is_row = nodes_[at].is == kind::row;
    if (tallies_[at].partial_n > (at == root ? 2 : 1)) return false;
    if (is_row &&
        !(at == root ? are_consecutive(nodes_[at].children, false) : are_consecutive(removed_last(at), true)))
      return false;
  }
  return true;
}

// ---- replacements -----------------------------------------------------------------------------------------

std::optional<order_tree::place> order_tree::replace(leaf_numbers removed, leaf_numbers added,
                                                     std::span<offset_type const> sizes) {
  const node_number root = count_removed(removed);
  if (!can_replace_below(root)) return std::nullopt;
  place made;
  const node_number in_place = new_leaves(added);
  if (is_full(root)) {
    substitute(root, in_place);
    remove_nodes({root}, made);
  } else {
    replace_below(root, in_place, made);
    find_beside(in_place, sizes, made);
  }
  return made;
}

/// Puts the added leaves between the kept children of the nodes around the removed leaves. A row gets them
/// between its children before and behind. An `any` node gets a new row, unless all of its children were
/// touched.
void order_tree::replace_below(node_number root, node_number in_place, place& made) {
  const bool is_row = nodes_[root].is == kind::row;
  std::array<side, 2> sides;
  nodes before, full, others;
  bool begun = false;
  std::size_t partial_n = 0;
  for (node_number child : nodes(change(root).children)) {
    if (!is_touched(child)) {
      (is_row && !begun ? before : others).push_back(child);
      continue;
    }
    if (is_full(child)) full.push_back(child);
    else dissolve(child, sides[is_row ? (begun ? 1 : 0) : partial_n++]);
    begun = true;
  }
  remove_nodes({sides[0].full.rbegin(), sides[0].full.rend()}, made);
  remove_nodes(full, made);
  remove_nodes(sides[1].full, made);
  nodes row = std::move(before);
  row.insert(row.end(), sides[0].kept.begin(), sides[0].kept.end());
  row.push_back(in_place);
  row.insert(row.end(), sides[1].kept.rbegin(), sides[1].kept.rend());
  if (is_row) {
    row.insert(row.end(), others.begin(), others.end());
    set_children(root, std::move(row));
  } else if (others.empty()) {
    nodes_[root].is = kind::row;
    set_children(root, std::move(row));
  } else {
    others.push_back(row.size() == 1 ? in_place : new_node(kind::row));
    const node_number last = others.back();
    set_children(root, std::move(others));
    if (last != in_place) set_children(last, std::move(row));
  }
}

/// Dissolves a node with removed leaves at one end, and its partial descendants.
void order_tree::dissolve(node_number at, side& into) {
  while (at != no_node) {
    const nodes children = removed_last(at);
    (void)change(at);
    node_number partial = no_node;
    nodes kept, full;
    for (node_number child : children) {
      if (!is_touched(child)) kept.push_back(child);
      else if (is_full(child)) full.push_back(child);
      else partial = child;
    }
    into.full.insert(into.full.end(), full.rbegin(), full.rend());
    if (nodes_[at].is == kind::any && kept.size() > 1) {
      set_children(at, std::move(kept));
      into.kept.push_back(at);
    } else {
      into.kept.insert(into.kept.end(), kept.begin(), kept.end());
      freed_.push_back(at);
    }
    at = partial;
  }
}

void order_tree::remove_nodes(nodes const& some, place& made) {
  for (node_number each : some) {
    each_node_below(each, [&](node_number here) {
      if (nodes_[here].is == kind::leaf) made.removed.push_back(nodes_[here].leaf);
      freed_.push_back(here);
      return false;
    });
  }
}

/// Collects the leaves on both sides of the added leaves, on each side up to the first leaf with a size.
void order_tree::find_beside(node_number in_place, std::span<offset_type const> sizes, place& made) {
  node const& parent = nodes_[nodes_[in_place].parent];
  if (parent.is != kind::row) return;
  bool found = false;
  const auto collect_sized = [&](node_number sibling) {
    if (found) return;
    each_node_below(sibling, [&](node_number here) {
      if (nodes_[here].is != kind::leaf) return false;
      made.beside.push_back(nodes_[here].leaf);
      return found = sizes[nodes_[here].leaf] != 0;
    });
  };
  const auto at = std::ranges::find(parent.children, in_place);
  for (node_number sibling : std::ranges::subrange(parent.children.begin(), at) | std::views::reverse)
    collect_sized(sibling);
  made.before_n = made.beside.size();
  for (node_number sibling : std::ranges::subrange(at + 1, parent.children.end())) collect_sized(sibling);
}

// ---- leaves that can be gathered --------------------------------------------------------------------------

order_tree::gathered order_tree::gather(node_number at, std::span<std::uint32_t const> numbers,
                                        std::uint32_t number) {
  node const& here = nodes_[at];
  if (here.is == kind::leaf) {
    const std::uint32_t its = numbers[here.leaf];
    return its == number ? gathered::all : its < number ? gathered::ignored : gathered::none;
  }
  const std::size_t first = gathered_.size();
  for (node_number child : here.children) {
    const gathered each = gather(child, numbers, number);
    if (each == gathered::apart) return each;
    if (each != gathered::ignored) gathered_.push_back(each);
  }
  const auto children = std::span{gathered_}.subspan(first);
  gathered made = gathered::ignored;
  if (!children.empty()) made = here.is == kind::any ? in_any(children) : in_row(children);
  gathered_.resize(first);
  return made;
}

order_tree::gathered order_tree::in_any(std::span<gathered const> children) {
  using enum gathered;
  const auto n = [&](gathered which) { return std::ranges::count(children, which); };
  const auto inside_n = n(inside), end_n = n(at_an_end), all_n = n(all), none_n = n(none);
  if (end_n > 2 || inside_n > 1 || (inside_n == 1 && all_n + end_n != 0)) return apart;
  if (inside_n == 1 || end_n == 2) return inside;
  if (end_n == 1 || (all_n != 0 && none_n != 0)) return at_an_end;
  return all_n != 0 ? all : none;
}

order_tree::gathered order_tree::in_row(std::span<gathered const> children) {
  using enum gathered;
  const auto is_some = [](gathered each) { return each != none; };
  const auto first = std::ranges::find_if(children, is_some);
  if (first == children.end()) return none;
  const auto last = std::prev(std::ranges::find_if(children | std::views::reverse, is_some).base());
  const bool is_one = first == last;
  if (is_one && (children.size() == 1 || *first == inside)) return *first;
  const auto is_all = [](gathered each) { return each == all; };
  if (!is_one && (*first == inside || *last == inside || !std::all_of(first + 1, last, is_all))) return apart;
  const bool from_begin = first == children.begin() && (is_one || *first == all);
  const bool to_end = std::next(last) == children.end() && (is_one || *last == all);
  if (from_begin && to_end) return all;
  return from_begin || to_end ? at_an_end : inside;
}

}  // namespace tidemark::planner::detail
