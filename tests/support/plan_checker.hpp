// SPDX-License-Identifier: Apache-2.0
// Checks a plan without knowing how it was made. Sweeps over time once with the occupied bytes, in O(n log
// n).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <tidemark/plan/make_plan.hpp>

namespace tidemark::test {

namespace plan_checker_detail {

template <class Block>
std::string text_of(std::size_t number, Block const& block, std::size_t offset) {
  std::string text = "block " + std::to_string(number) + " (" + std::to_string(block.size) + " bytes at " +
                     std::to_string(offset);
  if constexpr (requires { block.lower; })
    text += ", live in [" + std::to_string(block.lower) + ", " + std::to_string(block.upper) + ")";
  return text + ")";
}

/// Checks each block by itself, and the height.
template <class Plan, class Block>
std::string fault_of_each(Plan const& made, std::span<Block const> blocks, std::size_t alignment) {
  if (made.offsets.size() != blocks.size()) {
    return std::to_string(made.offsets.size()) + " offsets for " + std::to_string(blocks.size()) + " blocks";
  }
  std::size_t end = 0, fixed_end = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    Block const& block = blocks[i];
    const std::size_t offset = made.offsets[i];
    const std::size_t least = std::max(alignment, block.alignment);  // both are powers of two
    if (block.offset && offset != *block.offset) {
      return text_of(i, block, offset) + " is to be at " + std::to_string(*block.offset);
    }
    if (offset % least != 0) return text_of(i, block, offset) + " is not aligned to " + std::to_string(least);
    if (offset + block.size < offset) return text_of(i, block, offset) + " ends above all bytes there are";
    end = std::max(end, offset + block.size);
    if (block.offset) fixed_end = std::max(fixed_end, offset + block.size);
  }
  const std::size_t height = (end + alignment - 1) / alignment * alignment;
  if (made.height != height) {
    return "the height is " + std::to_string(made.height) + ", and the highest end " + std::to_string(end);
  }
  if (made.lower_bound < fixed_end) {
    return "the lower bound is " + std::to_string(made.lower_bound) + ", and a fixed block ends at " +
           std::to_string(fixed_end);
  }
  if (made.lower_bound % alignment != 0) {
    return "the lower bound, " + std::to_string(made.lower_bound) + ", is not rounded up to " +
           std::to_string(alignment);
  }
  if (made.height < made.lower_bound) {
    return "the height is " + std::to_string(made.height) + ", below the lower bound, " +
           std::to_string(made.lower_bound);
  }
  if constexpr (requires { made.proven_bound; }) {
    if (made.proven_bound < made.lower_bound || made.proven_bound > made.height) {
      return "the proven bound is " + std::to_string(made.proven_bound) +
             ", not between the lower bound and the height";
    }
    if (made.optimal != (made.height == made.proven_bound)) {
      return made.optimal ? "the height is above the proven bound, and the plan is called optimal"
                          : "the height is the proven bound, and the plan is not called optimal";
    }
  }
  return {};
}

}  // namespace plan_checker_detail

/// Returns the fault of a plan in words that name its blocks by number, or an empty text. A block of no bytes
/// or no time does not conflict.
/// @param made a memory_plan, or a result of the planner, whose proven bound is checked too
/// @param alignment requested alignment
template <class Plan>
[[nodiscard]] std::string plan_fault(Plan const& made, std::span<lifetime const> blocks,
                                     std::size_t alignment) {
  using namespace plan_checker_detail;
  if (std::string fault = fault_of_each(made, blocks, alignment); !fault.empty()) return fault;

  std::vector<std::tuple<std::uint64_t, bool, std::size_t>> events;  // moment, whether it begins, block
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].lower >= blocks[i].upper || blocks[i].size == 0) continue;
    events.emplace_back(blocks[i].lower, true, i);
    events.emplace_back(blocks[i].upper, false, i);
  }
  std::ranges::sort(events);  // at one moment ends come first

  std::map<std::size_t, std::size_t> live;  // blocks, by offset: none overlap, so that neighbours are enough
  std::size_t bytes = 0, max_bytes = 0;
  for (auto [moment, begins, i] : events) {
    const std::size_t offset = made.offsets[i];
    if (!begins) {
      live.erase(offset);
      bytes -= blocks[i].size;
      continue;
    }
    const auto above = live.lower_bound(offset);
    const auto collides = [&](auto neighbour) {
      const std::size_t other = made.offsets[neighbour->second];
      return offset < other + blocks[neighbour->second].size && other < offset + blocks[i].size;
    };
    for (auto neighbour : {above, above == live.begin() ? live.end() : std::prev(above)}) {
      if (neighbour == live.end() || !collides(neighbour)) continue;
      const std::size_t j = neighbour->second;
      return text_of(j, blocks[j], made.offsets[j]) + " and " + text_of(i, blocks[i], offset) +
             " share bytes";
    }
    live.emplace(offset, i);
    max_bytes = std::max(max_bytes, bytes += blocks[i].size);
  }
  if (made.lower_bound < max_bytes) {
    return "the lower bound is " + std::to_string(made.lower_bound) + ", and " + std::to_string(max_bytes) +
           " bytes are live at once";
  }
  return {};
}

}  // namespace tidemark::test
