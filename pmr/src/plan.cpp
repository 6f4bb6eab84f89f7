// SPDX-License-Identifier: Apache-2.0
#include <tidemark/plan.hpp>

#include "plan_orders.hpp"
#include "plan_problem.hpp"
#include "plan_rounds.hpp"
#include "plan_run.hpp"

namespace tidemark {
namespace {

namespace planning = detail::planning;

template <class Block>
plan plan_of(planning::problem const& asked, std::span<Block const> blocks, plan_options const& options) {
  planning::search_run run{asked, options};
  planning::place_by_size(run);
  // Before the other orders, as it mostly comes to less than any of them.
  if (!run.over()) planning::place_lowest_first(run);
  if (!run.over()) planning::place_in_orders(run);
  if (!run.over()) planning::climb_and_search(run, options.exact);
  plan made = run.finish(blocks.size());
  // Blocks that are in conflict with none are no pieces.
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].offset) made.offsets[i] = *blocks[i].offset;
  }
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
