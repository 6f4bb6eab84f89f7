// SPDX-License-Identifier: Apache-2.0
/// @file
/// `graph_layout`: the memory needs of a capture. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/core/detail/align.hpp>

namespace tidemark {

/// The layout of a capture's blocks in a `graph_arena`, returned by `rehearse` and `graph_arena::layout`. Two
/// captures with equal layouts have the same blocks at the same offsets.
struct graph_layout {
  std::size_t bytes = 0;          ///< memory that the capture needs
  std::size_t alignment = 256;    ///< alignment of this memory: the largest requested alignment
  std::uint64_t allocations = 0;  ///< blocks allocated
  /// Hash of offset and size of each block in order; FNV-1a's offset basis for no blocks.
  std::uint64_t hash = detail::fnv_basis;

  friend bool operator==(graph_layout const&, graph_layout const&) = default;
};

}  // namespace tidemark
