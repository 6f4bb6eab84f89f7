// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "The problem".
// Describes the problem that the stages of the search solve: buffers with sizes in units, and lifespans as
// ranges of sections. Two buffers conflict if they are live in a common section.
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

/// A half-open range `[begin, end)` of numbers.
template <class Number>
struct range_of {
  Number begin = 0;
  Number end = 0;

  [[nodiscard]] bool overlaps(range_of other) const noexcept {
    return begin < other.end && other.begin < end;
  }
  friend auto operator<=>(range_of const&, range_of const&) = default;
};

/// A range of offsets.
using range = range_of<std::uint64_t>;

/// An offset or a size in units. Every size and every fixed offset is a multiple of the unit.
using offset_type = std::uint64_t;
inline constexpr offset_type no_offset = std::numeric_limits<offset_type>::max();

/// Rounds `value` up to a multiple of `align`, a power of two. @pre the result is representable
[[nodiscard]] constexpr offset_type align_up(offset_type value, offset_type align) noexcept {
  return (value + (align - 1)) & ~(align - 1);
}

/// Rounds `value` down to a multiple of `align`, a power of two.
[[nodiscard]] constexpr offset_type align_down(offset_type value, offset_type align) noexcept {
  return value & ~(align - 1);
}

/// A sequence of buffer numbers without duplicates.
using order = std::vector<std::uint32_t>;

/// A range of sections.
using section_range = range_of<std::uint32_t>;

/// A block that can conflict with other blocks: its size and its lifetime are not empty.
///
/// If blocks have lifetimes, a section is a maximal set of blocks that are live at once. Sections are
/// numbered in the order of time. Two buffers conflict exactly if their lifespans overlap. The number of
/// sections is at most the number of buffers.
struct buffer {
  offset_type size = 0;
  offset_type align = 1;          ///< a power of two
  offset_type fixed = no_offset;  ///< required offset, or `no_offset`
  section_range lifespan;         ///< in a graph: the range that holds only the buffer's number
  range moments;                  ///< the lifetime; empty in a graph
  double duration = 0;            ///< of the lifetime; in a graph: the number of neighbors
  double load = 0;  ///< largest load of its sections; in a graph: own size plus the sizes of all neighbors

  [[nodiscard]] bool is_fixed() const noexcept { return fixed != no_offset; }
  /// The offsets that a fixed buffer takes. Empty if the buffer is not fixed.
  [[nodiscard]] range fixed_bytes() const noexcept {
    return is_fixed() ? range{fixed, fixed + size} : range{};
  }
};

struct problem {
  using clock = std::chrono::steady_clock;

  clock::time_point begin = clock::now();  ///< time of the call; the time limit counts from here
  std::size_t unit_bytes = 1;
  std::vector<buffer> buffers;
  std::vector<std::size_t> block_of;       ///< block number, by buffer
  std::uint32_t section_count = 0;         ///< 0 in a graph
  std::vector<offset_type> section_loads;  ///< sum of the live sizes, by section
  offset_type lower_bound = 0;             ///< no plan is lower
  offset_type padded_bound = 0;            ///< `lower_bound` with the padding at one moment
  bool graph = false;                      ///< true if `neighbors` holds the conflicts
  /// The neighbors of buffer i in a graph are `neighbors[neighbor_begin[i] .. neighbor_begin[i + 1])`.
  std::vector<std::size_t> neighbor_begin;
  std::vector<std::uint32_t> neighbors;

  [[nodiscard]] std::span<std::uint32_t const> neighbors_of(std::size_t i) const {
    return std::span{neighbors}.subspan(neighbor_begin[i], neighbor_begin[i + 1] - neighbor_begin[i]);
  }
};

/// Returns true if the block becomes a buffer of the problem.
template <class Block>
[[nodiscard]] bool is_buffer(Block const& block) {
  if constexpr (requires { block.lower; }) {
    if (block.lower == block.upper) return false;
  }
  return block.size != 0;
}

/// Returns true if each buffer may start at any multiple of the unit.
[[nodiscard]] inline bool can_lie_anywhere(problem const& instance) {
  return std::ranges::all_of(instance.buffers,
                             [](buffer const& each) { return each.align == 1 && !each.is_fixed(); });
}

/// Returns the problem of these blocks. @pre `start` is a valid plan of the blocks
[[nodiscard]] problem problem_of(std::span<lifetime const> blocks, memory_plan const& start,
                                 options const& options);
[[nodiscard]] problem problem_of(std::span<plan_block const> blocks, std::span<plan_conflict const> conflicts,
                                 memory_plan const& start, options const& options);

/// Returns the better plan of two orders: the block with the lowest possible offset next, where ties go to
/// the largest load, and blocks by falling size.
/// @throws std::invalid_argument as `make_plan` for each block; if two fixed blocks in conflict share bytes;
/// if a conflict names a block that does not exist
[[nodiscard]] memory_plan plan_of_conflicts(std::span<plan_block const> blocks,
                                            std::span<plan_conflict const> conflicts, std::size_t alignment);
/// @throws std::invalid_argument as `require_valid`; if a conflict names a block that does not exist
void require_valid_for_conflicts(memory_plan const& plan, std::span<plan_block const> blocks,
                                 std::span<plan_conflict const> conflicts, std::size_t alignment);

/// Returns the numbers below `n` sorted by key. Numbers with equal keys are sorted by number.
template <class KeyOf, class Compare = std::less<>>
[[nodiscard]] order numbers_by(std::size_t n, KeyOf key_of, Compare compare = {}) {
  order sorted(n);
  std::iota(sorted.begin(), sorted.end(), 0U);
  std::ranges::sort(sorted, [&](std::uint32_t a, std::uint32_t b) {
    return key_of(a) == key_of(b) ? a < b : compare(key_of(a), key_of(b));
  });
  return sorted;
}

/// Sort keys for buffers. Each key sorts the largest value first, except that `birth` sorts the earliest
/// first.
enum class aspect : std::uint8_t { none, load, duration, area, size, birth };

/// Sort keys in lexicographic order.
using aspects = std::array<aspect, 3>;

/// Returns all buffers sorted by these keys. Buffers with equal keys are sorted by number.
[[nodiscard]] order order_by(problem const& instance, aspects const& by);

}  // namespace tidemark::planner::detail
