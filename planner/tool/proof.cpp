// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md has the rules and their reasons in "By pairs", and the format in "Proofs".
#include "proof.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "pair_search.hpp"
#include "problem.hpp"
#include "solver_context.hpp"

namespace tidemark::tools {
namespace {

namespace planning = planner::detail;
using steps = std::vector<planning::pair_search::step>;

/// Replaces the plan by a lower plan of the same blocks.
void adopt_layout(planner::result& made, std::vector<planning::offset_type> const& offsets,
                  planning::problem const& instance, std::span<lifetime const> blocks,
                  std::size_t alignment) {
  for (std::size_t i = 0; i < offsets.size(); ++i)
    made.offsets[instance.block_of[i]] = offsets[i] * instance.unit_bytes;
  made.height = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    made.height =
        std::max<std::size_t>(made.height, planning::align_up(made.offsets[i] + blocks[i].size, alignment));
  }
}

std::string text_of(steps const& proof, planner::result const& made, planning::problem const& instance,
                    std::size_t alignment) {
  std::string text = "tidemark-plan proof 1\nalignment " + std::to_string(alignment) + "\nlowest " +
                     std::to_string(made.height) + '\n';
  const auto row = [&](std::uint32_t i) { return ' ' + std::to_string(instance.block_of[i]); };
  for (auto const& each : proof)
    text += each.is_contradiction() ? "contradiction\n" : "cases" + row(each.first) + row(each.second) + '\n';
  return text;
}

}  // namespace

plan_proof prove_lowest(std::span<lifetime const> blocks, planner::result& made,
                        planner::options const& options) {
  const planning::problem instance = planning::problem_of(blocks, made, options);
  planning::solver_context context{instance, planning::layout_of(instance, made), options};
  context.enter_stage("proof");
  planning::pair_search search{context};
  steps proof(1);  // at the bound: a single contradiction
  while (made.height > std::max(made.lower_bound, instance.padded_bound * instance.unit_bytes)) {
    if (!planning::pair_search::is_for(instance)) return {.log = "", .too_large = true};
    proof.clear();
    const auto answer = search.probe(made.height / instance.unit_bytes - 1,
                                     std::numeric_limits<std::uint64_t>::max(), &proof);
    if (answer == planning::outcome::unknown) {
      made.optimal = made.height == made.proven_bound;
      return {.log = "", .cases = context.nodes()};
    }
    if (answer == planning::outcome::impossible) break;
    proof.assign(1, {});
    adopt_layout(made, search.offsets(), instance, blocks, options.alignment);
  }
  made.proven_bound = made.height;
  made.optimal = true;
  return {.log = text_of(proof, made, instance, options.alignment),
          .cases = std::max<std::uint64_t>(context.nodes(), 1)};
}

}  // namespace tidemark::tools
