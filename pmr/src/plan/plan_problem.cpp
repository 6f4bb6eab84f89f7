// SPDX-License-Identifier: Apache-2.0
// Checks blocks and their conflicts, numbers the sections of time, and finds the lower bound: the largest sum of sizes
// that is live at once, the weight of a clique where conflicts are given, or the end of a fixed block.
#include "plan_problem.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tidemark/core/detail/align.hpp>

namespace tidemark::detail::planning {
namespace {

constexpr std::size_t max_bytes = std::size_t{1} << 62;

[[noreturn]] void refuse(std::string const& reason) { throw std::invalid_argument("make_plan: " + reason); }

std::string called(std::size_t block) { return "block " + std::to_string(block); }

void check_offset(std::size_t number, std::size_t offset, std::size_t size, std::size_t align) {
  const std::string fixed = called(number) + " is fixed at offset " + std::to_string(offset);
  if (offset % align != 0)
    refuse(fixed + ", which is not a multiple of its alignment " + std::to_string(align));
  if (offset > max_bytes || size > max_bytes - offset)
    refuse(fixed + " and has " + std::to_string(size) + " bytes, which end above 2^62");
}

template <class Block>
bool is_buffer(Block const& block) {
  if constexpr (std::is_same_v<Block, lifetime>) {
    if (block.lower == block.upper) return false;
  }
  return block.size != 0;
}

/// Checks one block. @return bytes that it takes at most
template <class Block>
std::size_t check_block(std::size_t number, Block const& block, std::size_t alignment,
                        std::size_t bytes_left) {
  if constexpr (std::is_same_v<Block, lifetime>) {
    if (block.upper < block.lower) {
      refuse(called(number) + " ends at " + std::to_string(block.upper) + ", before it begins at " +
             std::to_string(block.lower));
    }
  }
  if (!std::has_single_bit(block.alignment)) {
    refuse(called(number) + " has alignment " + std::to_string(block.alignment) +
           ", which is not a power of two");
  }
  const std::size_t align = std::max(alignment, block.alignment);
  if (block.offset) check_offset(number, *block.offset, block.size, align);
  if (block.size > bytes_left || (block.size != 0 && align > bytes_left) ||
      align_up(block.size, align) > bytes_left) {
    refuse(called(number) + " of " + std::to_string(block.size) +
           " bytes makes more than 2^62 bytes of the blocks together, each rounded up to its alignment");
  }
  return align_up(block.size, align);
}

/// Checks the blocks, and makes buffers of those that have bytes and a lifetime.
/// @post each offset that an order computes fits: it is below `max_bytes` * 3
template <class Block>
plan_problem problem_with(std::span<Block const> blocks, std::size_t alignment) {
  if (!std::has_single_bit(alignment))
    refuse("the alignment of the plan, " + std::to_string(alignment) + ", is not a power of two");
  if (blocks.size() >= std::numeric_limits<std::uint32_t>::max() / 4)
    refuse(std::to_string(blocks.size()) + " blocks are more than it can count");
  plan_problem problem;
  std::size_t bytes_left = max_bytes;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    Block const& block = blocks[i];
    bytes_left -= check_block(i, block, alignment, bytes_left);
    const std::size_t size = align_up(block.size, alignment), fixed = block.offset.value_or(unplaced);
    // A block without bytes or a lifetime lies where it is fixed, or at 0, within the memory.
    if (block.offset || !is_buffer(block)) {
      const std::size_t offset = block.offset.value_or(0);
      problem.lower_bound = std::max(problem.lower_bound, align_up(offset + block.size, alignment));
    }
    if (!is_buffer(block)) continue;
    problem.buffers.push_back(
        {.block = i, .size = size, .align = std::max(alignment, block.alignment), .fixed = fixed});
  }
  return problem;
}

void check_fixed(plan_problem const& problem) {
  if (const auto found = find_overlap(problem, fixed_offsets(problem))) {
    refuse(called(found->first) + " and " + called(found->second) +
           " are in conflict, and their fixed offsets make them share bytes");
  }
}

/// Numbers the sections, and finds their loads, of which the largest is a bound.
std::vector<std::size_t> find_sections(plan_problem& problem, std::span<event const> events) {
  std::vector<std::size_t> loads;
  std::size_t live = 0;
  bool died = true;
  for (event const& e : events) {
    buffer& at = problem.buffers[e.number];
    if (e.birth) {
      if (died) loads.push_back(0);
      at.lifespan.begin = static_cast<std::uint32_t>(loads.size() - 1);
      loads.back() = live += at.size;
      problem.lower_bound = std::max(problem.lower_bound, live);
    } else {
      at.lifespan.end = static_cast<std::uint32_t>(loads.size());
      live -= at.size;
    }
    died = !e.birth;
  }
  problem.section_count = static_cast<std::uint32_t>(loads.size());
  return loads;
}

/// The largest load of each lifespan, by doubling: after k rounds `row[i]` is the largest of 2^k loads from i on.
void find_buffer_loads(plan_problem& problem, std::vector<std::size_t> row) {
  const auto width = [&](std::uint32_t i) {
    return problem.buffers[i].lifespan.end - problem.buffers[i].lifespan.begin;
  };
  order by_width(problem.buffers.size());
  std::iota(by_width.begin(), by_width.end(), 0U);
  std::ranges::sort(by_width, {}, width);
  std::uint32_t length = 1;
  for (std::uint32_t i : by_width) {
    for (; length * 2 <= width(i); length *= 2) {
      for (std::size_t at = 0; at + length < row.size(); ++at) row[at] = std::max(row[at], row[at + length]);
    }
    buffer& each = problem.buffers[i];
    each.load = std::max(row[each.lifespan.begin], row[each.lifespan.end - length]);
  }
}

/// The conflicts between buffers, each in both directions, sorted and without duplicates.
void find_neighbors(plan_problem& problem, std::span<plan_conflict const> conflicts, std::size_t blocks) {
  std::vector<std::uint32_t> buffer_of(blocks, std::numeric_limits<std::uint32_t>::max());
  for (std::uint32_t i = 0; i < problem.buffers.size(); ++i) buffer_of[problem.buffers[i].block] = i;
  problem.neighbors.resize(problem.buffers.size());
  for (std::size_t k = 0; k < conflicts.size(); ++k) {
    auto const [first, second] = conflicts[k];
    if (std::max(first, second) >= blocks) {
      refuse("conflict " + std::to_string(k) + " names " + called(std::max(first, second)) +
             ", and there are " + std::to_string(blocks) + " blocks");
    }
    const std::uint32_t one = buffer_of[first], other = buffer_of[second];
    if (one == other || std::max(one, other) >= problem.buffers.size()) continue;
    problem.neighbors[one].push_back(other);
    problem.neighbors[other].push_back(one);
  }
  for (order& each : problem.neighbors) {
    std::ranges::sort(each);
    each.erase(std::ranges::unique(each).begin(), each.end());
  }
}

/// The weight of a clique: the buffer with the largest load, and its neighbors in falling size.
std::size_t clique_weight(plan_problem const& problem) {
  const auto seed = static_cast<std::size_t>(std::ranges::max_element(problem.buffers, {}, &buffer::load) -
                                             problem.buffers.begin());
  std::size_t weight = problem.buffers[seed].size, members = 0;
  order candidates = problem.neighbors[seed];
  std::ranges::sort(candidates, std::greater{}, [&](std::uint32_t i) {
    return std::tuple{problem.buffers[i].size, problem.buffers[i].load, ~i};
  });
  std::vector<std::uint32_t> common(problem.buffers.size(), 0);  // members that a buffer is in conflict with
  for (std::uint32_t i : candidates) {
    if (common[i] != members) continue;
    ++members;
    weight += problem.buffers[i].size;
    for (std::uint32_t j : problem.neighbors[i]) ++common[j];
  }
  return weight;
}

}  // namespace

plan_problem problem_of(std::span<lifetime const> blocks, std::size_t alignment) {
  plan_problem problem = problem_with(blocks, alignment);
  for (buffer& each : problem.buffers)
    each.duration = static_cast<double>(blocks[each.block].upper - blocks[each.block].lower);
  const std::vector<event> events = events_of(problem.buffers.size(), [&](std::uint32_t i) {
    lifetime const& life = blocks[problem.buffers[i].block];
    return range{life.lower, life.upper};
  });
  find_buffer_loads(problem, find_sections(problem, events));
  check_fixed(problem);
  return problem;
}

plan_problem problem_of(std::span<plan_block const> blocks, std::span<plan_conflict const> conflicts,
                        std::size_t alignment) {
  plan_problem problem = problem_with(blocks, alignment);
  problem.is_graph = true;
  find_neighbors(problem, conflicts, blocks.size());
  for (std::uint32_t i = 0; i < problem.buffers.size(); ++i) {
    buffer& each = problem.buffers[i];
    each.duration = static_cast<double>(problem.neighbors[i].size());
    each.load = each.size;
    for (std::uint32_t j : problem.neighbors[i]) each.load += problem.buffers[j].size;
  }
  check_fixed(problem);
  if (!problem.buffers.empty()) problem.lower_bound = std::max(problem.lower_bound, clique_weight(problem));
  return problem;
}

std::vector<std::size_t> fixed_offsets(plan_problem const& problem) {
  std::vector<std::size_t> offsets;
  offsets.reserve(problem.buffers.size());
  for (buffer const& each : problem.buffers) offsets.push_back(each.fixed);
  return offsets;
}

std::optional<std::pair<std::size_t, std::size_t>> find_overlap(plan_problem const& problem,
                                                                std::vector<std::size_t> const& offsets) {
  const auto bytes_of = [&](std::uint32_t i) { return problem.buffers[i].bytes_at(offsets[i]); };
  const auto blocks_of = [&](std::uint32_t i, std::uint32_t j) {
    return std::optional{
        std::pair{problem.buffers[(std::min)(i, j)].block, problem.buffers[(std::max)(i, j)].block}};
  };
  if (!problem.is_graph) {
    const auto found = find_overlap(
        events_of(offsets.size(), [&](std::uint32_t i) { return problem.buffers[i].lifespan; }), bytes_of);
    return found ? blocks_of(found->first, found->second) : std::nullopt;
  }
  for (std::uint32_t i = 0; i < offsets.size(); ++i) {
    for (std::uint32_t j : problem.neighbors[i]) {
      if (j > i && bytes_of(i).overlaps(bytes_of(j))) return blocks_of(i, j);
    }
  }
  return std::nullopt;
}

std::size_t lowest_gap(buffer const& each, std::size_t floor, std::span<range const> taken) noexcept {
  std::size_t offset = align_up(floor, each.align);
  for (range const& bytes : taken) {
    if (bytes.end <= offset) continue;
    if (bytes.begin >= offset + each.size) break;
    offset = align_up(bytes.end, each.align);
  }
  return offset;
}

}  // namespace tidemark::detail::planning
