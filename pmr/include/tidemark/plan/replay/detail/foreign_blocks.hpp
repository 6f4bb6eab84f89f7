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
  plan_replayer* plan;    // whose slot it is; null if that is gone, or lies elsewhere
  bool is_in_way = true;  // a slot of the current plan may have one of its bytes
};

/// Foreign blocks by address, no two of which overlap. Deallocated ones leave a gap until enough are gone.
class foreign_blocks {
 public:
  [[nodiscard]] std::size_t live() const noexcept { return blocks_.size() - dead_; }
  /// By address, deallocated ones included.
  [[nodiscard]] std::vector<foreign_block> const& all() const noexcept { return blocks_; }

  /// Has room for all live blocks of a plan: then `detach_live` does not throw. @throws std::bad_alloc
  void reserve_for(plan_replayer const& plan) { blocks_.reserve(blocks_.size() + plan.used_blocks()); }
  /// Detaches live blocks from a plan: all, or those whose slots the next step may need. @throws
  /// std::bad_alloc with nothing changed.
  void detach_live(plan_replayer& plan, bool outliving_too);
  /// Gives the plan those blocks that one of its free slots matches.
  void adopt_into(plan_replayer& plan, plan_replayer::request_time now) noexcept;
  /// The plan is the current one: finds the blocks that are in the way of its slots.
  void find_in_way_of(plan_replayer const& plan) noexcept;
  /// Live blocks that are in the way of the current plan.
  [[nodiscard]] std::size_t in_way() const noexcept { return in_way_; }
  /// Plans are gone, or laid out anew: a slot may have another block by now.
  void forget_slots() noexcept;

  /// The live block that begins there; null: there is none.
  [[nodiscard]] foreign_block* find(std::uintptr_t address) noexcept;
  /// @pre `found` by `find`
  void remove(foreign_block& found) noexcept {
    found.died = found.born;
    in_way_ -= found.is_in_way ? 1 : 0;
    if (2 * ++dead_ >= blocks_.size()) erase_dead();
  }
  [[nodiscard]] bool overlap(std::uintptr_t begin, std::size_t bytes) const noexcept;

 private:
  void erase_dead() noexcept;

  std::vector<foreign_block> blocks_;  // by address
  std::size_t dead_ = 0;
  std::size_t in_way_ = 0;
};

}  // namespace tidemark::detail
