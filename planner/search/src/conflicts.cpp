// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Conflicts".
// A start plan for blocks whose conflicts are given as pairs, and the check of a given start plan. The start
// plan is the better of two orders: the block with the lowest possible offset next, and blocks by falling
// size. For the first order, a queue holds for each block the offset at which it was possible when it was
// last tested. Offsets only grow. A block is therefore next if its offset has not changed.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "problem.hpp"

namespace tidemark::planner::detail {
namespace {

/// Returns the blocks with a moment of their own each. No two are then in conflict, and `make_plan` and
/// `require_valid` check each block alone.
std::vector<lifetime> lone_blocks(std::span<plan_block const> blocks) {
  std::vector<lifetime> alone;
  for (plan_block const& block : blocks) {
    alone.push_back({.lower = alone.size(),
                     .upper = alone.size() + 1,
                     .size = block.size,
                     .alignment = block.alignment,
                     .offset = block.offset});
  }
  return alone;
}

/// Returns the blocks in conflict with each block that has bytes.
std::vector<order> neighbors_of(std::span<plan_block const> blocks,
                                std::span<plan_conflict const> conflicts) {
  std::vector<order> neighbors(blocks.size());
  for (std::size_t k = 0; k < conflicts.size(); ++k) {
    auto const [first, second] = conflicts[k];
    if (std::max(first, second) >= blocks.size()) {
      throw std::invalid_argument{"make_plan: conflict " + std::to_string(k) + " names block " +
                                  std::to_string(std::max(first, second)) + ", and there are " +
                                  std::to_string(blocks.size()) + " blocks"};
    }
    if (first == second || blocks[first].size == 0 || blocks[second].size == 0) continue;
    neighbors[first].push_back(static_cast<std::uint32_t>(second));
    neighbors[second].push_back(static_cast<std::uint32_t>(first));
  }
  for (order& each : neighbors) {
    std::ranges::sort(each);
    each.erase(std::ranges::unique(each).begin(), each.end());
  }
  return neighbors;
}

/// @throws std::invalid_argument if two placed blocks in conflict share bytes
template <class BytesOf>
void require_apart(std::vector<order> const& neighbors, BytesOf bytes_of, char const* prefix,
                   char const* fault) {
  for (std::uint32_t i = 0; i < neighbors.size(); ++i) {
    for (std::uint32_t j : neighbors[i]) {
      if (j > i && bytes_of(i).overlaps(bytes_of(j)))
        throw std::invalid_argument{std::string{prefix} + "block " + std::to_string(i) + " and block " +
                                    std::to_string(j) + " " + fault};
    }
  }
}

/// Blocks, their conflicts and the offsets of the placed blocks.
struct conflict_layout {
  std::span<plan_block const> blocks;
  std::vector<order> neighbors;
  std::size_t alignment;
  std::vector<offset_type> offsets{};

  [[nodiscard]] offset_type size_of(std::uint32_t i) const { return align_up(blocks[i].size, alignment); }
  [[nodiscard]] range bytes_of(std::uint32_t i) const {
    return offsets[i] == no_offset ? range{} : range{offsets[i], offsets[i] + size_of(i)};
  }
  /// Removes all blocks that are not fixed.
  void clear() {
    offsets.clear();
    for (plan_block const& block : blocks) offsets.push_back(block.offset.value_or(no_offset));
  }
  /// Returns the lowest offset from `floor` on at which a block fits between its placed neighbors.
  [[nodiscard]] offset_type lowest_gap(std::uint32_t i, offset_type floor) const {
    const offset_type align = std::max(alignment, blocks[i].alignment);
    std::vector<range> around;
    for (std::uint32_t j : neighbors[i])
      if (bytes_of(j).end > floor) around.push_back(bytes_of(j));
    std::ranges::sort(around);
    offset_type offset = align_up(floor, align);
    for (range const& bytes : around) {
      if (bytes.begin >= offset + size_of(i)) break;
      if (bytes.end > offset) offset = align_up(bytes.end, align);
    }
    return offset;
  }
  /// Replaces the plan by these offsets if they are lower.
  void offer_to(memory_plan& plan) const {
    offset_type height = plan.lower_bound;
    for (std::uint32_t i = 0; i < blocks.size(); ++i) height = std::max(height, bytes_of(i).end);
    if (height >= plan.height) return;
    plan.height = height;
    for (std::size_t i = 0; i < blocks.size(); ++i)
      if (offsets[i] != no_offset) plan.offsets[i] = offsets[i];
  }
};

/// Places the block with the lowest possible offset next; ties go to the first in the order.
void place_lowest_first(conflict_layout& layout, order const& by) {
  using candidate = std::pair<offset_type, std::uint32_t>;  // an offset, and a rank in `by`
  std::priority_queue<candidate, std::vector<candidate>, std::greater<>> candidates;
  for (std::uint32_t rank = 0; rank < by.size(); ++rank) candidates.emplace(0, rank);
  while (!candidates.empty()) {
    const auto [known_offset, rank] = candidates.top();
    candidates.pop();
    const offset_type offset = layout.lowest_gap(by[rank], known_offset);
    if (offset > known_offset) candidates.emplace(offset, rank);
    else layout.offsets[by[rank]] = offset;
  }
}

}  // namespace

memory_plan plan_of_conflicts(std::span<plan_block const> blocks, std::span<plan_conflict const> conflicts,
                              std::size_t alignment) {
  memory_plan best = make_plan(lone_blocks(blocks), alignment);
  best.height = std::numeric_limits<std::size_t>::max();
  conflict_layout layout{blocks, neighbors_of(blocks, conflicts), alignment};
  layout.clear();
  require_apart(
      layout.neighbors, [&](std::uint32_t i) { return layout.bytes_of(i); },
      "make_plan: ", "are in conflict, and their fixed offsets make them share bytes");
  order by;
  std::vector<std::tuple<offset_type, std::size_t, offset_type>> loads;  // and neighbors and size
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    offset_type load = layout.size_of(i);
    for (std::uint32_t j : layout.neighbors[i]) load += layout.size_of(j);
    loads.emplace_back(load, layout.neighbors[i].size(), layout.size_of(i));
    if (!blocks[i].offset && blocks[i].size != 0) by.push_back(i);
  }
  std::ranges::sort(by, std::greater{}, [&](std::uint32_t i) { return std::pair{loads[i], ~i}; });
  place_lowest_first(layout, by);
  layout.offer_to(best);
  layout.clear();
  std::ranges::sort(by, std::greater{}, [&](std::uint32_t i) { return std::pair{layout.size_of(i), ~i}; });
  for (std::uint32_t i : by) layout.offsets[i] = layout.lowest_gap(i, 0);
  layout.offer_to(best);
  return best;
}

void require_valid_for_conflicts(memory_plan const& plan, std::span<plan_block const> blocks,
                                 std::span<plan_conflict const> conflicts, std::size_t alignment) {
  const std::vector<order> neighbors = neighbors_of(blocks, conflicts);
  require_valid(plan, lone_blocks(blocks), alignment);
  const auto bytes_of = [&](std::uint32_t i) {
    return range{plan.offsets[i], plan.offsets[i] + align_up(blocks[i].size, alignment)};
  };
  require_apart(neighbors, bytes_of, "require_valid: ", "are in conflict and share bytes");
}

}  // namespace tidemark::planner::detail
