// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Along time".
#include "order_tree.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <ranges>
#include <utility>

namespace tidemark::planner::detail {

std::span<order_tree::node_number const> order_tree::children_of(node_number at) const {
  if (nodes_[at].is == kind::leaf) return {};
  return std::span{children_}.subspan(nodes_[at].begin, nodes_[at].end - nodes_[at].begin);
}

order_tree::nodes order_tree::copied_children(node_number at) const {
  const std::span children = children_of(at);
  return {children.begin(), children.end()};
}

order_tree::node_number order_tree::add_leaf(leaf_number leaf) {
  nodes_.push_back({kind::leaf, leaf, leaf + 1});
  return static_cast<node_number>(nodes_.size() - 1);
}

/// @pre at least one child: it stands for itself.
order_tree::node_number order_tree::add_node(kind is, nodes const& children) {
  if (children.size() == 1) return children.front();
  const auto begin = static_cast<std::uint32_t>(children_.size());
  children_.insert(children_.end(), children.begin(), children.end());
  nodes_.push_back({is, begin, static_cast<std::uint32_t>(children_.size())});
  return static_cast<node_number>(nodes_.size() - 1);
}

order_tree::node_number order_tree::add(std::span<leaf_number const> leaves) {
  nodes made;
  for (leaf_number leaf : leaves) made.push_back(add_leaf(leaf));
  return add_node(kind::any, made);
}

void order_tree::cut(size to) {
  nodes_.resize(to.nodes);
  children_.resize(to.children);
}

void order_tree::leaves_of(node_number tree, std::vector<leaf_number>& into) const {
  if (nodes_[tree].is == kind::leaf) into.push_back(nodes_[tree].begin);
  for (node_number child : children_of(tree)) leaves_of(child, into);
}

void order_tree::mark(std::span<leaf_number const> leaves, bool removed) {
  for (leaf_number leaf : leaves) {
    if (is_removed_.size() <= leaf) is_removed_.resize(leaf + std::size_t{1}, false);
    is_removed_[leaf] = removed;
  }
}

order_tree::count order_tree::count_below(node_number at) {
  count sum;
  if (nodes_[at].is == kind::leaf) {
    const leaf_number leaf = nodes_[at].begin;
    sum = {leaf < is_removed_.size() && is_removed_[leaf] ? 1U : 0U, 1};
  }
  for (node_number child : children_of(at)) {
    const count below = count_below(child);
    sum.removed += below.removed;
    sum.all += below.all;
  }
  return counts_[at] = sum;
}

/// @pre the removed ones were counted, and are `n`.
order_tree::node_number order_tree::lowest_around(node_number tree, std::size_t n) const {
  for (;;) {
    const std::span children = children_of(tree);
    const auto has_all =
        std::ranges::find_if(children, [&](node_number child) { return counts_[child].removed == n; });
    if (has_all == children.end()) return tree;
    tree = *has_all;
  }
}

std::optional<order_tree::node_number> order_tree::replace(node_number tree,
                                                           std::span<leaf_number const> removed,
                                                           std::span<leaf_number const> added) {
  const node_number in_place = add(added);
  mark(removed, true);
  counts_.resize(nodes_.size());
  count_below(tree);
  mark(removed, false);
  return rebuild(tree, lowest_around(tree, removed.size()), in_place);
}

/// Makes the path from a node down to `root`, below which all changes, anew.
std::optional<order_tree::node_number> order_tree::rebuild(node_number at, node_number root,
                                                           node_number in_place) {
  if (at == root) return replace_below(root, in_place);
  nodes children = copied_children(at);
  const auto changed = std::ranges::find_if(
      children, [&](node_number child) { return counts_[child].removed == counts_[at].removed; });
  const std::optional<node_number> made = rebuild(*changed, root, in_place);
  if (!made) return made;
  *changed = *made;
  return add_node(nodes_[at].is, children);
}

std::optional<order_tree::node_number> order_tree::replace_below(node_number root, node_number in_place) {
  if (counts_[root].full()) return in_place;
  return nodes_[root].is == kind::any ? replace_in_any(root, in_place) : replace_in_row(root, in_place);
}

std::optional<order_tree::node_number> order_tree::replace_in_any(node_number root, node_number in_place) {
  nodes kept, row, right;
  int partial = 0;
  for (node_number child : copied_children(root)) {
    if (counts_[child].none()) kept.push_back(child);
    if (counts_[child].none() || counts_[child].full()) continue;
    ++partial;
    if (partial > 2 || !add_kept(child, partial == 1 ? row : right)) return std::nullopt;
  }
  row.push_back(in_place);
  row.insert(row.end(), right.rbegin(), right.rend());
  kept.push_back(add_node(kind::row, row));
  return add_node(kind::any, kept);
}

std::optional<order_tree::node_number> order_tree::replace_in_row(node_number root, node_number in_place) {
  const nodes children = copied_children(root);
  const auto is_kept = [&](node_number child) { return counts_[child].none(); };
  const auto first = std::ranges::find_if_not(children, is_kept);
  const auto last = std::prev(std::ranges::find_if_not(children | std::views::reverse, is_kept).base());
  // More than one is removed from, as this is the lowest node around all that are removed.
  nodes row(children.begin(), first), right;
  for (auto between = std::next(first); between != last; ++between) {
    if (!counts_[*between].full()) return std::nullopt;
  }
  if (!add_kept(*first, row) || !add_kept(*last, right)) return std::nullopt;
  row.push_back(in_place);
  row.insert(row.end(), right.rbegin(), right.rend());
  row.insert(row.end(), std::next(last), children.end());
  return add_node(kind::row, row);
}

/// Adds what is kept of a node to a row at whose end the removed leaves are. @return whether they can be there.
bool order_tree::add_kept(node_number at, nodes& row) {
  if (counts_[at].full()) return true;
  nodes children = copied_children(at);
  if (nodes_[at].is == kind::any) {
    nodes kept, partial;
    for (node_number child : children) {
      if (counts_[child].none()) kept.push_back(child);
      else if (!counts_[child].full()) partial.push_back(child);
    }
    if (!kept.empty()) row.push_back(add_node(kind::any, kept));
    return partial.empty() || (partial.size() == 1 && add_kept(partial.front(), row));
  }
  if (counts_[children.front()].full() || counts_[children.back()].none()) std::ranges::reverse(children);
  bool all_kept = true;
  for (node_number child : children) {
    if (!counts_[child].full() && !all_kept) return false;
    if (counts_[child].none()) row.push_back(child);
    else if (!add_kept(child, row)) return false;
    all_kept = all_kept && counts_[child].none();
  }
  return true;
}

/// What is left of a node without the leaves that are removed. @pre not all are
order_tree::node_number order_tree::kept_of(node_number at) {
  if (counts_[at].none()) return at;
  nodes kept;
  for (node_number child : copied_children(at)) {
    if (!counts_[child].full()) kept.push_back(kept_of(child));
  }
  return add_node(nodes_[at].is, kept);
}

order_tree::node_number order_tree::without(node_number tree, std::span<leaf_number const> removed) {
  counts_.resize(nodes_.size());
  mark(removed, true);
  count_below(tree);
  mark(removed, false);
  return kept_of(tree);
}

bool order_tree::can_gather(node_number tree, std::span<std::uint32_t const> numbers,
                            std::uint32_t number) const {
  return gather(tree, numbers, number) != gathered::apart;
}

order_tree::gathered order_tree::gather(node_number at, std::span<std::uint32_t const> numbers,
                                        std::uint32_t number) const {
  if (nodes_[at].is == kind::any) return gather_in_any(at, numbers, number);
  if (nodes_[at].is == kind::row) return gather_in_row(at, numbers, number);
  const std::uint32_t its = numbers[nodes_[at].begin];
  if (its == number) return gathered::all;
  return its < number ? gathered::ignored : gathered::none;
}

order_tree::gathered order_tree::gather_in_any(node_number at, std::span<std::uint32_t const> numbers,
                                               std::uint32_t number) const {
  std::array<std::size_t, 6> children{};  // how many there are of each
  const auto n = [&](gathered which) { return children[static_cast<std::size_t>(which)]; };
  for (node_number child : children_of(at))
    ++children[static_cast<std::size_t>(gather(child, numbers, number))];
  using enum gathered;
  if (n(apart) != 0 || n(at_an_end) > 2 || n(inside) > 1) return apart;
  if (n(inside) == 1) return n(all) + n(at_an_end) == 0 ? inside : apart;
  if (n(at_an_end) == 2) return inside;
  if (n(at_an_end) == 1 || (n(all) != 0 && n(none) != 0)) return at_an_end;
  if (n(all) != 0) return all;
  return n(none) != 0 ? none : ignored;
}

order_tree::gathered order_tree::gather_in_row(node_number at, std::span<std::uint32_t const> numbers,
                                               std::uint32_t number) const {
  using enum gathered;
  std::size_t n = 0, first = 0, end = 0;  // children that are not ignored, and which have gathered leaves
  gathered first_is = none, last_is = none;
  for (node_number child : children_of(at)) {
    const gathered each = gather(child, numbers, number);
    if (each == apart) return apart;
    if (each == ignored) continue;
    ++n;
    if (each == none) continue;
    const bool is_first = end == 0;
    // Nothing else lies between two of them.
    if (!is_first && (end + 1 != n || (end - first > 1 && last_is != all))) return apart;
    if (is_first) first = n - 1, first_is = each;
    end = n;
    last_is = each;
  }
  if (end == 0) return n == 0 ? ignored : none;
  if (end - first == 1) {
    if (n == 1 || first_is == inside) return first_is;
    return first == 0 || end == n ? at_an_end : inside;
  }
  if (first_is == inside || last_is == inside) return apart;
  const bool from_begin = first == 0 && first_is == all, to_end = end == n && last_is == all;
  if (from_begin && to_end) return all;
  return from_begin || to_end ? at_an_end : inside;
}

void order_tree::leaves_around(node_number tree, std::span<leaf_number const> these,
                               std::vector<leaf_number>& into) {
  counts_.resize(nodes_.size());
  mark(these, true);
  count_below(tree);
  mark(these, false);
  leaves_of(lowest_around(tree, these.size()), into);
}

order_tree::mean order_tree::mean_below(node_number at, std::span<double const> positions) {
  mean sum;
  if (nodes_[at].is == kind::leaf && positions[nodes_[at].begin] != no_position)
    sum = {positions[nodes_[at].begin], 1};
  for (node_number child : children_of(at)) {
    const mean below = mean_below(child, positions);
    sum.sum += below.sum;
    sum.n += below.n;
  }
  means_[at] = sum.value();
  return sum;
}

/// The leaves below each child are beside each other, so that the means come in the order of the children.
void order_tree::leaves_by(node_number tree, std::span<double const> positions,
                           std::vector<leaf_number>& into) {
  means_.resize(nodes_.size());
  mean_below(tree, positions);
  add_by(tree, into);
}

void order_tree::add_by(node_number at, std::vector<leaf_number>& into) {
  if (nodes_[at].is == kind::leaf) {
    into.push_back(nodes_[at].begin);
    return;
  }
  nodes children = copied_children(at);
  const auto has_mean = [&](node_number child) { return means_[child] != no_position; };
  const auto falls = [&](nodes const& row) {
    const auto first = std::ranges::find_if(row, has_mean);
    const auto backwards = row | std::views::reverse;
    return first != row.end() && means_[*first] > means_[*std::ranges::find_if(backwards, has_mean)];
  };
  if (nodes_[at].is == kind::any)
    std::ranges::sort(children, {}, [&](node_number child) { return std::pair{means_[child], child}; });
  else if (falls(children)) std::ranges::reverse(children);
  for (node_number child : children) add_by(child, into);
}

}  // namespace tidemark::planner::detail
