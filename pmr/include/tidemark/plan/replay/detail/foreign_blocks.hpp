// SPDX-License-Identifier: Apache-2.0
/// @file
/// `foreign_blocks`: live blocks of planned memory that the current plan does not know. Owns records only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include <tidemark/plan/replay/detail/plan_replayer.hpp>

namespace tidemark::detail {

/// A block in a slot of another plan, or of an earlier step of the same plan: the slot as it was, until it
/// is not `live()`.
using foreign_block = plan_replayer::place;

/// Foreign blocks by address, no two of which overlap. Deallocated blocks leave a gap until a step begins.
class foreign_blocks {
 public:
  [[nodiscard]] std::size_t live() const noexcept { return live_; }
  /// By address, deallocated blocks included.
  [[nodiscard]] std::vector<foreign_block> const& all() const noexcept { return blocks_; }

  /// Detaches live blocks from a plan: all, or those whose slots the next step may need. @throws
  /// std::bad_alloc with nothing changed.
  void detach_live(plan_replayer& plan, bool outliving_too) {
    if (live_ != blocks_.size())
      std::erase_if(blocks_, [](foreign_block const& block) { return !block.live(); });
    blocks_.reserve(blocks_.size() + plan.used_blocks());
    for (plan_replayer::slot const& s : plan.all_slots()) {
      if (!s.live() || (plan.outlives(s.index) && !outliving_too)) continue;
      blocks_.push_back(s);
      in_way_ += is_in_way(s) ? 1 : 0;
      plan.set_died(s.index, s.born);
    }
    live_ = blocks_.size();
    std::ranges::sort(blocks_, {}, &foreign_block::address);
  }
  /// The plan is the current one: finds the blocks that are in the way of its slots, except for slots with
  /// bytes of their own, which are compared each time.
  void find_in_way_of(plan_replayer const& plan) noexcept {
    way_begin_ = plan.base() == 0 ? 0 : plan.others_begin();
    in_way_ = static_cast<std::size_t>(std::ranges::count_if(
        blocks_, [&](foreign_block const& block) { return block.live() && is_in_way(block); }));
  }
  /// Live blocks that are in the way of the current plan.
  [[nodiscard]] std::size_t in_way() const noexcept { return in_way_; }

  /// The live block that begins there; null: there is none.
  [[nodiscard]] foreign_block* find(std::uintptr_t address) noexcept {
    const auto found = std::ranges::lower_bound(blocks_, address, {}, &foreign_block::address);
    return found != blocks_.end() && found->address == address && found->live() ? &*found : nullptr;
  }
  /// @pre `found` by `find`
  void remove(foreign_block& found) noexcept {
    found.died = found.born;
    in_way_ -= is_in_way(found) ? 1 : 0;
    --live_;
  }
  [[nodiscard]] bool overlap(std::uintptr_t begin, std::size_t bytes) const noexcept {
    auto block = std::ranges::lower_bound(blocks_, begin, {}, &foreign_block::address);
    if (block != blocks_.begin() && std::prev(block)->address + std::prev(block)->max_bytes > begin) --block;
    while (block != blocks_.end() && block->address < begin + bytes && !block->live()) ++block;
    return block != blocks_.end() && block->address < begin + bytes;
  }

 private:
  // True if a slot without bytes of its own may have one of the block's bytes.
  [[nodiscard]] bool is_in_way(foreign_block const& block) const noexcept {
    return block.address + block.max_bytes > way_begin_;
  }

  std::vector<foreign_block> blocks_;  // by address
  std::uintptr_t way_begin_ = 0;       // where the slots without bytes of their own begin
  std::size_t live_ = 0;
  std::size_t in_way_ = 0;
};

}  // namespace tidemark::detail
