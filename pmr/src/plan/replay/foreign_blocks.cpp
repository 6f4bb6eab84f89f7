// SPDX-License-Identifier: Apache-2.0
#include <tidemark/plan/replay/detail/foreign_blocks.hpp>

#include <algorithm>
#include <iterator>

namespace tidemark::detail {

void foreign_blocks::detach_live(plan_replayer& plan, bool outliving_too) {
  const auto leaves = [&](plan_replayer::slot const& s) {
    return s.live() && (outliving_too || !plan.outlives(s.index));
  };
  const auto leaving = static_cast<std::size_t>(std::ranges::count_if(plan.all_slots(), leaves));
  if (leaving == 0) return;
  erase_dead();
  blocks_.reserve(blocks_.size() + leaving);
  for (plan_replayer::slot const& s : plan.all_slots()) {
    if (!leaves(s)) continue;
    blocks_.push_back({s, &plan, true});
    ++in_way_;
    plan.set_died(s.index, s.born);
  }
  std::ranges::sort(blocks_, {}, &foreign_block::address);
}

void foreign_blocks::adopt_into(plan_replayer& plan, plan_replayer::request_time now) noexcept {
  erase_dead();
  std::erase_if(blocks_, [&](foreign_block const& block) { return plan.adopt(block, now); });
}

void foreign_blocks::find_in_way_of(plan_replayer const& plan) noexcept {
  in_way_ = 0;
  for (foreign_block& block : blocks_) {
    block.is_in_way = plan.may_use(block.address, block.max_bytes);
    in_way_ += block.live() && block.is_in_way ? 1 : 0;
  }
}

void foreign_blocks::forget_slots() noexcept {
  for (foreign_block& block : blocks_) block.plan = nullptr;
}

foreign_block* foreign_blocks::find(std::uintptr_t address) noexcept {
  const auto found = std::ranges::lower_bound(blocks_, address, {}, &foreign_block::address);
  return found != blocks_.end() && found->address == address && found->live() ? &*found : nullptr;
}

bool foreign_blocks::overlap(std::uintptr_t begin, std::size_t bytes) const noexcept {
  auto block = std::ranges::lower_bound(blocks_, begin, {}, &foreign_block::address);
  if (block != blocks_.begin() && std::prev(block)->address + std::prev(block)->max_bytes > begin) --block;
  for (; block != blocks_.end() && block->address < begin + bytes; ++block) {
    if (block->live()) return true;
  }
  return false;
}

void foreign_blocks::erase_dead() noexcept {
  std::erase_if(blocks_, [](foreign_block const& block) { return !block.live(); });
  dead_ = 0;
}

}  // namespace tidemark::detail
