// SPDX-License-Identifier: Apache-2.0
// The blocks of a plan, checked, and the orders in which `make_plan` places them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tidemark/plan/memory_plan.hpp>

#include "sweep.hpp"

namespace tidemark::detail::planning {

inline constexpr std::size_t unplaced = (std::numeric_limits<std::size_t>::max)();

/// A block that can be in conflict with others: one that has bytes and a lifetime.
struct buffer {
  std::size_t block = 0;                  ///< its number
  std::size_t size = 0;                   ///< bytes, a multiple of the plan's alignment
  std::size_t align = 1;                  ///< not below the plan's alignment
  std::size_t fixed = unplaced;           ///< the offset it must have, if that is fixed
  range_of<std::uint32_t> lifespan = {};  ///< sections; in a graph: empty
  double duration = 0;                    ///< of its lifetime; in a graph: number of its conflicts
  std::size_t load = 0;  ///< the largest sum of sizes in one of its sections; in a graph: with its neighbors

  [[nodiscard]] bool is_fixed() const noexcept { return fixed != unplaced; }
  /// Its bytes at an offset; none if it is not placed.
  [[nodiscard]] range bytes_at(std::size_t offset) const noexcept {
    return offset == unplaced ? range{} : range{offset, offset + size};
  }
};

/// Sections are the largest sets of buffers that are live at once, in the order of time: two buffers are in conflict
/// exactly if their lifespans overlap. There are no more sections than buffers.
struct plan_problem {
  std::vector<buffer> buffers;
  std::uint32_t section_count = 0;  ///< 0 in a graph
  std::size_t lower_bound = 0;
  bool is_graph = false;  ///< true if `neighbors` say which buffers are in conflict
  /// Neighbors of buffer i in a graph: `neighbors[neighbor_begin[i] .. neighbor_begin[i + 1])`.
  std::vector<std::size_t> neighbor_begin;
  std::vector<std::uint32_t> neighbors;

  [[nodiscard]] std::span<std::uint32_t const> neighbors_of(std::size_t i) const {
    return std::span{neighbors}.subspan(neighbor_begin[i], neighbor_begin[i + 1] - neighbor_begin[i]);
  }
};

/// @throws std::invalid_argument as `make_plan` does.
[[nodiscard]] plan_problem problem_of(std::span<lifetime const> blocks, std::size_t alignment);
[[nodiscard]] plan_problem problem_of(std::span<plan_block const> blocks,
                                      std::span<plan_conflict const> conflicts, std::size_t alignment);

/// Numbers of buffers, each once.
using order = std::vector<std::uint32_t>;

/// Offsets of the fixed buffers; the others are unplaced.
[[nodiscard]] std::vector<std::size_t> fixed_offsets(plan_problem const& problem);

/// The blocks, by number, of two buffers that are in conflict and share bytes, if there are such. @param offsets of the
/// buffers
[[nodiscard]] std::optional<std::pair<std::size_t, std::size_t>> find_overlap(
    plan_problem const& problem, std::vector<std::size_t> const& offsets);

/// The lowest offset from `floor` on at which a buffer fits between ranges that are taken. @param taken by rising `begin`
[[nodiscard]] std::size_t lowest_gap(buffer const& each, std::size_t floor,
                                     std::span<range const> taken) noexcept;

/// Places the buffer next that can lie lowest on those already placed, and among equals the first of the order.
/// @return the offset of each buffer; empty if the layout got as high as `max_height`
[[nodiscard]] std::vector<std::size_t> place_lowest_first(plan_problem const& problem, order const& by,
                                                          std::size_t max_height);

}  // namespace tidemark::detail::planning
