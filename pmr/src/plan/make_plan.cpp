// SPDX-License-Identifier: Apache-2.0
// The best of three quick orders, and the check of an existing plan. The lower bound is the largest sum of
// sizes that is live at once, or the end of a fixed block.
#include <tidemark/plan/make_plan.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "plan_problem.hpp"

namespace tidemark {
namespace detail::planning {
namespace {

constexpr std::size_t max_bytes = std::size_t{1} << 62;

[[noreturn]] void refuse(std::string const& reason) { throw std::invalid_argument("make_plan: " + reason); }

std::string called(std::size_t block) { return "block " + std::to_string(block); }

/// Checks a block, and adds a buffer if the block has bytes and a lifetime.
/// @post each offset that an order computes fits: it is below `max_bytes` * 3
void add_block(plan_problem& problem, std::size_t number, lifetime const& block, std::size_t alignment,
               std::size_t& bytes_left) {
  if (block.upper < block.lower) {
    refuse(called(number) + " ends at " + std::to_string(block.upper) + ", before it begins at " +
           std::to_string(block.lower));
  }
  if (!std::has_single_bit(block.alignment)) {
    refuse(called(number) + " has alignment " + std::to_string(block.alignment) +
           ", which is not a power of two");
  }
  const std::size_t align = std::max(alignment, block.alignment), offset = block.offset.value_or(0);
  const auto refuse_offset = [&](std::string const& reason) {
    refuse(called(number) + " is fixed at offset " + std::to_string(offset) + reason);
  };
  if (offset % align != 0)
    refuse_offset(", which is not a multiple of its alignment " + std::to_string(align));
  if (block.offset && (offset > max_bytes || block.size > max_bytes - offset))
    refuse_offset(" and has " + std::to_string(block.size) + " bytes, which end above 2^62");
  if (block.size > bytes_left || (block.size != 0 && align > bytes_left) ||
      align_up(block.size, align) > bytes_left) {
    refuse(called(number) + " of " + std::to_string(block.size) +
           " bytes makes more than 2^62 bytes of the blocks together, each rounded up to its alignment");
  }
  bytes_left -= align_up(block.size, align);
  const bool is_buffer = block.size != 0 && block.lower != block.upper;
  // A block without bytes or a lifetime is at its fixed offset, or at 0, within the memory.
  if (block.offset || !is_buffer)
    problem.lower_bound = std::max(problem.lower_bound, align_up(offset + block.size, alignment));
  if (!is_buffer) return;
  problem.buffers.push_back({.block = number,
                             .size = align_up(block.size, alignment),
                             .align = align,
                             .fixed = block.offset.value_or(unplaced),
                             .duration = static_cast<double>(block.upper - block.lower)});
}

/// Numbers the sections, and finds the largest load of each lifespan. The largest load of all is a bound.
void find_sections(plan_problem& problem, std::span<event const> events) {
  std::vector<std::pair<std::uint32_t, std::size_t>> peaks;  // sections, each fuller than all later ones
  std::size_t live = 0;
  bool died = true;
  for (event const& e : events) {
    buffer& at = problem.buffers[e.number];
    if (e.birth) {
      if (died) ++problem.section_count;
      at.lifespan.begin = problem.section_count - 1;
      live += at.size;
    } else {
      if (!died) {  // the section has all of its buffers
        while (!peaks.empty() && peaks.back().second <= live) peaks.pop_back();
        peaks.emplace_back(problem.section_count - 1, live);
        problem.lower_bound = std::max(problem.lower_bound, live);
      }
      at.lifespan.end = problem.section_count;
      at.load = std::ranges::lower_bound(peaks, std::pair{at.lifespan.begin, std::size_t{0}})->second;
      live -= at.size;
    }
    died = !e.birth;
  }
}

void require_apart(plan_problem const& problem, std::vector<std::size_t> const& offsets, char const* prefix,
                   char const* fault) {
  const auto found =
      find_overlap(events_of(offsets.size(), [&](std::uint32_t i) { return problem.buffers[i].lifespan; }),
                   [&](std::uint32_t i) { return problem.buffers[i].bytes_at(offsets[i]); });
  if (!found) return;
  auto const [first, second] =
      std::minmax(problem.buffers[found->first].block, problem.buffers[found->second].block);
  throw std::invalid_argument{prefix + called(first) + " and " + called(second) + " " + fault};
}

plan_problem problem_of(std::span<lifetime const> blocks, std::size_t alignment) {
  if (!std::has_single_bit(alignment))
    refuse("the alignment of the plan, " + std::to_string(alignment) + ", is not a power of two");
  if (blocks.size() >= std::numeric_limits<std::uint32_t>::max() / 4)
    refuse(std::to_string(blocks.size()) + " blocks are more than it can count");
  plan_problem problem;
  std::size_t bytes_left = max_bytes;
  for (std::size_t i = 0; i < blocks.size(); ++i) add_block(problem, i, blocks[i], alignment, bytes_left);
  find_sections(problem, events_of(problem.buffers.size(), [&](std::uint32_t i) {
                  lifetime const& life = blocks[problem.buffers[i].block];
                  return range{life.lower, life.upper};
                }));
  if (std::ranges::none_of(problem.buffers, &buffer::is_fixed)) return problem;
  require_apart(problem, placed_buffers{problem}.offsets(),
                "make_plan: ", "are in conflict, and their fixed offsets make them share bytes");
  return problem;
}

// `place_in_gaps` takes O(n^2) steps, and `place_lowest_first` O(n log n), but more for few buffers.
constexpr std::size_t max_buffers_in_gaps = 4096, few_buffers = 512;

/// Places the buffers in order, each in the lowest gap. @return the offset of each buffer
std::vector<std::size_t> place_in_gaps(plan_problem const& problem, order const& by) {
  placed_buffers placed{problem};
  for (std::uint32_t i : by)
    if (!problem.buffers[i].is_fixed()) placed.place(i, placed.lowest_gap(i, 0));
  return placed.offsets();
}

/// Replaces the plan by the layout of an order if the layout is lower. Does nothing at the lower bound.
/// @param key_of key of a buffer; the order is by falling keys, and ties by number
template <class KeyOf>
void offer(memory_plan& best, plan_problem const& problem, decltype(place_in_gaps)& place, KeyOf key_of) {
  if (best.height == problem.lower_bound) return;
  order by(problem.buffers.size());
  std::iota(by.begin(), by.end(), 0U);
  std::ranges::sort(by, std::greater{},
                    [&](std::uint32_t i) { return std::pair{key_of(problem.buffers[i]), ~i}; });
  const std::vector<std::size_t> offsets = place(problem, by);
  std::size_t height = problem.lower_bound;
  for (std::size_t i = 0; i < offsets.size(); ++i)
    height = std::max(height, offsets[i] + problem.buffers[i].size);
  if (height >= best.height) return;
  best.height = height;
  for (std::size_t i = 0; i < offsets.size(); ++i) best.offsets[problem.buffers[i].block] = offsets[i];
}

}  // namespace
}  // namespace detail::planning

memory_plan make_plan(std::span<lifetime const> blocks, std::size_t alignment) {
  using namespace detail::planning;
  const plan_problem problem = problem_of(blocks, alignment);
  memory_plan best{.offsets = {}, .height = unplaced, .lower_bound = problem.lower_bound};
  best.offsets.reserve(blocks.size());
  for (lifetime const& block : blocks) best.offsets.push_back(block.offset.value_or(0));
  // Buffers of one size reach the bound in the order of birth: each level then has a buffer live at the peak.
  const bool are_alike = std::ranges::all_of(problem.buffers, [&](auto const& each) {
    return each.size == problem.buffers.front().size && !each.is_fixed();
  });
  if (are_alike)
    offer(best, problem, place_lowest_first, [](auto const& each) { return ~each.lifespan.begin; });
  // Nested lifetimes often reach the bound in this order: below a buffer are only buffers that enclose it.
  if (problem.buffers.size() <= few_buffers)
    offer(best, problem, place_in_gaps, [](auto const& each) { return each.duration; });
  offer(best, problem, place_lowest_first, [](auto const& each) {
    return std::array{static_cast<double>(each.load), each.duration, static_cast<double>(each.size)};
  });
  if (problem.buffers.size() <= max_buffers_in_gaps)
    offer(best, problem, place_in_gaps, [](auto const& each) { return each.size; });
  return best;
}

void require_valid(memory_plan const& plan, std::span<lifetime const> blocks, std::size_t alignment) {
  using namespace detail::planning;
  const plan_problem problem = problem_of(blocks, alignment);
  const auto refuse = [](std::string const& reason) {
    throw std::invalid_argument("require_valid: " + reason);
  };
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
  offsets.reserve(problem.buffers.size());
  for (auto const& each : problem.buffers) offsets.push_back(plan.offsets[each.block]);
  require_apart(problem, offsets, "require_valid: ", "are in conflict and share bytes");
}

}  // namespace tidemark
