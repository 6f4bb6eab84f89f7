// SPDX-License-Identifier: Apache-2.0
/// @file
/// What became of the blocks of an epoch, and of all epochs of a resource.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark {

/// What the end of one epoch, or of a `buffer_group`, did.
struct epoch_summary {
  std::size_t reclaimed = 0;        ///< blocks returned to the upstream or quarantined
  std::size_t reclaimed_bytes = 0;  ///< as requested; of blocks in slabs those of their class
  std::size_t promoted = 0;         ///< blocks kept: now of the epoch around it, or untracked
  std::size_t promoted_bytes = 0;   ///< likewise
};

/// Counts of an `epoch_resource`, of blocks that are or were tracked. Blocks allocated while the thread had
/// no epoch open are not among them; a `statistics_resource` as the upstream counts all.
///
/// Invariant: `allocations + adopted == deallocations + reclaimed + let_go + used_blocks`.
struct epoch_stats {
  char const* name = "";            ///< the resource's name
  std::uint64_t allocations = 0;    ///< blocks allocated in epochs so far
  std::uint64_t adopted = 0;        ///< blocks taken over by a `buffer_group`
  std::uint64_t deallocations = 0;  ///< blocks deallocated before their epoch ended
  std::uint64_t reclaimed = 0;      ///< blocks reclaimed at the end of an epoch or buffer group
  std::uint64_t promoted = 0;       ///< times that a block outlived the end of an epoch because it was kept
  std::uint64_t let_go = 0;     ///< of these, at the outermost level, and blocks moved to a `buffer_group`
  std::uint64_t late = 0;       ///< times that a block was deallocated after it had been reclaimed
  std::size_t used_blocks = 0;  ///< tracked now
  std::size_t used_bytes = 0;   ///< of these, counted as `epoch_summary` does
  /// Most that were tracked at once, as the sum of what was so for each thread: exact if one thread has
  /// epochs.
  std::size_t peak_bytes = 0;
  std::size_t quarantined_bytes = 0;  ///< reclaimed and not yet returned to the upstream
};

}  // namespace tidemark
