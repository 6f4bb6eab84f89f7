// SPDX-License-Identifier: Apache-2.0
// The order "the next buffer is the buffer with the lowest possible offset".
//
// The skyline is the top of the placed buffers, by section. Plateaus are its longest ranges of
// one level. A buffer can have the lowest offset if its sections are all in the lowest plateau. Without such
// a buffer, the plateau is raised to its lower neighbor, because no buffer can be placed on it. The search
// for the first buffer of the order within a plateau descends a k-d tree of the buffers' lifespans. It takes
// O(sqrt n) at worst, usually O(log n). A buffer blocked by a fixed buffer waits until the lowest plateau
// reaches its offset.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <queue>
#include <utility>
#include <vector>

#include "plan_problem.hpp"

namespace tidemark::detail::planning {
namespace {

using section_range = range_of<std::uint32_t>;
using candidate = std::pair<std::size_t, std::uint32_t>;  // an offset, and the buffer or section at it
using lowest_first = std::priority_queue<candidate, std::vector<candidate>, std::greater<>>;

constexpr std::uint32_t no_rank = std::numeric_limits<std::uint32_t>::max();

/// The buffers that can be next, by their place in an order.
class unplaced_buffers {
 public:
  unplaced_buffers(plan_problem const& problem, order const& by)
      : problem_{&problem},
        by_{&by},
        leaves_(by.size()),
        at_(by.size()),
        tree_(std::bit_ceil(by.size() + 1) * 2) {
    std::iota(leaves_.begin(), leaves_.end(), 0U);
    split(0, tree_.size() / 2, true);
    for (std::uint32_t k = 0; k < leaves_.size(); ++k) at_[leaves_[k]] = k;
    for (std::uint32_t rank = 0; rank < by.size(); ++rank) {
      if (!problem.buffers[by[rank]].is_fixed()) insert(rank);
    }
  }

  void insert(std::uint32_t rank) { set_leaf(rank, leaf_of(rank)); }
  void erase(std::uint32_t rank) { set_leaf(rank, {}); }
  /// Returns the first rank within these sections whose alignment divides the level. Without such a rank,
  /// returns the first of any alignment; `no_rank` if there is no rank.
  [[nodiscard]] std::uint32_t first_within(section_range sections, std::size_t level) {
    found_ = no_rank;
    search(1, sections, level == 0 ? unplaced : level & -level);
    if (found_ == no_rank) search(1, sections, unplaced);
    return found_;
  }

 private:
  struct summary {
    std::uint32_t first_rank = no_rank;
    std::uint32_t last_begin = 0;
    std::uint32_t first_end = no_rank;
    std::size_t least_align = unplaced;
  };

  [[nodiscard]] buffer const& at_rank(std::uint32_t rank) const { return problem_->buffers[(*by_)[rank]]; }

  [[nodiscard]] summary leaf_of(std::uint32_t rank) const {
    buffer const& each = at_rank(rank);
    return {rank, each.lifespan.begin, each.lifespan.end, each.align};
  }

  void summarize(std::size_t node) {
    summary const &left = tree_[node * 2], &right = tree_[node * 2 + 1];
    tree_[node] = {std::min(left.first_rank, right.first_rank), std::max(left.last_begin, right.last_begin),
                   std::min(left.first_end, right.first_end), std::min(left.least_align, right.least_align)};
  }

  void set_leaf(std::uint32_t rank, summary const& now) {
    std::size_t node = tree_.size() / 2 + at_[rank];
    tree_[node] = now;
    while ((node /= 2) != 0) summarize(node);
  }

  /// Splits leaves into halves by their beginnings, the halves by their ends, and so on in turns.
  void split(std::size_t first, std::size_t last, bool by_begin) {
    const std::size_t end = std::min(last, leaves_.size()), middle = first + (last - first) / 2;
    if (last - first < 2 || first >= end) return;
    const auto at = [&](std::size_t leaf) { return leaves_.begin() + static_cast<std::ptrdiff_t>(leaf); };
    const auto key_of = [&](std::uint32_t rank) {
      section_range const& life = at_rank(rank).lifespan;
      return std::pair{by_begin ? life.begin : life.end, rank};
    };
    if (middle < end) std::ranges::nth_element(at(first), at(middle), at(end), {}, key_of);
    split(first, middle, !by_begin);
    split(middle, last, !by_begin);
  }

  void search(std::size_t node, section_range within, std::size_t max_align) {
    summary const& here = tree_[node];
    if (here.first_rank >= found_ || here.first_end > within.end || here.last_begin < within.begin ||
        here.least_align > max_align)
      return;
    if (node >= tree_.size() / 2) {
      found_ = here.first_rank;
      return;
    }
    const std::size_t earlier =
        tree_[node * 2].first_rank < tree_[node * 2 + 1].first_rank ? node * 2 : node * 2 + 1;
    search(earlier, within, max_align);
    search(earlier ^ 1U, within, max_align);
  }

  plan_problem const* problem_;
  order const* by_;
  order leaves_;                   // ranks
  std::vector<std::uint32_t> at_;  // by rank: index in `leaves_`
  std::vector<summary> tree_;      // node k has the children 2k and 2k + 1; a leaf has at most one buffer
  std::uint32_t found_ = no_rank;
};

/// Levels of sections as plateaus: two neighbors never have the same level.
class skyline {
 public:
  explicit skyline(std::uint32_t sections) : plateaus_{{0, 0}, {sections, unplaced}} {
    lowest_.emplace(0, 0);
  }

  /// Returns the sections of the lowest plateau.
  [[nodiscard]] section_range lowest() {
    for (;; lowest_.pop()) {
      const auto [level, begin] = lowest_.top();
      const auto at = plateaus_.find(begin);
      if (at != plateaus_.end() && at->second == level) return {begin, std::next(at)->first};
    }
  }
  [[nodiscard]] std::size_t level(section_range plateau) const { return plateaus_.at(plateau.begin); }
  /// Returns the level of the lower neighbor of a plateau; `unplaced` if it has no neighbor.
  [[nodiscard]] std::size_t level_beside(section_range plateau) const {
    const auto at = plateaus_.find(plateau.begin);
    return std::min(at == plateaus_.begin() ? unplaced : std::prev(at)->second, std::next(at)->second);
  }
  /// Raises some or all sections of a plateau.
  void set_top(section_range sections, std::size_t top) {
    const auto under = std::prev(plateaus_.upper_bound(sections.begin));
    const auto [end, is_cut] = plateaus_.try_emplace(sections.end, under->second);
    if (is_cut) lowest_.emplace(end->second, end->first);
    const auto raised = plateaus_.insert_or_assign(sections.begin, top).first;
    lowest_.emplace(top, sections.begin);
    if (end->second == top) plateaus_.erase(end);
    if (raised != plateaus_.begin() && std::prev(raised)->second == top) plateaus_.erase(raised);
  }

 private:
  std::map<std::uint32_t, std::size_t>
      plateaus_;         // levels, by first section of the plateau; a last one is after all sections
  lowest_first lowest_;  // by first section of the plateau
};

}  // namespace

std::vector<std::size_t> place_lowest_first(plan_problem const& problem, order const& by) {
  const placed_buffers fixed{problem};
  std::vector<std::size_t> offsets = fixed.offsets();
  unplaced_buffers left{problem, by};
  skyline line{problem.section_count};
  lowest_first waiting;  // by rank
  for (auto n = std::ranges::count(offsets, unplaced); n != 0;) {
    const section_range plateau = line.lowest();
    const std::size_t level = line.level(plateau);
    for (; !waiting.empty() && waiting.top().first <= level; waiting.pop()) left.insert(waiting.top().second);
    const std::uint32_t rank = left.first_within(plateau, level);
    if (rank == no_rank) {
      line.set_top(plateau,
                   std::min(line.level_beside(plateau), waiting.empty() ? unplaced : waiting.top().first));
      continue;
    }
    buffer const& next = problem.buffers[by[rank]];
    const std::size_t offset = fixed.lowest_gap(by[rank], level);
    left.erase(rank);
    if (offset - level >= next.align) {
      waiting.emplace(offset, rank);
      continue;
    }
    offsets[by[rank]] = offset;
    line.set_top(next.lifespan, offset + next.size);
    --n;
  }
  return offsets;
}

}  // namespace tidemark::detail::planning
