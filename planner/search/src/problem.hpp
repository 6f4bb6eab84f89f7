// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "The problem".
// The problem that the search solves, in the numbers that its stages work with: buffers with sizes in units
// and lifespans as ranges of sections. Two buffers are in conflict if they are live in one section.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include <tidemark/planner.hpp>

namespace tidemark::planner::detail {

/// `[begin, end)` of something that is counted.
template <class Number>
struct range_of {
  Number begin = 0;
  Number end = 0;

  [[nodiscard]] bool overlaps(range_of other) const noexcept {
    return begin < other.end && other.begin < end;
  }
  friend auto operator<=>(range_of const&, range_of const&) = default;
};

/// Offsets.
using range = range_of<std::uint64_t>;

/// An offset or a size, in units of which every size and fixed offset is a multiple.
using offset_type = std::uint64_t;
inline constexpr offset_type no_offset = std::numeric_limits<offset_type>::max();

/// The smallest multiple of a power of two that is not below `value`. @pre it fits
[[nodiscard]] constexpr offset_type align_up(offset_type value, offset_type align) noexcept {
  return (value + (align - 1)) & ~(align - 1);
}

/// The largest multiple of a power of two that is not above `value`.
[[nodiscard]] constexpr offset_type align_down(offset_type value, offset_type align) noexcept {
  return value & ~(align - 1);
}

/// Numbers of buffers, each once.
using order = std::vector<std::uint32_t>;

/// Sections.
using section_range = range_of<std::uint32_t>;

/// A block that can be in conflict with others: one that has bytes and a lifetime.
///
/// Where blocks have lifetimes, the sections are the largest sets of blocks that are live at once, in the
/// order of time: two buffers are in conflict exactly if their lifespans overlap. There are no more sections
/// than buffers.
struct buffer {
  offset_type size = 0;
  offset_type align = 1;          ///< a power of two
  offset_type fixed = no_offset;  ///< where it must lie
  section_range lifespan;         ///< in a graph: its number alone
  range moments;                  ///< its lifetime; in a graph: empty
  double duration = 0;            ///< of its lifetime; in a graph: with how many it is in conflict
  double load = 0;  ///< the largest sum of sizes in one of its sections; in a graph: with its neighbors

  [[nodiscard]] bool is_fixed() const noexcept { return fixed != no_offset; }
  /// Where it must lie; empty if it is not fixed.
  [[nodiscard]] range fixed_bytes() const noexcept {
    return is_fixed() ? range{fixed, fixed + size} : range{};
  }
};

struct problem {
  using clock = std::chrono::steady_clock;

  clock::time_point begin = clock::now();  ///< of the call: the time limit counts from then
  std::size_t unit_bytes = 1;
  std::vector<buffer> buffers;
  std::vector<std::size_t> block_of;       ///< by buffer: the number of its block
  std::uint32_t section_count = 0;         ///< 0 in a graph
  std::vector<offset_type> section_loads;  ///< what is live in each
  offset_type lower_bound = 0;             ///< no plan is lower
  offset_type padded_bound = 0;            ///< the same, with the padding of what is live at one moment
  bool graph = false;                      ///< whether `neighbors` say which are in conflict
  /// Of a graph: the neighbors of buffer i are `neighbors[neighbor_begin[i] .. neighbor_begin[i + 1])`.
  std::vector<std::size_t> neighbor_begin;
  std::vector<std::uint32_t> neighbors;

  [[nodiscard]] std::span<std::uint32_t const> neighbors_of(std::size_t i) const {
    return std::span{neighbors}.subspan(neighbor_begin[i], neighbor_begin[i + 1] - neighbor_begin[i]);
  }
};

/// Whether a block is a buffer of the problem.
template <class Block>
[[nodiscard]] bool is_buffer(Block const& block) {
  if constexpr (requires { block.lower; }) {
    if (block.lower == block.upper) return false;
  }
  return block.size != 0;
}

/// Whether each buffer can lie at any multiple of the unit.
[[nodiscard]] inline bool can_lie_anywhere(problem const& instance) {
  return std::ranges::all_of(instance.buffers,
                             [](buffer const& each) { return each.align == 1 && !each.is_fixed(); });
}

/// The problem of these blocks, of which `start` is a plan.
[[nodiscard]] problem problem_of(std::span<lifetime const> blocks, memory_plan const& start,
                                 options const& options);
[[nodiscard]] problem problem_of(std::span<plan_block const> blocks, std::span<plan_conflict const> conflicts,
                                 memory_plan const& start, options const& options);

/// Numbers below `n` by their keys; equal ones by number.
template <class KeyOf, class Compare = std::less<>>
[[nodiscard]] order numbers_by(std::size_t n, KeyOf key_of, Compare compare = {}) {
  order sorted(n);
  std::iota(sorted.begin(), sorted.end(), 0U);
  std::ranges::sort(sorted, [&](std::uint32_t a, std::uint32_t b) {
    return key_of(a) == key_of(b) ? a < b : compare(key_of(a), key_of(b));
  });
  return sorted;
}

/// What buffers can be ordered by: the largest first, of births the earliest.
enum class aspect : std::uint8_t { none, load, duration, area, size, birth };

/// What an order goes by: the first, among equals the second, and so on.
using aspects = std::array<aspect, 3>;

/// All buffers by these aspects, the first one first; equal ones by their number.
[[nodiscard]] order order_by(problem const& instance, aspects const& by);

}  // namespace tidemark::planner::detail
