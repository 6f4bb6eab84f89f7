// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Stages".
// Runs the stages until a plan meets the target. The last three stages have no end and take turns, each turn
// with twice as many nodes. A problem that one stage solves soon therefore waits at most as long as all
// earlier turns took. The limits cut off one sequence of steps that depends only on the blocks and the
// options.
#include <tidemark/planner.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "problem.hpp"
#include "skyline_layout.hpp"
#include "solver_context.hpp"
#include "stages.hpp"

namespace tidemark::planner {
namespace {

using namespace detail;

/// Adds the blocks without conflicts, at their fixed offset or at 0. Raises the height and the bounds to
/// their ends, and sets `optimal`.
template <class Block>
void place_the_others(result& made, std::span<Block const> blocks, std::size_t alignment) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (is_buffer(blocks[i])) continue;
    made.offsets[i] = blocks[i].offset.value_or(0);
    made.lower_bound = std::max(made.lower_bound, align_up(made.offsets[i] + blocks[i].size, alignment));
  }
  made.height = std::max(made.height, made.lower_bound);
  made.proven_bound = std::max(made.proven_bound, made.lower_bound);
  made.optimal = made.height == made.proven_bound;
}

/// Runs the search, promotion and ejection in growing turns until the search is done. Promotion or ejection
/// gets a shorter turn if its last turn gained nothing.
void alternate_stages(solver_context& context, bool exact) {
  // Nodes of the first turn; each further turn doubles them.
  constexpr std::uint64_t min_nodes = 512;
  // The longest turn of the search.
  const std::uint64_t max_search_nodes = exact ? ~std::uint64_t{0} : std::uint64_t{1} << 14U;
  const endless_stage promotion =
      skyline_layout::pays(context.instance()) ? promote_high_ones(context) : endless_stage{};
  const endless_stage ejection = eject_high_ones(context);
  const endless_stage search = height_search(context);
  // For few buffers the search usually has the answers of all stages, and soon.
  const bool search_is_first = context.instance().buffers.size() <= 2048;
  bool promotion_pays = true, ejection_pays = true;
  const auto run = [&](endless_stage const& stage, char const* name, std::uint64_t nodes) {
    if (!stage || context.done()) return false;
    const offset_type before = context.best().height;
    context.enter_stage(name);
    stage(nodes);
    return context.best().height < before;
  };
  for (std::uint64_t nodes = min_nodes + context.instance().buffers.size() * 2; !context.done(); nodes *= 2) {
    if (search_is_first && nodes <= max_search_nodes) run(search, "search", nodes);
    promotion_pays = run(promotion, "promotion", promotion_pays ? nodes * 4 : nodes);
    ejection_pays = run(ejection, "ejection", ejection_pays ? nodes * 2 : nodes / 2);
    if (!search_is_first && nodes <= max_search_nodes) run(search, "search", nodes);
  }
}

template <class Block>
result search_from(memory_plan const& start, problem const& instance, std::span<Block const> blocks,
                   options const& options) {
  solver_context context{instance, layout_of(instance, start), options};
  place_along_time(context);
  place_in_orders(context);
  if (!context.done()) alternate_stages(context, options.exact);
  result made = context.finish(blocks.size());
  place_the_others(made, blocks, options.alignment);
  return made;
}

}  // namespace

result improve(std::span<lifetime const> blocks, memory_plan const& start, options const& options) {
  require_valid(start, blocks, options.alignment);
  return search_from(start, problem_of(blocks, start, options), blocks, options);
}

result improve(std::span<plan_block const> blocks, std::span<plan_conflict const> conflicts,
               memory_plan const& start, options const& options) {
  require_valid_for_conflicts(start, blocks, conflicts, options.alignment);
  return search_from(start, problem_of(blocks, conflicts, start, options), blocks, options);
}

step_plan improve(step_plan const& plan, options const& given) {
  plan.require_valid();
  options limits = given;
  limits.alignment = plan.alignment;
  std::vector<lifetime> blocks;
  memory_plan start;
  start.height = align_up(plan.height, plan.alignment);
  for (planned_block const& block : plan.blocks) {
    blocks.push_back(block.life);
    blocks.back().size = std::max<std::size_t>(block.life.size, 1);  // each block needs an address
    if (!plan.outlives(block)) blocks.back().offset.reset();
    start.offsets.push_back(*block.life.offset);
  }
  const result made = improve(std::span<lifetime const>{blocks}, start, limits);
  step_plan improved = plan;
  if (made.height >= plan.height) return improved;
  for (std::size_t i = 0; i < blocks.size(); ++i) improved.blocks[i].life.offset = made.offsets[i];
  improved.height = made.height;
  improved.lower_bound = made.lower_bound;
  return improved;
}

result find_plan(std::span<lifetime const> blocks, options const& options) {
  const auto begin = problem::clock::now();
  const memory_plan start = make_plan(blocks, options.alignment);
  problem instance = problem_of(blocks, start, options);
  instance.begin = begin;
  return search_from(start, instance, blocks, options);
}

result find_plan(std::span<plan_block const> blocks, std::span<plan_conflict const> conflicts,
                 options const& options) {
  const auto begin = problem::clock::now();
  const memory_plan start = plan_of_conflicts(blocks, conflicts, options.alignment);
  problem instance = problem_of(blocks, conflicts, start, options);
  instance.begin = begin;
  return search_from(start, instance, blocks, options);
}

}  // namespace tidemark::planner
