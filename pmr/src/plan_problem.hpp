// SPDX-License-Identifier: Apache-2.0
// What make_plan is asked, checked and put into the numbers that its stages work with.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <tidemark/lifetime.hpp>
#include <tidemark/plan_options.hpp>

namespace tidemark::detail::planning {

/// Offsets and sizes are counted in granules, of which every size and fixed offset is a multiple.
using granules = std::uint64_t;
inline constexpr granules nowhere = std::numeric_limits<granules>::max();

/// A block that is in conflict with some other, or might be: one that has bytes and a life.
///
/// Where blocks have lifetimes, the sections are the largest sets of blocks that are live at once, in the
/// order of time: two pieces are in conflict exactly if their ranges of sections share one. There are no more
/// than pieces.
struct piece {
  granules size = 0;
  granules align = 1;               ///< a power of two
  granules fixed = nowhere;         ///< where it must lie, or `nowhere`
  std::uint32_t first_section = 0;  ///< in a graph: its number
  std::uint32_t last_section = 0;   ///< the one after its last; in a graph: the number after its own
  double span = 0;                  ///< how long it is live; in a graph: with how many it is in conflict
  granules load = 0;  ///< the largest sum in one of its sections; in a graph: of it and its neighbors
};

struct problem {
  using clock = std::chrono::steady_clock;

  clock::time_point begin = clock::now();  ///< when it was asked: the time limit is from then on
  std::size_t granule_bytes = 1;
  std::vector<piece> pieces;
  std::vector<std::size_t> block_of;  ///< the number of the block that a piece is
  std::uint32_t section_n = 0;        ///< of lifetimes; 0 in a graph
  granules lower_bound = 0;           ///< no plan is lower
  bool graph = false;                 ///< whether `neighbors` say which are in conflict
  /// Of a graph: the neighbors of piece i are `neighbors[neighbor_begin[i]]` to before `[neighbor_begin[i +
  /// 1]]`.
  std::vector<std::size_t> neighbor_begin;
  std::vector<std::uint32_t> neighbors;

  [[nodiscard]] std::span<std::uint32_t const> neighbors_of(std::size_t i) const {
    return std::span{neighbors}.subspan(neighbor_begin[i], neighbor_begin[i + 1] - neighbor_begin[i]);
  }
};

/// @throws std::invalid_argument as `make_plan` does.
[[nodiscard]] problem problem_of(std::span<lifetime const> blocks, plan_options const& options);
[[nodiscard]] problem problem_of(std::span<plan_block const> blocks, std::span<conflict const> conflicts,
                                 plan_options const& options);

}  // namespace tidemark::detail::planning
