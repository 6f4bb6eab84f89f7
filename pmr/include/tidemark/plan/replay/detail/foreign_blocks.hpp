// SPDX-License-Identifier: Apache-2.0
/// @file
/// `foreign_blocks`: live blocks of planned memory that the current plan does not know. Owns records only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tidemark/plan/replay/detail/plan_replayer.hpp>

namespace tidemark::detail {

/// A block in a slot of another plan, or of an earlier step of the same plan: the slot as it was, until it
/// is not `live()`.
struct foreign_block : plan_replayer::place {
  plan_replayer* plan;  // whose slot it is; null if that is gone
};

/// Foreign blocks by address, no two of which overlap. Deallocated ones leave a gap until enough are gone.
class foreign_blocks {
 public:
  [[nodiscard]] std::size_t live() const noexcept { return blocks_.size() - dead_; }
  /// By address, deallocated ones included.
  [[nodiscard]] std::vector<foreign_block> const& all() const noexcept { return blocks_; }

  /// Detaches live blocks from a plan: all, or those whose slots the next step may need. @throws
  /// std::bad_alloc with nothing changed.
  void detach_live(plan_replayer& plan, bool outliving_too);
  /// Gives the plan those blocks that one of its free slots matches.
  void adopt_into(plan_replayer& plan, plan_replayer::request_time now) noexcept;
  /// The plan is gone.
  void forget(plan_replayer const& plan) noexcept;

  /// The live block that begins there; null: there is none.
  [[nodiscard]] foreign_block* find(std::uintptr_t address) noexcept;
  /// @pre `found` by `find`
  void remove(foreign_block& found) noexcept {
    found.died = found.born;
    if (2 * ++dead_ >= blocks_.size()) erase_dead();
  }
  [[nodiscard]] bool overlap(std::uintptr_t begin, std::size_t bytes) const noexcept;

 private:
  void erase_dead() noexcept;

  std::vector<foreign_block> blocks_;  // by address
  std::size_t dead_ = 0;
};

}  // namespace tidemark::detail
