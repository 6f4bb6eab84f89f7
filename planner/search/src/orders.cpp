// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Orders".
// First fit: one buffer after the other, in an order that is known at the start, each in the lowest gap. It
// comes near the bound where buffers outlive each other in turn, which layouts that are made from below do
// not see.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "space.hpp"
#include "stages.hpp"

namespace tidemark::planner::detail {
namespace {

using enum aspect;

// Birth and duration first: where blocks outlive each other in turn, little is left to gain after them.
constexpr std::array<aspects, 5> gap_orders{{{birth}, {duration}, {area}, {size, birth}, {size, duration}}};

/// Offers the layout of that order. @return false if the search was cut off.
bool place_in_order(solver_context& context, section_space& space, order const& by) {
  std::vector<buffer> const& buffers = context.instance().buffers;
  std::vector<offset_type> offsets(buffers.size(), 0);
  std::vector<range_reader> readers;
  offset_type height = 0;
  space.clear();
  const auto occupy = [&](std::uint32_t i, offset_type offset) {
    offsets[i] = offset;
    space.occupy(i, offset);
    height = std::max(height, offset + buffers[i].size);
  };
  for (std::uint32_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].is_fixed()) occupy(i, buffers[i].fixed);
  }
  for (std::uint32_t i : by) {
    if (buffers[i].is_fixed()) continue;
    space.read(i, readers);
    const std::uint64_t steps = ranges_to_read(readers);
    occupy(i, lowest_gap(readers, buffers[i], 0));
    if (!context.count_node(steps)) return false;
    if (height >= context.best().height) return true;
  }
  context.offer(offsets);
  return true;
}

}  // namespace

void place_in_orders(solver_context& context) {
  // Its space takes O(n log n) memory, and of more lifetimes of any length far more time than promotion.
  constexpr std::size_t max_buffers = std::size_t{1} << 14U;
  problem const& instance = context.instance();
  if (context.done() || instance.graph || instance.buffers.size() > max_buffers) return;
  context.enter_stage("orders");
  section_space space{instance};
  for (aspects const& by : gap_orders) {
    if (context.done() || !place_in_order(context, space, order_by(instance, by))) return;
  }
}

}  // namespace tidemark::planner::detail
