// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Full steps".
#include "order_tree_in_place.hpp"

#include <algorithm>
#include <ranges>
#include <utility>

namespace tidemark::planner::detail {

// ---- nodes ------------------------------------------------------------------------------------------------

order_tree_in_place::node_number order_tree_in_place::new_node(kind is) {
  node_number made = 0;
  if (free_.empty()) {
    made = static_cast<node_number>(nodes_.size());
    nodes_.emplace_back();
  } else {
    made = free_.back();
    free_.pop_back();
    nodes_[made] = {};
  }
  nodes_[made].is = is;
  return made;
}

order_tree_in_place::node_number order_tree_in_place::new_leaves(std::span<leaf_number const> leaves) {
  const auto add = [&](leaf_number leaf) {
    const node_number made = new_node(kind::leaf);
    nodes_[made].leaf = leaf;
    if (node_of_.size() <= leaf) node_of_.resize(leaf + std::size_t{1}, no_node);
    return node_of_[leaf] = made;
  };
  if (leaves.size() == 1) return add(leaves.front());
  const node_number made = new_node(kind::any);
  for (leaf_number leaf : leaves) append(made, add(leaf));
  return made;
}

/// The other one beside it. @param before one of those; no_node at an end
order_tree_in_place::node_number order_tree_in_place::next_of(node_number at, node_number before) const {
  auto const& [one, other] = nodes_[at].beside;
  return one == before ? other : one;
}

void order_tree_in_place::relink(node_number at, node_number was, node_number is) {
  auto& [one, other] = nodes_[at].beside;
  (one == was ? one : other) = is;
}

void order_tree_in_place::append(node_number parent, node_number child) {
  node& to = nodes_[parent];
  nodes_[child].parent = parent;
  nodes_[child].beside = {to.last, no_node};
  if (to.last == no_node) to.first = child;
  else relink(to.last, no_node, child);
  to.last = child;
  ++to.child_n;
}

/// Takes a child away from its parent.
void order_tree_in_place::unlink(node_number child) {
  node& from = nodes_[nodes_[child].parent];
  const auto [one, other] = nodes_[child].beside;
  if (one != no_node) relink(one, child, other);
  if (other != no_node) relink(other, child, one);
  const node_number next = one == no_node ? other : one;
  if (from.first == child) from.first = next;
  if (from.last == child) from.last = next;
  --from.child_n;
  nodes_[child].beside = {no_node, no_node};
}

/// Puts a node in the place of another one.
void order_tree_in_place::substitute(node_number was, node_number is) {
  node const from = nodes_[was];
  nodes_[is].parent = from.parent;
  nodes_[is].beside = from.beside;
  for (node_number each : from.beside) {
    if (each != no_node) relink(each, was, is);
  }
  if (from.parent == no_node) {
    top_ = is;
    return;
  }
  node& parent = nodes_[from.parent];
  if (parent.first == was) parent.first = is;
  if (parent.last == was) parent.last = is;
}

void order_tree_in_place::restart(std::span<leaf_number const> leaves) {
  nodes_.clear();
  free_.clear();
  node_of_.clear();
  round_ = 0;
  top_ = new_leaves(leaves);
}

/// Adds the leaves below a node.
void order_tree_in_place::collect(node_number at, std::vector<leaf_number>& into, bool frees) {
  stack_.assign(1, at);
  while (!stack_.empty()) {
    const node_number here = stack_.back();
    stack_.pop_back();
    ++steps_;
    if (nodes_[here].is == kind::leaf) into.push_back(nodes_[here].leaf);
    // From the last one, as the one on top of the stack is next.
    for (node_number before = no_node, child = nodes_[here].last; child != no_node;) {
      stack_.push_back(child);
      child = next_of(child, std::exchange(before, child));
    }
    if (frees) free(here);
  }
}

std::vector<order_tree_in_place::leaf_number> order_tree_in_place::leaves() {
  std::vector<leaf_number> made;
  steps_ = 0;
  collect(top_, made, false);
  return made;
}

bool order_tree_in_place::has_consistent_children(node_number at) const {
  node const& here = nodes_[at];
  if (here.is == kind::leaf) return here.child_n == 0 && here.first == no_node && node_of_[here.leaf] == at;
  const auto has_link = [&](node_number child, node_number to) {
    auto const& [one, other] = nodes_[child].beside;
    return one == to || other == to;
  };
  node_number before = no_node, child = here.first;
  for (std::uint32_t n = 0; n < here.child_n; ++n) {
    if (child == no_node || nodes_[child].parent != at || !has_link(child, before)) return false;
    child = next_of(child, std::exchange(before, child));
  }
  return here.child_n >= 2 && child == no_node && before == here.last;
}

bool order_tree_in_place::is_consistent() const {
  std::vector<node_number> left{top_};
  while (!left.empty()) {
    const node_number at = left.back();
    left.pop_back();
    if (!has_consistent_children(at)) return false;
    for (node_number before = no_node, child = nodes_[at].first; child != no_node;) {
      left.push_back(child);
      child = next_of(child, std::exchange(before, child));
    }
  }
  return nodes_[top_].parent == no_node;
}

// ---- what is around the removed leaves --------------------------------------------------------------------

/// @return whether it was not touched before by this replacement.
bool order_tree_in_place::touch(node_number at) {
  node& here = nodes_[at];
  if (here.round == round_) return false;
  here.round = round_;
  here.waiting_n = here.removed_n = here.full_n = here.partial_n = 0;
  here.first_full = no_node;
  return true;
}

bool order_tree_in_place::is_full(node_number at) const {
  return is_touched(at) && nodes_[at].full_n == nodes_[at].child_n;
}

/// Goes up from the removed leaves, until one node is around all.
void order_tree_in_place::count_waiting(std::span<leaf_number const> removed) {
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
    ++nodes_[parent].waiting_n;
  }
  steps_ += queue_.size();
}

/// Counts what is removed below each node around them. @return the lowest node around all; it is the last in `queue_`,
/// where each comes after those below it.
order_tree_in_place::node_number order_tree_in_place::count_removed(std::span<leaf_number const> removed) {
  count_waiting(removed);
  queue_.resize(removed.size());
  for (std::size_t k = 0;; ++k) {
    const node_number at = queue_[k];
    node& here = nodes_[at];
    if (here.is == kind::leaf) here.removed_n = 1;
    if (here.removed_n == removed.size()) return at;
    node& parent = nodes_[here.parent];
    parent.removed_n += here.removed_n;
    if (is_full(at)) {
      ++parent.full_n;
      here.next_full = std::exchange(parent.first_full, at);
    } else if (parent.partial_n++ < 2) {
      parent.partial[parent.partial_n - 1] = at;
    }
    if (--parent.waiting_n == 0) queue_.push_back(here.parent);
  }
}

/// What is to be cut out of the root, if the removed leaves can lie beside each other.
std::optional<order_tree_in_place::cut> order_tree_in_place::find_cut(node_number root) const {
  for (node_number at : queue_) {
    node const& here = nodes_[at];
    if (at == root || is_full(at)) continue;
    if (here.partial_n > 1 || (here.is == kind::row && !is_row_at_end(at))) return std::nullopt;
  }
  if (is_full(root)) return cut{};
  if (nodes_[root].partial_n > 2) return std::nullopt;
  return nodes_[root].is == kind::row ? find_cut_in_row(root) : cut{};
}

bool order_tree_in_place::can_replace(std::span<leaf_number const> removed) {
  steps_ = 0;
  return find_cut(count_removed(removed)).has_value();
}

/// The end of a row at which leaves are removed.
order_tree_in_place::node_number order_tree_in_place::near_end(node_number at) const {
  node const& here = nodes_[at];
  if (here.full_n != 0) return is_full(here.first) ? here.first : here.last;
  return is_touched(here.first) ? here.first : here.last;
}

/// Whether what is removed is at one end: full children, and then the one that is partial.
bool order_tree_in_place::is_row_at_end(node_number at) const {
  node const& here = nodes_[at];
  node_number child = near_end(at), before = no_node;
  for (std::uint32_t k = 0; k < here.full_n; ++k) {
    if (!is_full(child)) return false;
    child = next_of(child, std::exchange(before, child));
  }
  return here.partial_n == 0 || child == here.partial[0];
}

/// The same for a root that is a row.
std::optional<order_tree_in_place::cut> order_tree_in_place::find_cut_in_row(node_number root) const {
  node const& here = nodes_[root];
  const node_number start = here.full_n != 0 ? here.first_full : here.partial[0];
  std::uint32_t full_n = here.full_n != 0 ? 1 : 0, partial_n = here.full_n != 0 ? 0 : 1;
  const auto go = [&](node_number next) {
    node_number at = start;
    for (bool ends = false; is_touched(next) && !ends;) {
      ends = !is_full(next);
      ++(ends ? partial_n : full_n);
      next = next_of(next, std::exchange(at, next));
    }
    return std::pair{at, next};
  };
  auto const& [one, other] = nodes_[start].beside;
  const auto [first, before] = go(one);
  const auto [last, after] = go(other);
  if (full_n != here.full_n || partial_n != here.partial_n) return std::nullopt;
  return cut{before, first, last, after};
}

// ---- replacements -----------------------------------------------------------------------------------------

std::optional<order_tree_in_place::place> order_tree_in_place::replace(std::span<leaf_number const> removed,
                                                                       std::span<leaf_number const> added) {
  steps_ = added.size();
  const node_number root = count_removed(removed);
  const std::optional<cut> out = find_cut(root);
  if (!out) return std::nullopt;
  place made;
  const node_number in_place = new_leaves(added);
  if (is_full(root)) {
    substitute(root, in_place);
    collect(root, made.removed, true);
  } else if (nodes_[root].is == kind::row) {
    replace_in_row(root, *out, in_place, made);
  } else {
    replace_in_any(root, in_place, made);
  }
  return made;
}

std::vector<std::vector<order_tree_in_place::leaf_number>> order_tree_in_place::groups_of(
    std::span<leaf_number const> some) {
  std::vector<std::vector<leaf_number>> made;
  steps_ = 0;
  const node_number root = count_removed(some);
  if (is_full(root)) return {{some.begin(), some.end()}};
  for (node_number at : queue_) {
    node const& here = nodes_[at];
    if (is_full(at) || here.full_n == 0) continue;
    if (here.is == kind::any) made.emplace_back();
    for (node_number full = here.first_full; full != no_node; full = nodes_[full].next_full) {
      if (here.is == kind::any) collect(full, made.back(), false);
      else collect_run(full, made);
    }
  }
  return made;
}

/// Adds what lies beside each other from the one end of full children of a row to the other, if this is the end with
/// the lower number.
void order_tree_in_place::collect_run(node_number end, std::vector<std::vector<leaf_number>>& into) {
  auto const& [one, other] = nodes_[end].beside;
  if (is_full(one) && is_full(other)) return;
  std::vector<node_number> run{end};
  node_number at = end, next = is_full(one) ? one : other;
  while (is_full(next)) {
    run.push_back(next);
    next = next_of(next, std::exchange(at, next));
  }
  if (run.back() < end) return;
  into.emplace_back();
  for (node_number each : run) collect(each, into.back(), false);
}

void order_tree_in_place::replace_in_any(node_number root, node_number in_place, place& made) {
  std::vector<node_number> full;
  for (node_number each = nodes_[root].first_full; each != no_node; each = nodes_[each].next_full)
    full.push_back(each);
  for (node_number each : full) unlink(each);
  const std::uint32_t partial_n = nodes_[root].partial_n;
  std::array<parts, 2> sides;
  for (std::uint32_t k = 0; k < partial_n; ++k) {
    const node_number partial = nodes_[root].partial[k];
    unlink(partial);
    take_apart(partial, sides[k]);
  }
  for (node_number each : sides[0].full | std::views::reverse) collect(each, made.removed, true);
  for (node_number each : full) collect(each, made.removed, true);
  for (node_number each : sides[1].full) collect(each, made.removed, true);
  if (partial_n == 0) {
    append(root, in_place);
    return;
  }
  const node_number row = new_node(kind::row);
  if (nodes_[root].child_n == 0) {
    substitute(root, row);
    free(root);
  } else {
    append(root, row);
  }
  std::vector<segment> chain = std::move(sides[0].kept);
  const node_number before = chain.back().last;
  chain.push_back({in_place, in_place});
  for (segment const& each : sides[1].kept | std::views::reverse)
    chain.push_back({each.last, each.first, each.n, each.parent});
  splice(row, {}, chain);
  find_beside(in_place, before, made);
}

void order_tree_in_place::replace_in_row(node_number root, cut const& out, node_number in_place,
                                         place& made) {
  std::vector<node_number> full;
  std::array<parts, 2> sides;
  for (node_number before = out.before, at = out.first; at != out.after;) {
    const node_number next = next_of(at, std::exchange(before, at));
    const bool is_last = at == out.last;
    --nodes_[root].child_n;
    nodes_[at].beside = {no_node, no_node};
    if (is_full(at)) full.push_back(at);
    else take_apart(at, sides[at == out.first ? 0 : 1]);
    if (is_last) break;
    at = next;
  }
  for (node_number each : sides[0].full | std::views::reverse) collect(each, made.removed, true);
  for (node_number each : full) collect(each, made.removed, true);
  for (node_number each : sides[1].full) collect(each, made.removed, true);
  std::vector<segment> chain = std::move(sides[0].kept);
  const node_number before = chain.empty() ? out.before : chain.back().last;
  chain.push_back({in_place, in_place});
  for (segment const& each : sides[1].kept | std::views::reverse)
    chain.push_back({each.last, each.first, each.n, each.parent});
  splice(root, out, chain);
  find_beside(in_place, before, made);
}

/// Takes a node apart at whose end leaves are removed, and so on down. @pre it has no links
void order_tree_in_place::take_apart(node_number at, parts& into) {
  while (at != no_node) {
    if (nodes_[at].is == kind::row) {
      at = take_row_apart(at, into);
      continue;
    }
    const node_number partial = nodes_[at].partial_n == 0 ? no_node : nodes_[at].partial[0];
    for (node_number each = nodes_[at].first_full; each != no_node; each = nodes_[each].next_full)
      into.full.push_back(each);
    const auto first = into.full.end() - nodes_[at].full_n;
    for (auto each = first; each != into.full.end(); ++each) unlink(*each);
    if (partial != no_node) unlink(partial);
    if (nodes_[at].child_n > 1) {
      into.kept.push_back({at, at});
    } else {
      if (const node_number only = nodes_[at].first; only != no_node) into.kept.push_back({only, only});
      free(at);
    }
    at = partial;
  }
}

/// @return the child that is to be taken apart; no_node: there is none.
order_tree_in_place::node_number order_tree_in_place::take_row_apart(node_number at, parts& into) {
  node_number child = near_end(at), partial = no_node;
  const node_number far = child == nodes_[at].first ? nodes_[at].last : nodes_[at].first;
  while (partial == no_node && is_touched(child)) {
    // It is at the end: what was there before it has no link to it any more.
    const node_number next = next_of(child, no_node);
    nodes_[child].beside = {no_node, no_node};
    if (next != no_node) relink(next, child, no_node);
    if (is_full(child)) into.full.push_back(child);
    else partial = child;
    child = next;
    --nodes_[at].child_n;
  }
  const std::uint32_t kept_n = nodes_[at].child_n;
  if (kept_n > 1) {
    nodes_[at].first = far;
    nodes_[at].last = child;
    into.kept.push_back({far, child, kept_n, at});
  } else {
    if (kept_n == 1) into.kept.push_back({far, far});
    free(at);
  }
  return partial;
}

/// Puts a chain in the place of what was cut out of a row, which may have no children left.
void order_tree_in_place::splice(node_number row, cut const& out, std::vector<segment> const& chain) {
  // The row that has the most children is to have them all.
  const std::uint32_t kept_n = nodes_[row].child_n;
  node_number largest = row;
  for (segment const& each : chain) {
    if (each.parent != no_node && each.n > std::max(kept_n, largest == row ? 0 : nodes_[largest].child_n))
      largest = each.parent;
  }
  node_number before = out.before, linked = out.first;
  std::uint32_t n = kept_n;
  for (segment const& each : chain) {
    if (each.parent != largest) adopt(largest, each);
    if (each.parent != no_node && each.parent != largest) free(each.parent);
    if (before != no_node) {
      relink(before, linked, each.first);
      relink(each.first, no_node, before);
    }
    before = each.last;
    linked = no_node;
    n += each.n;
  }
  relink(before, no_node, out.after);
  if (out.after != no_node) relink(out.after, out.last, before);
  node_number first = nodes_[row].first, last = nodes_[row].last;
  if (kept_n == 0) {
    first = chain.front().first;
    last = chain.back().last;
  } else if (out.before == no_node) {
    (first == out.first ? first : last) = chain.front().first;
  } else if (out.after == no_node) {
    (first == out.last ? first : last) = chain.back().last;
  }
  if (largest != row) {
    substitute(row, largest);
    // Those that were kept are at the ends, beyond what was put there.
    for (node_number outer : {out.before, out.after}) {
      node_number from = outer == out.before ? chain.front().first : chain.back().last;
      while (outer != no_node) {
        nodes_[outer].parent = largest;
        ++steps_;
        outer = next_of(outer, std::exchange(from, outer));
      }
    }
    free(row);
  }
  nodes_[largest].first = first;
  nodes_[largest].last = last;
  nodes_[largest].child_n = n;
}

void order_tree_in_place::adopt(node_number parent, segment const& children) {
  node_number at = children.first, before = no_node;
  for (std::uint32_t k = 0; k < children.n; ++k) {
    nodes_[at].parent = parent;
    at = next_of(at, std::exchange(before, at));
  }
  steps_ += children.n;
}

/// Finds a leaf beside what was put in place.
void order_tree_in_place::find_beside(node_number in_place, node_number before, place& made) const {
  made.is_before = before != no_node;
  node_number at = made.is_before ? before : next_of(in_place, no_node);
  while (at != no_node && nodes_[at].is != kind::leaf) at = nodes_[at].first;
  if (at != no_node) made.beside = nodes_[at].leaf;
}

}  // namespace tidemark::planner::detail
