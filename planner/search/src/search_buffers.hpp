// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Canonical order".
// Precomputed facts of each buffer for the exact searches. The searches look for the lexicographically least
// layout of a height: of identical buffers the first is the lowest, and each buffer rests on another buffer.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "problem.hpp"

namespace tidemark::planner::detail {

inline constexpr std::uint32_t no_rank = std::numeric_limits<std::uint32_t>::max();

/// The answer of a search for a layout of a given height.
enum class outcome : std::uint8_t { found, impossible, unknown };

/// A buffer, indexed by its rank in the order of a probe.
struct ranked {
  section_range lifespan;
  offset_type size = 0;
  offset_type align = 1;
  offset_type fixed_offset = 0;    // lowest offset; 0 if not fixed
  offset_type least_neighbor = 0;  // least size of its neighbors
  std::uint32_t number = 0;        // buffer number
  std::uint32_t twin = no_rank;    // rank of the previous identical buffer
  std::uint32_t twin_group = 0;    // group of identical buffers
  std::uint32_t stack_group = 0;   // group of buffers with the same sections
  bool fixed = false;
  bool swaps = false;  // true if it may be exchanged with its neighbor in a stack
};

/// The buffer that was placed last in a set of sections.
struct stack_top {
  offset_type end = no_offset;
  std::uint32_t rank = 0;
};

/// Returns all buffers by number, without twins. O(n log n + sum of the lifespans in sections).
[[nodiscard]] std::vector<ranked> shapes_of(problem const& instance);

/// Returns the buffers of `shapes` in the order `by`, each with its twin.
[[nodiscard]] std::vector<ranked> rank_shapes(std::vector<ranked> const& shapes, order const& by);

/// Identifies the remaining buffers and their lowest offsets by two sums of hashes. Two different states
/// share a key with a probability of at most about 2^-64, because both sums derive from the same 64 bits of
/// each buffer. The answer `impossible` relies on this.
struct state_key {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(state_key const&, state_key const&) = default;
};

/// Mixes bits so that each output bit depends on all input bits. Constants: variant 13 of MurmurHash3's
/// finalizer by D. Stafford.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// Adds a remaining buffer to the key. The order of additions does not matter.
/// @param stacked_wrongly true if the buffer may not be placed next at its lowest offset
constexpr void add_to_key(state_key& key, std::uint32_t rank, bool stacked_wrongly, offset_type offset) {
  const std::uint64_t name = std::uint64_t{rank} << 1U | std::uint64_t{stacked_wrongly};
  const std::uint64_t bits = mixed(mixed(name + 1) + offset);
  key.low += bits;
  key.high += mixed(bits ^ 0x9e3779b97f4a7c15U);
}

}  // namespace tidemark::planner::detail
