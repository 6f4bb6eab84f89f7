// SPDX-License-Identifier: Apache-2.0
/// @file
/// `foreign_blocks`: live blocks in planned memory that are not in the current plan. Owns records only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tidemark/plan/replay/detail/plan_replayer.hpp>

namespace tidemark::detail {

/// A block in a slot of another plan, or of an earlier step of the same plan. It keeps the state of the slot
/// until the block dies.
using foreign_block = plan_replayer::place;

/// Disjoint foreign blocks by address. A dead block keeps its entry until the next `detach_live`.
class foreign_blocks {
 public:
  [[nodiscard]] std::size_t live() const noexcept { return live_; }
  /// Returns the blocks by address, dead blocks included.
  [[nodiscard]] std::vector<foreign_block> const& all() const noexcept { return blocks_; }

  /// Detaches live blocks from a plan: all blocks, or only those whose slots the next step may need. @throws
  /// std::bad_alloc with nothing changed.
  void detach_live(plan_replayer& plan, bool outliving_too);
  /// Finds the blocks that are in the way of the current plan. Slots with bytes of their own do not count,
  /// because each allocation compares them.
  void find_blocking(plan_replayer const& plan) noexcept;
  /// Returns the number of live blocks in the way of the current plan.
  [[nodiscard]] std::size_t in_way() const noexcept { return in_way_; }

  /// Returns the live block that begins at an address; null if there is no such block.
  [[nodiscard]] foreign_block* find(std::uintptr_t address) noexcept;
  /// @pre `found` is a result of `find`.
  void remove(foreign_block& found) noexcept {
    found.died = found.born;
    in_way_ -= is_in_way(found) ? 1 : 0;
    --live_;
  }
  /// Returns true if a live block has a byte in [begin, begin + bytes).
  [[nodiscard]] bool overlap(std::uintptr_t begin, std::size_t bytes) const noexcept;

 private:
  // Returns true if a slot without bytes of its own may share a byte with the block.
  [[nodiscard]] bool is_in_way(foreign_block const& block) const noexcept {
    return block.address + block.max_bytes > way_begin_;
  }

  std::vector<foreign_block> blocks_;  // by address
  std::uintptr_t way_begin_ = 0;       // start of the slots without bytes of their own
  std::size_t live_ = 0;
  std::size_t in_way_ = 0;
};

}  // namespace tidemark::detail
