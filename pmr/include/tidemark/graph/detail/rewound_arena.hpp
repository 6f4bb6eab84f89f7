// SPDX-License-Identifier: Apache-2.0
/// @file
/// `rewound_arena`: an arena for a body that is captured anew. Owns nothing.
#pragma once

#include <cstddef>
#include <mutex>

#include <tidemark/core/detail/fork_participant.hpp>
#include <tidemark/graph/graph_arena.hpp>

namespace tidemark::detail {

/// Rewinds an arena to the mark at which a graph's body began to allocate, so that the body gets the same
/// addresses again; and puts it back at its end, unless it is kept, because the graph goes on with what it
/// had.
///
/// That breaks the arena's rule that no address is used twice, and is right here alone: the new graph takes
/// the place of the old one, and each of its launches comes behind all those before. Blocks below the mark
/// stay.
///
/// Where the arena is known to a switch, other threads may deallocate blocks of it meanwhile: each step has
/// the switch's lock. Thread-safety: one thread at a time. Complexity: O(bytes above the mark / 256) where
/// blocks are in use, and O(requests) by a plan.
class rewound_arena {
 public:
  /// @throws allocator_busy if blocks are in use that the body had allocated, with nothing changed.
  [[nodiscard]] rewound_arena(graph_arena& arena, graph_arena_mark const& mark);
  rewound_arena(rewound_arena const&) = delete;
  rewound_arena& operator=(rewound_arena const&) = delete;
  /// Unless kept: counts and layout are what they were before. Blocks that are in use above the mark stay so,
  /// in addition: they lie where the graph has its temporaries, whose launches overwrite them.
  ~rewound_arena() {
    if (arena_ != nullptr) restore();
  }

  /// The arena stays as it is now.
  void keep() noexcept { arena_ = nullptr; }

  /// Where an arena is: what a body allocates from now on lies behind it. O(1).
  [[nodiscard]] static graph_arena_mark mark_of(graph_arena const& arena) noexcept;
  /// @throws allocator_busy if other arenas have the memory, too, and blocks are in use: other graphs would
  /// overwrite them.
  static void require_no_block_outlives(graph_arena const& arena);

 private:
  [[nodiscard]] static std::unique_lock<fork_safe<>> locked(graph_arena const& arena);
  template <class Function>
  void for_each_block_since(graph_arena_mark const& mark, Function function) const;
  void restore() noexcept;

  graph_arena* arena_;  // null: kept
  graph_arena_mark mark_;
  monotone_layout before_;
  std::size_t peak_bytes_before_ = 0, peak_blocks_before_ = 0;
};

}  // namespace tidemark::detail
