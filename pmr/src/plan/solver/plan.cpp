// SPDX-License-Identifier: Apache-2.0
// docs/planner.md, "Stages".
#include <tidemark/plan/solver/plan.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <tidemark/core/detail/align.hpp>

#include "problem.hpp"
#include "skyline_layout.hpp"
#include "solver_context.hpp"
#include "stages.hpp"

namespace tidemark {
namespace {

namespace planning = detail::planning;

/// Blocks without conflicts were not placed: they lie where they are fixed, or at 0. The memory holds
/// them, too.
template <class Block>
void place_the_others(memory_plan& made, std::span<Block const> blocks, std::size_t alignment) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (planning::is_buffer(blocks[i])) continue;
    made.offsets[i] = blocks[i].offset.value_or(0);
    made.lower_bound =
        std::max(made.lower_bound, detail::align_up(made.offsets[i] + blocks[i].size, alignment));
  }
  made.height = std::max(made.height, made.lower_bound);
  made.optimal = made.optimal || made.height == made.lower_bound;
}

// The climb takes O(n^2) for a layout, and "lowest" may where blocks are aligned further or fixed: of more
// than so many blocks, no other stage would begin soon.
constexpr std::size_t many_blocks = 4096;

/// Climbs and searches in turns, each time for longer, until the search is done.
void climb_and_search(planning::solver_context& context, bool exact) {
  using enum planning::aspect;
  // The orders of the MiniMalloc paper, and two by size.
  static constexpr std::array<planning::aspects, 6> by_these{{{load, duration, area},
                                                              {load, area, duration},
                                                              {load, size, duration},
                                                              {duration, load, area},
                                                              {size, duration, load},
                                                              {area, duration, load}}};
  // Of the first round; each round doubles them.
  constexpr std::uint64_t min_nodes = 512;
  // A search that is not to be exact goes no further than this.
  constexpr std::uint64_t max_inexact_nodes = std::uint64_t{1} << 14U;
  std::vector<planning::order> orders;
  for (auto const& by : by_these) orders.push_back(order_by(context.instance(), by));
  const planning::endless_stage promotion = context.instance().buffers.size() > many_blocks
                                                ? planning::promote_high_ones(context)
                                                : planning::endless_stage{};
  const planning::endless_stage climb = promotion ? promotion : planning::hill_climb(context, orders);
  const planning::endless_stage search = planning::height_search(context, by_these);
  for (std::uint64_t nodes = min_nodes + context.instance().buffers.size() * 2; !context.done(); nodes *= 2) {
    const bool searches = search && (exact || nodes <= max_inexact_nodes);
    if (!climb && !searches) return;
    if (climb) {
      context.enter_stage(promotion ? "promotion" : "climb");
      climb(nodes * 4);
    }
    if (!searches || context.done()) continue;
    context.enter_stage("search");
    search(nodes);
  }
}

template <class Block>
memory_plan plan_of(planning::problem const& instance, std::span<Block const> blocks,
                    plan_options const& options) {
  planning::solver_context context{instance, options};
  planning::place_by_size(context);
  // What can lie lowest first mostly gives a lower plan than any other order.
  const bool lowest_first =
      instance.buffers.size() <= many_blocks || planning::skyline_layout::is_for(instance);
  if (lowest_first) planning::place_lowest_first(context);
  planning::place_in_orders(context, planning::gap_choice::lowest);
  if (!lowest_first) planning::place_lowest_first(context);
  planning::place_in_orders(context, planning::gap_choice::smallest);
  if (!context.done()) climb_and_search(context, options.exact);
  memory_plan made = context.finish(blocks.size());
  place_the_others(made, blocks, options.alignment);
  return made;
}

}  // namespace

memory_plan make_plan(std::span<lifetime const> blocks, plan_options const& options) {
  return plan_of(planning::problem_of(blocks, options), blocks, options);
}

memory_plan make_plan(std::span<plan_block const> blocks, std::span<plan_conflict const> conflicts,
                      plan_options const& options) {
  return plan_of(planning::problem_of(blocks, conflicts, options), blocks, options);
}

}  // namespace tidemark
