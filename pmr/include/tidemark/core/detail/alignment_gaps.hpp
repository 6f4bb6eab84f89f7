// SPDX-License-Identifier: Apache-2.0
/// @file
/// `alignment_gaps`: which blocks of an arena have unused bytes in front of them. Owns nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tidemark::detail {

/// The newest blocks of a chunk that their alignment moved away from the block before, so that freeing one
/// makes the block before the newest again. `max_gaps` of them are known; older ones are forgotten, and
/// the bytes in front of those come back with the next rewind.
///
/// Invariant: `block` rises from gap to gap, and the newest is below the arena's cursor. One thread at a
/// time. Arenas whose blocks all begin and end at multiples of one alignment have no gaps to speak of.
class alignment_gaps {
 public:
  static constexpr std::size_t max_gaps = 16;

  /// A block was allocated at `block`, and the one before ended at `end`.
  void add(std::uintptr_t block, std::uintptr_t end) noexcept {
    if (block == end) return;
    gaps_[next_++ % max_gaps] = {block, end};
    count_ = (std::min)(count_ + 1, max_gaps);
  }
  /// Forgets the blocks at `cursor` and above.
  void forget(std::uintptr_t cursor) noexcept {
    for (; count_ > 0 && newest().block >= cursor; --count_) --next_;
  }
  void clear() noexcept { count_ = 0; }
  /// Where the block before `block` ended, if that is known; else `block`.
  [[nodiscard]] std::uintptr_t end_before(std::uintptr_t block) const noexcept {
    return count_ > 0 && newest().block == block ? newest().end : block;
  }

 private:
  struct gap {
    std::uintptr_t block, end;
  };
  [[nodiscard]] gap const& newest() const noexcept { return gaps_[(next_ - 1) % max_gaps]; }

  std::array<gap, max_gaps> gaps_;  // in turn
  std::size_t next_ = 0;            // of the next gap; wraps
  std::size_t count_ = 0;           // that are known
};

/// The same for arenas that have none.
struct no_alignment_gaps {
  static void add(std::uintptr_t, std::uintptr_t) noexcept {}
  static void forget(std::uintptr_t) noexcept {}
  static void clear() noexcept {}
  [[nodiscard]] static std::uintptr_t end_before(std::uintptr_t block) noexcept { return block; }
};

}  // namespace tidemark::detail
