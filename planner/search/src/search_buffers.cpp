// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Canonical order".
// Finds which buffers are alike, which are live in the same sections, and the least size in their sections, each by a
// sort or a sweep over the sections.
#include "search_buffers.hpp"

#include <algorithm>
#include <tuple>

namespace tidemark::planner::detail {
namespace {

/// Numbers the buffers that have the same sections, and those of them that are alike.
void find_groups(problem const& instance, std::vector<ranked>& shapes) {
  const auto sections = [&](std::uint32_t i) { return instance.buffers[i].lifespan; };
  const auto kind = [&](std::uint32_t i) {
    buffer const& each = instance.buffers[i];
    return std::tuple{sections(i), each.size, each.align, each.fixed};
  };
  const order by_kind = numbers_by(shapes.size(), kind);
  std::uint32_t twins = 0;
  std::uint32_t stacks = 0;
  for (std::size_t at = 0; at < by_kind.size(); ++at) {
    if (at != 0 && kind(by_kind[at]) != kind(by_kind[at - 1])) ++twins;
    if (at != 0 && sections(by_kind[at]) != sections(by_kind[at - 1])) ++stacks;
    shapes[by_kind[at]].twin_group = twins;
    shapes[by_kind[at]].stack_group = stacks;
  }
}

/// Of those alone in their sections it is their own size, and not used.
void find_least_neighbors(problem const& instance, std::vector<ranked>& shapes) {
  std::vector<offset_type> least(instance.section_count, no_offset);
  for (ranked const& each : shapes) {
    for (std::uint32_t s = each.lifespan.begin; s < each.lifespan.end; ++s)
      least[s] = std::min(least[s], each.size);
  }
  for (ranked& each : shapes)
    each.least_neighbor =
        *std::min_element(least.begin() + each.lifespan.begin, least.begin() + each.lifespan.end);
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
