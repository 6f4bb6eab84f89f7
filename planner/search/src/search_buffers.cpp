// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Canonical order".
// Finds identical buffers, buffers with the same sections, and the least size of each buffer's neighbors.
// Each takes a sort or a sweep over the sections.
#include "search_buffers.hpp"

#include <algorithm>
#include <array>
#include <tuple>

namespace tidemark::planner::detail {
namespace {

/// Numbers the groups of buffers with the same sections, and of identical buffers.
void find_groups(problem const& instance, std::vector<ranked>& shapes) {
  const auto sections = [&](std::uint32_t i) { return instance.buffers[i].lifespan; };
  const auto kind = [&](std::uint32_t i) {
    buffer const& each = instance.buffers[i];
    return std::tuple{sections(i), each.size, each.align, each.fixed};
  };
  const order by_kind = numbers_by(shapes.size(), kind);
  std::uint32_t twins = 0, stacks = 0;
  for (std::size_t at = 0; at < by_kind.size(); ++at) {
    if (at != 0 && kind(by_kind[at]) != kind(by_kind[at - 1])) ++twins;
    if (at != 0 && sections(by_kind[at]) != sections(by_kind[at - 1])) ++stacks;
    shapes[by_kind[at]].twin_group = twins;
    shapes[by_kind[at]].stack_group = stacks;
  }
}

void find_least_neighbors(problem const& instance, std::vector<ranked>& shapes) {
  std::vector<std::array<offset_type, 2>> least_two(instance.section_count, {no_offset, no_offset});
  for (ranked const& each : shapes) {
    for (std::uint32_t s = each.lifespan.begin; s < each.lifespan.end; ++s) {
      auto& [least, second] = least_two[s];
      second = std::min(second, std::max(least, each.size));
      least = std::min(least, each.size);
    }
  }
  for (ranked& each : shapes) {
    offset_type of_all = no_offset;
    for (std::uint32_t s = each.lifespan.begin; s < each.lifespan.end; ++s) {
      auto const [least, second] = least_two[s];
      of_all = std::min(of_all, least == each.size ? second : least);
    }
    // A buffer without neighbors is alone in its sections; the value is not used.
    each.least_neighbor = of_all == no_offset ? 0 : of_all;
  }
}

}  // namespace

std::vector<ranked> shapes_of(problem const& instance) {
  std::vector<ranked> shapes;
  shapes.reserve(instance.buffers.size());
  for (std::uint32_t i = 0; i < instance.buffers.size(); ++i) {
    buffer const& each = instance.buffers[i];
    shapes.push_back({.lifespan = each.lifespan,
                      .size = each.size,
                      .align = each.align,
                      .fixed_offset = each.is_fixed() ? each.fixed : 0,
                      .number = i,
                      .fixed = each.is_fixed(),
                      .swaps = !each.is_fixed() && each.align == 1});
  }
  find_groups(instance, shapes);
  find_least_neighbors(instance, shapes);
  return shapes;
}

std::vector<ranked> rank_shapes(std::vector<ranked> const& shapes, order const& by) {
  std::vector<ranked> made;
  made.reserve(shapes.size());
  order newest(shapes.size(), no_rank);  // by twin group
  for (std::uint32_t rank = 0; rank < by.size(); ++rank) {
    ranked& added = made.emplace_back(shapes[by[rank]]);
    std::uint32_t& twin = newest[added.twin_group];
    if (!added.fixed) added.twin = twin;
    twin = rank;
  }
  return made;
}

}  // namespace tidemark::planner::detail
