// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Canonical order".
// Facts of each buffer that the exact searches compute from the start. The searches look for the least layout
// of a height, comparing offsets in an order: the first of buffers that are alike is the lower one, and each
// buffer lies on another.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "problem.hpp"

namespace tidemark::planner::detail {

inline constexpr std::uint32_t no_rank = std::numeric_limits<std::uint32_t>::max();

/// Whether there is a layout of a height.
enum class outcome : std::uint8_t { found, impossible, unknown };

/// A buffer, by its place in the order that a probe goes by.
struct ranked {
  section_range lifespan;
  offset_type size = 0;
  offset_type align = 1;
  offset_type fixed_offset = 0;    // 0 if it is not fixed: the lowest offset that it can have
  offset_type least_neighbor = 0;  // the least size of those in conflict with it
  std::uint32_t number = 0;        // of the buffer
  std::uint32_t twin = no_rank;    // the one before it that is just alike
  std::uint32_t twin_group = 0;    // of those that are just alike
  std::uint32_t stack_group = 0;   // of those that are live in the same sections
  bool fixed = false;
  bool swaps = false;  // whether it may change places with its neighbor in a stack
};

/// The one that was placed last in the sections that it has.
struct stack_top {
  offset_type end = no_offset;
  std::uint32_t rank = 0;
};

/// All buffers, by number, without twins. O(n log n + the sum of their sections).
[[nodiscard]] std::vector<ranked> shapes_of(problem const& instance);

/// Those in that order, each with its twin.
[[nodiscard]] std::vector<ranked> rank_shapes(std::vector<ranked> const& shapes, order const& by);

/// Names what is left and where it could lie: two sums of hashes. Two that differ have one key with a
/// probability of at most about 2^-64, as both sums are made of the same 64 bits of each buffer. `impossible`
/// rests on that.
struct state_key {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(state_key const&, state_key const&) = default;
};

/// Mixes bits so that each depends on all. Constants: D. Stafford's 13th variant of the finalizer of
/// MurmurHash3.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// Adds a buffer that is left to the key of what is left, in any order.
/// @param stacked_wrongly whether it may not be placed next where it could lie now
constexpr void add_to_key(state_key& key, std::uint32_t rank, bool stacked_wrongly, offset_type offset) {
  const std::uint64_t name = std::uint64_t{rank} << 1U | std::uint64_t{stacked_wrongly};
  const std::uint64_t bits = mixed(mixed(name + 1) + offset);
  key.low += bits;
  key.high += mixed(bits ^ 0x9e3779b97f4a7c15U);
}

}  // namespace tidemark::planner::detail
