// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Orders".
// First fit: places the buffers in a fixed order, each in the lowest gap. Reaches plans near the bound if
// each buffer outlives the one before it. Layouts built upwards from the skyline miss these plans.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "space.hpp"
#include "stages.hpp"

namespace tidemark::planner::detail {
namespace {

using enum aspect;

// Birth and duration come first: for chains of buffers that outlive each other they leave little to gain.
constexpr std::array<aspects, 5> gap_orders{{{birth}, {duration}, {area}, {size, birth}, {size, duration}}};

/// Offers the layout of this order. @return false if the search was cut off
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
  // The space takes O(n log n) memory. For more lifetimes of any length this stage takes far longer than
  // promotion.
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
