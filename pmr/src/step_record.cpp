// SPDX-License-Identifier: Apache-2.0
#include <tidemark/detail/step_record.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <new>
#include <utility>

#include <tidemark/detail/align.hpp>
#include <tidemark/plan.hpp>

namespace tidemark::detail {
namespace {

std::size_t own_bytes(planned_block const& block, std::size_t alignment) noexcept {
  return align_up(std::max<std::size_t>(block.life.size, 1), alignment);
}

std::size_t end_of_block(planned_block const& block, std::size_t alignment) noexcept {
  return *block.life.offset + own_bytes(block, alignment);
}

}  // namespace

void step_record::next_step() noexcept {
  try {
    carried_.clear();
    std::erase_if(live_, [](auto const& held) { return held.second.is_carried; });
    for (auto& [block, at] : live_) {
      carried_.push_back({.what = entries_[at.index]});
      at = {.index = carried_.size() - 1, .is_carried = true};
    }
  } catch (std::exception const&) {
    carried_.clear();
    live_.clear();
  }
  entries_.clear();
  complete_ = true;
}

void step_record::came(void const* block, entry const& what) noexcept {
  try {
    entries_.push_back(what);
    live_.insert_or_assign(block, place{.index = entries_.size() - 1, .is_carried = false});
  } catch (std::exception const&) {
    complete_ = false;
  }
}

void step_record::note_death(void const* block, request_time now) noexcept {
  const auto found = live_.find(block);
  if (found == live_.end()) return;
  place const at = found->second;
  (at.is_carried ? carried_[at.index].what : entries_[at.index]).died = now;
  live_.erase(found);
}

bool step_record::overlaps_carried(std::size_t bytes, request_time born) noexcept {
  // The oldest of that size: there is no order in a hash table.
  carried_block* oldest = nullptr;
  for (carried_block& carried : carried_) {
    if (carried.has_heir || carried.what.bytes != bytes) continue;
    if (oldest == nullptr || carried.what.born < oldest->what.born) oldest = &carried;
  }
  if (oldest == nullptr) return false;
  oldest->has_heir = true;
  return oldest->what.died == 0 || oldest->what.died > born;
}

step_plan step_record::plan_it(plan_options const& options, std::size_t slots_max) {
  if (!complete_) throw std::bad_alloc{};
  std::vector<entry> entries = entries_;  // those that a plan served are not in their places yet
  std::ranges::sort(entries, {}, &entry::born);
  step_plan made;
  made.requests = entries.size();
  made.alignment = options.alignment;
  const request_time begin = entries.empty() ? 0 : entries.front().born;
  std::size_t own_end = 0, alignment_max = options.alignment;
  std::vector<lifetime> lives;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entry const& e = entries[i];
    const std::size_t align = std::max(options.alignment, e.align);
    alignment_max = std::max(alignment_max, align);
    lifetime life{.lower = i, .upper = e.died - begin, .size = e.bytes, .alignment = align};
    if (e.died != 0) {
      made.blocks.push_back({.request = i, .life = life});
      life.size = std::max<std::size_t>(life.size, 1);  // an address for each
      lives.push_back(life);
      continue;
    }
    life.lower = 0;
    life.upper = made.requests + 1;
    for (int n = slots_max > 1 && overlaps_carried(e.bytes, e.born) ? 2 : 1; n > 0; --n) {
      own_end = align_up(own_end, align);
      life.offset = own_end;
      made.blocks.push_back({.request = i, .life = life});
      own_end = end_of_block(made.blocks.back(), options.alignment);
    }
  }
  // Bytes of their own are best at one end, where they split nothing, and at the lower one, so that what lies
  // above can be given back while they are in use.
  own_end = align_up(own_end, alignment_max);
  plan const placed = make_plan(lives, options);
  auto offset = placed.offsets.begin();
  for (planned_block& block : made.blocks) {
    if (!block.life.offset) block.life.offset = own_end + *offset++;
  }
  made.height = own_end + placed.height;
  made.lower_bound = own_end + placed.lower_bound;
  return made;
}

step_plan with_more_slots(step_plan const& plan, std::span<std::size_t const> requests) {
  step_plan made = plan;
  std::size_t own_end = 0, others_begin = plan.height, alignment_max = plan.alignment;
  for (planned_block const& block : plan.blocks) {
    alignment_max = std::max(alignment_max, block.life.alignment);
    if (plan.outlives(block)) own_end = std::max(own_end, end_of_block(block, plan.alignment));
    else others_begin = std::min(others_begin, *block.life.offset);
  }
  own_end = align_up(own_end, alignment_max);
  // A plan that somebody else has made may be otherwise.
  const bool is_own_below = own_end <= others_begin;
  std::size_t end = is_own_below ? own_end : align_up(plan.height, alignment_max);
  const std::size_t end_before = end;
  for (std::size_t request : requests) {
    const auto behind = std::ranges::upper_bound(made.blocks, request, {}, &planned_block::request);
    planned_block block = *std::prev(behind);
    block.life.offset = align_up(end, block.life.alignment);
    end = align_up(end_of_block(block, plan.alignment), alignment_max);
    made.blocks.insert(behind, block);
  }
  const std::size_t more = end - end_before;
  if (is_own_below) {
    for (planned_block& block : made.blocks) {
      if (!plan.outlives(block)) *block.life.offset += more;
    }
  }
  made.height = (is_own_below ? std::max(plan.height, own_end) : end_before) + more;
  made.lower_bound += more;
  return made;
}

}  // namespace tidemark::detail
