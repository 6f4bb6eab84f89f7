// SPDX-License-Identifier: Apache-2.0
// The better of two quick orders, and the check of an existing plan.
#include <tidemark/plan/make_plan.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core/detail/align.hpp>

#include "plan_problem.hpp"

namespace tidemark {
namespace {

namespace planning = detail::planning;

// "size" takes O(n^2) steps, and one layout of "lowest" O(n log n).
constexpr std::size_t max_buffers_by_size = 4096;

/// Returns the numbers of buffers by falling keys; ties by number.
template <class KeyOf>
planning::order order_by(planning::plan_problem const& problem, KeyOf key_of) {
  planning::order sorted(problem.buffers.size());
  std::iota(sorted.begin(), sorted.end(), 0U);
  std::ranges::sort(sorted, std::greater{},
                    [&](std::uint32_t i) { return std::pair{key_of(problem.buffers[i]), ~i}; });
  return sorted;
}

/// Places buffers in falling size, each in the lowest gap. @return the offset of each buffer
std::vector<std::size_t> place_by_size(planning::plan_problem const& problem) {
  planning::placed_buffers placed{problem};
  for (std::uint32_t i : order_by(problem, [](planning::buffer const& each) { return each.size; }))
    if (!problem.buffers[i].is_fixed()) placed.place(i, placed.lowest_gap(i, 0));
  return placed.offsets();
}

/// Replaces the plan by a layout that is lower.
void offer(memory_plan& best, planning::plan_problem const& problem,
           std::vector<std::size_t> const& offsets) {
  std::size_t height = problem.lower_bound;
  for (std::size_t i = 0; i < offsets.size(); ++i)
    height = std::max(height, offsets[i] + problem.buffers[i].size);
  if (height >= best.height) return;
  best.height = height;
  for (std::size_t i = 0; i < offsets.size(); ++i) best.offsets[problem.buffers[i].block] = offsets[i];
}

template <class Block>
memory_plan plan_of(planning::plan_problem const& problem, std::span<Block const> blocks) {
  using planning::buffer;
  memory_plan best{.offsets = {}, .height = planning::unplaced, .lower_bound = problem.lower_bound};
  best.offsets.reserve(blocks.size());
  for (Block const& block : blocks) best.offsets.push_back(block.offset.value_or(0));
  // Buffers of one size reach the bound in the order of birth: each level then has a buffer live at the peak.
  const bool are_alike = std::ranges::all_of(problem.buffers, [&](buffer const& each) {
    return each.size == problem.buffers.front().size && !each.is_fixed();
  });
  if (are_alike) {
    const planning::order by_birth =
        order_by(problem, [](buffer const& each) { return ~each.lifespan.begin; });
    offer(best, problem, place_lowest_first(problem, by_birth));
  }
  if (best.height > problem.lower_bound) {
    const planning::order by_load = order_by(problem, [](buffer const& each) {
      return std::array{static_cast<double>(each.load), each.duration, static_cast<double>(each.size)};
    });
    offer(best, problem, place_lowest_first(problem, by_load));
  }
  if (best.height > problem.lower_bound && problem.buffers.size() <= max_buffers_by_size)
    offer(best, problem, place_by_size(problem));
  return best;
}

[[noreturn]] void refuse(std::string const& reason) {
  throw std::invalid_argument("require_valid: " + reason);
}

template <class Block>
void check_plan(memory_plan const& plan, planning::plan_problem const& problem, std::span<Block const> blocks,
                std::size_t alignment) {
  if (plan.offsets.size() != blocks.size()) {
    refuse("the plan has " + std::to_string(plan.offsets.size()) + " offsets for " +
           std::to_string(blocks.size()) + " blocks");
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::size_t offset = plan.offsets[i];
    char const* fault = nullptr;
    if (offset % std::max(alignment, blocks[i].alignment) != 0) fault = "not at a multiple of its alignment";
    else if (offset != blocks[i].offset.value_or(offset)) fault = "not where it is fixed";
    else if (offset > plan.height || detail::align_up(blocks[i].size, alignment) > plan.height - offset)
      fault = "not below the height";
    if (fault != nullptr) refuse("block " + std::to_string(i) + " is " + fault);
  }
  std::vector<std::size_t> offsets;
  for (planning::buffer const& each : problem.buffers) offsets.push_back(plan.offsets[each.block]);
  require_apart(problem, offsets, "require_valid: ", "are in conflict and share bytes");
}

}  // namespace

memory_plan make_plan(std::span<lifetime const> blocks, std::size_t alignment) {
  return plan_of(planning::problem_of(blocks, alignment), blocks);
}

memory_plan make_plan(std::span<plan_block const> blocks, std::span<plan_conflict const> conflicts,
                      std::size_t alignment) {
  return plan_of(planning::problem_of(blocks, conflicts, alignment), blocks);
}

void require_valid(memory_plan const& plan, std::span<lifetime const> blocks, std::size_t alignment) {
  check_plan(plan, planning::problem_of(blocks, alignment), blocks, alignment);
}

void require_valid(memory_plan const& plan, std::span<plan_block const> blocks,
                   std::span<plan_conflict const> conflicts, std::size_t alignment) {
  check_plan(plan, planning::problem_of(blocks, conflicts, alignment), blocks, alignment);
}

}  // namespace tidemark
