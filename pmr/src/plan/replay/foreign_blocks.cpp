// SPDX-License-Identifier: Apache-2.0
#include <tidemark/plan/replay/detail/foreign_blocks.hpp>

#include <algorithm>
#include <iterator>

namespace tidemark::detail {

void foreign_blocks::detach_live(plan_replayer& plan, bool outliving_too) {
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

void foreign_blocks::find_blocking(plan_replayer const& plan) noexcept {
  way_begin_ = plan.base() == 0 ? 0 : plan.others_begin();
  in_way_ = static_cast<std::size_t>(std::ranges::count_if(
      blocks_, [&](foreign_block const& block) { return block.live() && is_in_way(block); }));
}

foreign_block* foreign_blocks::find(std::uintptr_t address) noexcept {
  const auto found = std::ranges::lower_bound(blocks_, address, {}, &foreign_block::address);
  return found != blocks_.end() && found->address == address && found->live() ? &*found : nullptr;
}

bool foreign_blocks::overlap(std::uintptr_t begin, std::size_t bytes) const noexcept {
  auto block = std::ranges::lower_bound(blocks_, begin, {}, &foreign_block::address);
  if (block != blocks_.begin() && std::prev(block)->address + std::prev(block)->max_bytes > begin) --block;
  while (block != blocks_.end() && block->address < begin + bytes && !block->live()) ++block;
  return block != blocks_.end() && block->address < begin + bytes;
}

}  // namespace tidemark::detail
