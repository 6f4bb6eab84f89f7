// SPDX-License-Identifier: Apache-2.0
#include <tidemark/plan.hpp>

#include <algorithm>

#include <tidemark/detail/align.hpp>

#include "plan_orders.hpp"
#include "plan_problem.hpp"
#include "plan_rounds.hpp"
#include "plan_run.hpp"

namespace tidemark {
namespace {

namespace planning = detail::planning;

bool is_no_piece(lifetime const& block) { return block.size == 0 || block.lower == block.upper; }
bool is_no_piece(plan_block const& block) { return block.size == 0; }

/// Blocks that are in conflict with none were not placed: they lie where they are fixed, or at 0. The memory
/// has to hold them all the same.
template <class Block>
void place_the_others(plan& made, std::span<Block const> blocks, std::size_t alignment) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (!is_no_piece(blocks[i])) continue;
    made.offsets[i] = blocks[i].offset.value_or(0);
    made.lower_bound =
        std::max(made.lower_bound, detail::align_up(made.offsets[i] + blocks[i].size, alignment));
  }
  made.height = std::max(made.height, made.lower_bound);
  made.optimal = made.optimal || made.height == made.lower_bound;
}

template <class Block>
plan plan_of(planning::problem const& asked, std::span<Block const> blocks, plan_options const& options) {
  planning::search_run run{asked, options};
  planning::place_by_size(run);
  // What can lie lowest first mostly comes to less than any of the other orders. Where there are many blocks,
  // it may take so much longer than they that nothing else has its turn.
  constexpr std::size_t lowest_first_max = 4096;
  const bool lowest_first = asked.pieces.size() <= lowest_first_max;
  if (lowest_first) planning::place_lowest_first(run);
  planning::place_in_orders(run, planning::gap_choice::lowest);
  if (!lowest_first) planning::place_lowest_first(run);
  planning::place_in_orders(run, planning::gap_choice::smallest);
  if (!run.over()) planning::climb_and_search(run, options.exact);
  plan made = run.finish(blocks.size());
  place_the_others(made, blocks, options.alignment);
  return made;
}

}  // namespace

plan make_plan(std::span<lifetime const> blocks, plan_options const& options) {
  return plan_of(planning::problem_of(blocks, options), blocks, options);
}

plan make_plan(std::span<plan_block const> blocks, std::span<conflict const> conflicts,
               plan_options const& options) {
  return plan_of(planning::problem_of(blocks, conflicts, options), blocks, options);
}

}  // namespace tidemark
