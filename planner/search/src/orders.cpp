// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Stages".
// The stages of make_plan that place one buffer after the other, in an order that is known at the start.
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "skyline_layout.hpp"
#include "space.hpp"
#include "stages.hpp"

namespace tidemark::planner::detail {
namespace {

/// A layout that grows by a buffer at a time. The fixed buffers lie where they must from the start.
template <class Space>
class growing_layout {
 public:
  explicit growing_layout(solver_context& context)
      : context_{&context},
        instance_{&context.instance()},
        space_{*instance_},
        offsets_(instance_->buffers.size(), 0) {}

  /// Offers the layout of that order. @return false if the search was cut off.
  bool place(order const& by, gap_choice choice) {
    restart();
    for (std::uint32_t i : by) {
      if (instance_->buffers[i].is_fixed()) continue;
      space_.read(i, readers_);
      const std::uint64_t steps = ranges_to_read(readers_);
      occupy(i, choose_gap(readers_, instance_->buffers[i], choice));
      if (!context_->count_node(steps)) return false;
      if (height_ >= context_->best().height) return true;
    }
    context_->offer(offsets_, height_);
    return true;
  }

 protected:
  void restart() {
    space_.clear();
    height_ = 0;
    for (std::uint32_t i = 0; i < instance_->buffers.size(); ++i) {
      if (!instance_->buffers[i].is_fixed()) continue;
      any_fixed_ = true;
      occupy(i, instance_->buffers[i].fixed);
    }
  }

  void occupy(std::uint32_t i, offset_type offset) {
    offsets_[i] = offset;
    space_.occupy(i, offset);
    height_ = std::max(height_, offset + instance_->buffers[i].size);
  }

  solver_context* context_;
  problem const* instance_;
  Space space_;
  std::vector<offset_type> offsets_;
  offset_type height_ = 0;
  bool any_fixed_ = false;
  std::vector<range_reader> readers_;
};

/// What `skyline_layout` does for lifetimes.
class lowest_in_graph : growing_layout<graph_space> {
 public:
  using growing_layout::growing_layout;

  /// Offers the layout in which the buffer of `by` is next that can lie lowest above the floor of what is
  /// placed, and of equals the first. @return false if the search was cut off.
  bool place(order const& by) {
    restart();
    // An offset only grows while others are placed, so that a buffer is next no earlier than it was noted.
    using candidate = std::pair<offset_type, std::uint32_t>;
    std::priority_queue<candidate, std::vector<candidate>, std::greater<>> candidates;
    for (std::uint32_t at = 0; at < by.size(); ++at) {
      if (instance_->buffers[by[at]].is_fixed()) continue;
      if (!context_->count_steps(floor_steps_)) return false;
      candidates.emplace(lowest_above_floor(by[at]), at);
    }
    while (!candidates.empty()) {
      const auto [noted, at] = candidates.top();
      const std::uint32_t i = by[at];
      const offset_type offset = lowest_above_floor(i), end = offset + instance_->buffers[i].size;
      candidates.pop();
      if (!context_->count_steps(floor_steps_)) return false;
      // It lies no lower later.
      if (end >= context_->best().height) return true;
      if (offset > noted) {
        candidates.emplace(offset, at);
        continue;
      }
      offsets_[i] = offset;
      height_ = std::max(height_, end);
      if (!context_->count_node(space_.raise(i, end))) return false;
    }
    context_->offer(offsets_, height_);
    return true;
  }

 private:
  static constexpr std::uint64_t min_floor_steps = 16;

  /// Where a buffer can lie above the floor and around the fixed ones.
  offset_type lowest_above_floor(std::uint32_t i) {
    buffer const& each = instance_->buffers[i];
    const offset_type floor = align_up(space_.floor(i), each.align);
    if (!any_fixed_) return floor;
    space_.read(i, readers_);
    floor_steps_ = min_floor_steps + ranges_to_read(readers_);
    return choose_gap(readers_, each, gap_choice::lowest, floor);
  }

  std::uint64_t floor_steps_ = min_floor_steps;  // of the last call of lowest_above_floor
};

/// Begins a stage, and calls `place` with its layout.
template <class Place>
void run_stage(solver_context& context, char const* name, Place place) {
  context.enter_stage(name);
  if (context.instance().graph) place(growing_layout<graph_space>{context});
  else place(growing_layout<section_space>{context});
}

/// Calls `place` with each order, while that is of use.
template <class Orders, class Place>
void place_in_each(solver_context& context, Orders const& orders, Place place) {
  for (auto const& by : orders) {
    if (context.done() || !place(order_by(context.instance(), by))) return;
  }
}

/// A stage that calls `place` with each order, while that is of use.
template <class Orders, class Place>
void run_stage(solver_context& context, char const* name, Orders const& orders, Place place) {
  if (context.done()) return;
  run_stage(context, name, [&](auto layout) {
    place_in_each(context, orders, [&](order const& by) { return place(layout, by); });
  });
}

using enum aspect;

// Birth and duration first: where blocks outlive each other in turn, little is left to gain after them.
constexpr std::array<aspects, 5> gap_orders{{{birth}, {duration}, {area}, {size, birth}, {size, duration}}};

constexpr std::array<aspects, 5> lowest_orders{{{load, duration, area},
                                                {load, area, duration},
                                                {duration, load, area},
                                                {area, load, duration},
                                                {size, load, duration}}};

}  // namespace

void place_in_orders(solver_context& context, gap_choice choice) {
  run_stage(context, "orders", gap_orders,
            [&](auto& layout, order const& by) { return layout.place(by, choice); });
}

bool place_in_order(solver_context& context, std::size_t k) {
  constexpr std::size_t n = gap_orders.size();
  if (k >= 2 * n) return false;
  const gap_choice choice = k < n ? gap_choice::lowest : gap_choice::smallest;
  run_stage(context, "orders", std::array<aspects, 1>{gap_orders[k % n]},
            [&](auto& layout, order const& by) { return layout.place(by, choice); });
  return k + 1 < 2 * n;
}

void place_lowest_first(solver_context& context) {
  if (context.done()) return;
  context.enter_stage("lowest");
  if (context.instance().graph) {
    lowest_in_graph layout{context};
    return place_in_each(context, lowest_orders, [&](order const& by) { return layout.place(by); });
  }
  skyline_layout layout{context};
  place_in_each(context, lowest_orders,
                [&](order const& by) { return layout.place(by, context.best().height); });
}

}  // namespace tidemark::planner::detail
