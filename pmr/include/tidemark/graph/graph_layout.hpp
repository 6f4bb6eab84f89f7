// SPDX-License-Identifier: Apache-2.0
/// @file
/// `graph_layout`: what a capture needs of memory. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/core/detail/align.hpp>

namespace tidemark {

/// How the blocks of a capture lie in a `graph_arena`: the result of `rehearse`, and of
/// `graph_arena::layout`. Two captures with equal layouts have the same blocks at the same offsets.
struct graph_layout {
  std::size_t bytes = 0;          ///< of memory that the capture needs
  std::size_t alignment = 256;    ///< that this memory must have: the largest that was requested
  std::uint64_t allocations = 0;  ///< blocks so far
  /// Of the offset and size of each block, in order; of no blocks, FNV-1a's offset basis.
  std::uint64_t hash = detail::fnv_basis;

  friend bool operator==(graph_layout const&, graph_layout const&) = default;
};

}  // namespace tidemark
