// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "By pairs", which has the rules and their reasons, and "Proofs".
// A stack of open cases. A case has the least offset of each buffer, the least room above it, and the pairs
// known to lie one below the other. The rules are applied to each changed section until nothing changes: sums
// raise offsets, pairs without room are ordered, and orders are transitive. A contradicting case is closed.
// Any other case is split at the pair with the least room.
#include "pair_search.hpp"

#include <algorithm>
#include <bit>
#include <functional>

namespace tidemark::planner::detail {
namespace {

template <class KeyOf>
[[nodiscard]] std::vector<std::pair<offset_type, std::uint32_t>> ranked_by(order const& live, KeyOf key_of) {
  std::vector<std::pair<offset_type, std::uint32_t>> ranked;
  ranked.reserve(live.size());
  for (std::uint32_t i : live) ranked.emplace_back(key_of(i), i);
  std::ranges::sort(ranked, std::greater{});
  return ranked;
}

[[nodiscard]] section_range shared_sections(buffer const& one, buffer const& other) {
  return {std::max(one.lifespan.begin, other.lifespan.begin), std::min(one.lifespan.end, other.lifespan.end)};
}

}  // namespace

void pair_search::pile::add(buffer const& one) {
  if (one.align < align_) return;
  const offset_type taken = align_up(one.size, align_);
  to_next_ += taken;
  largest_slack_ = std::max(largest_slack_, taken - one.size);
}

pair_search::pair_search(solver_context& context)
    : context_{&context},
      instance_{&context.instance()},
      alignments_{1},
      conflicts_{is_for(*instance_) ? instance_->buffers.size() : 0},
      below_alike_{conflicts_} {
  if (!is_for(*instance_)) return;
  const std::vector<ranked> shapes = shapes_of(*instance_);
  sections_.resize(instance_->section_count);
  for (std::uint32_t i = 0; i < instance_->buffers.size(); ++i) {
    for (std::uint32_t s = at(i).lifespan.begin; s < at(i).lifespan.end; ++s) sections_[s].push_back(i);
    if (std::ranges::find(alignments_, at(i).align) == alignments_.end()) alignments_.push_back(at(i).align);
    for (std::uint32_t j = 0; j < instance_->buffers.size(); ++j) {
      if (i != j && at(i).lifespan.overlaps(at(j).lifespan)) conflicts_.add(i, j);
      if (i < j && !at(i).is_fixed() && shapes[i].twin_group == shapes[j].twin_group) below_alike_.add(i, j);
    }
  }
}

outcome pair_search::probe(offset_type height, std::uint64_t max_cases, std::vector<step>* proof) {
  const auto add_to_proof = [&](step next) {
    if (proof != nullptr) proof->push_back(next);
  };
  height_ = height;
  std::vector<open_case> open;
  const auto open_with = [&](known_case known, step added) {
    known.below.add(added.first, added.second);
    open.push_back({std::move(known), added});
  };
  if (auto first = first_case()) open.push_back({std::move(*first), std::nullopt});
  else add_to_proof({});
  for (std::uint64_t cases = 0; !open.empty(); ++cases) {
    const bool is_full =
        open.size() > max_open_cases || (proof != nullptr && proof->size() > max_proof_steps);
    if (cases == max_cases || is_full) return outcome::unknown;
    auto [now, added] = std::move(open.back());
    open.pop_back();
    mark_changed_by(added);
    const bool holds = follow(now);
    if (!context_->count_node(instance_->buffers.size())) return outcome::unknown;
    if (!holds) {
      add_to_proof({});
      continue;
    }
    const std::optional<step> split = tightest(now);
    if (!split) {
      offsets_ = std::move(now.heads);
      return outcome::found;
    }
    add_to_proof(*split);
    open_with(now, {split->second, split->first});
    open_with(std::move(now), *split);  // is next
  }
  return outcome::impossible;
}

/// @return the facts known at the start, or `nullopt` if a fixed buffer ends above the height
std::optional<pair_search::known_case> pair_search::first_case() const {
  const std::size_t n = instance_->buffers.size();
  known_case first{
      .heads = std::vector<offset_type>(n), .tails = std::vector<offset_type>(n), .below = below_alike_};
  for (std::uint32_t i = 0; i < n; ++i) {
    if (!at(i).is_fixed()) continue;
    if (at(i).fixed_bytes().end > height_) return std::nullopt;
    first.heads[i] = at(i).fixed;
    first.tails[i] = height_ - at(i).fixed_bytes().end;
  }
  return first;
}

void pair_search::mark_changed(section_range sections) {
  for (std::uint32_t s = sections.begin; s < sections.end; ++s) changed_[s] = true;
}

void pair_search::mark_changed_by(std::optional<step> added) {
  changed_.assign(sections_.size(), !added);
  if (added) mark_changed(shared_sections(at(added->first), at(added->second)));
}

/// Derives all consequences of a case. Stops early at a limit, which the context then reports. @return false
/// if the case contradicts itself
bool pair_search::follow(known_case& now) {
  for (bool is_stable = false; !is_stable;) {
    is_stable = true;
    for (std::size_t s = 0; s < sections_.size(); ++s) {
      if (!changed_[s]) continue;
      is_stable = changed_[s] = false;
      const std::size_t k = sections_[s].size();
      if (!context_->count_steps(k * k * alignments_.size())) return true;
      if (!follow_in(now, sections_[s])) return false;
    }
  }
  return true;
}

bool pair_search::follow_in(known_case& now, section const& live) {
  const ranking by_head = ranked_by(live, [&](std::uint32_t i) { return now.heads[i]; });
  const ranking by_tail = ranked_by(live, [&](std::uint32_t i) { return now.tails[i]; });
  if (exceeds(now, by_head, by_tail)) return false;
  for (std::uint32_t i : live) {
    const bool is_higher = raise_head(now, i, by_head), is_lower = raise_tail(now, i, by_tail);
    if (now.heads[i] + at(i).size + now.tails[i] > height_) return false;
    if (is_higher || is_lower) mark_changed(at(i).lifespan);
  }
  return order_pairs(now, live) && follow_chains(now, live);
}

/// Returns true if some buffers do not fit between their least head and their least tail.
bool pair_search::exceeds(known_case const& now, ranking const& by_head, ranking const& by_tail) const {
  for (auto at_head = by_head.begin(); at_head != by_head.end(); ++at_head) {
    const offset_type head = at_head->first;
    if (std::next(at_head) != by_head.end() && std::next(at_head)->first == head) continue;
    for (offset_type align : alignments_) {
      pile between{align};
      for (auto const& [tail, i] : by_tail) {
        if (now.heads[i] >= head) between.add(at(i));
        if (!between.empty() && align_up(head, align) + between.to_end() + tail > height_) return true;
      }
    }
  }
  return false;
}

/// @return true if the head rose
bool pair_search::raise_head(known_case& now, std::uint32_t i, ranking const& by_head) const {
  offset_type least = 0;
  for (offset_type align : alignments_) {
    pile below{align};
    for (auto const& [head, j] : by_head) {
      if (!now.below.has(j, i)) continue;
      below.add(at(j));
      if (below.empty()) continue;
      least =
          std::max(least, align_up(head, align) + (at(i).align >= align ? below.to_next() : below.to_end()));
    }
  }
  least = align_up(least, at(i).align);
  if (least <= now.heads[i]) return false;
  now.heads[i] = least;
  return true;
}

/// @return true if the tail rose
bool pair_search::raise_tail(known_case& now, std::uint32_t i, ranking const& by_tail) const {
  offset_type above = now.tails[i] + at(i).size;  // from its offset up to the height
  for (offset_type align : alignments_) {
    const offset_type own = at(i).align >= align ? align_up(at(i).size, align) : at(i).size;
    pile on_it{align};
    for (auto const& [tail, j] : by_tail) {
      if (!now.below.has(i, j)) continue;
      on_it.add(at(j));
      if (!on_it.empty()) above = std::max(above, own + on_it.to_end() + tail);
    }
  }
  // If no offset is left, the tail contradicts the size.
  const offset_type least =
      above > height_ ? height_ : height_ - at(i).size - align_down(height_ - above, at(i).align);
  if (least <= now.tails[i]) return false;
  now.tails[i] = least;
  return true;
}

/// Returns the least height of a layout in which `lower` lies below `upper`.
offset_type pair_search::height_with(known_case const& now, std::uint32_t lower, std::uint32_t upper) const {
  return align_up(now.heads[lower] + at(lower).size, at(upper).align) + at(upper).size + now.tails[upper];
}

/// @return false if the opposite order is already known
bool pair_search::order_below(known_case& now, std::uint32_t lower, std::uint32_t upper) {
  if (now.below.has(upper, lower)) return false;
  now.below.add(lower, upper);
  mark_changed(shared_sections(at(lower), at(upper)));
  return true;
}

/// Orders each pair of which one order exceeds the height. @return false if both orders do
bool pair_search::order_pairs(known_case& now, section const& live) {
  for (std::uint32_t a : live) {
    for (std::uint32_t b : live) {
      if (a == b || now.below.has(b, a) || height_with(now, a, b) <= height_) continue;
      if (!order_below(now, b, a)) return false;
    }
  }
  return true;
}

/// Closes the relation under transitivity. @return false if a buffer would lie below itself; heads would
/// otherwise rise around the cycle, one buffer at a time
bool pair_search::follow_chains(known_case& now, section const& live) {
  for (std::uint32_t middle : live) {
    const std::span above_middle = std::as_const(now.below).row(middle);
    for (std::uint32_t lower : live) {
      if (!now.below.has(lower, middle)) continue;
      const std::span above = now.below.row(lower);
      const std::span in_conflict = std::as_const(conflicts_).row(lower);
      for (std::size_t w = 0; w < above.size(); ++w) {
        relation::word added = above_middle[w] & in_conflict[w] & ~above[w];
        for (; added != 0; added &= added - 1) {
          const auto upper =
              static_cast<std::uint32_t>(w * 64 + static_cast<std::size_t>(std::countr_zero(added)));
          if (!order_below(now, lower, upper)) return false;
        }
      }
    }
  }
  return true;
}

/// Returns the pair whose two orders leave the least room, with the roomier order first.
std::optional<pair_search::step> pair_search::tightest(known_case const& now) const {
  std::optional<step> found;
  std::pair<offset_type, offset_type> most{0, 0};
  const auto n = static_cast<std::uint32_t>(instance_->buffers.size());
  for (std::uint32_t a = 0; a < n; ++a) {
    for (std::uint32_t b = a + 1; b < n; ++b) {
      if (!conflicts_.has(a, b) || now.below.has(a, b) || now.below.has(b, a)) continue;
      const offset_type first = height_with(now, a, b), second = height_with(now, b, a);
      const std::pair both{std::min(first, second), std::max(first, second)};
      if (found && both <= most) continue;
      most = both;
      found = first <= second ? step{a, b} : step{b, a};
    }
  }
  return found;
}

}  // namespace tidemark::planner::detail
