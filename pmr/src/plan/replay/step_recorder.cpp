// SPDX-License-Identifier: Apache-2.0
#include <tidemark/plan/replay/detail/step_recorder.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <new>
#include <utility>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/plan/solver/plan.hpp>

namespace tidemark::detail {
namespace {

// More than any plan may have, and far from where sums wrap.
constexpr std::size_t max_plan_bytes = std::size_t{1} << 62;

std::size_t own_bytes(std::size_t size, std::size_t alignment) noexcept {
  return size > max_plan_bytes ? max_plan_bytes : align_up(std::max<std::size_t>(size, 1), alignment);
}

std::size_t end_of_block(planned_block const& block, std::size_t alignment) noexcept {
  return *block.life.offset + own_bytes(block.life.size, alignment);
}

// The first offset from `from` on at which so many bytes meet no obstacle.
std::size_t lowest_beside(std::span<byte_range const> obstacles, std::size_t from, std::size_t bytes,
                          std::size_t align) noexcept {
  for (byte_range const& taken : obstacles) {
    if (taken.begin >= from + bytes) break;
    if (taken.end() > from) from = align_up(taken.end(), align);
  }
  return from;
}

}  // namespace

void step_recorder::next_step() noexcept {
  if (live_.empty()) carried_.clear();  // as after each step that follows its plan
  else carry_live();
  entries_.clear();
  complete_ = true;
}

void step_recorder::carry_live() noexcept {
  try {
    std::erase_if(live_, [](auto const& held) { return held.second.is_carried; });
    std::vector<std::pair<entry, place*>> carried;
    for (auto& [block, at] : live_) carried.emplace_back(entries_[at.index], &at);
    std::ranges::sort(carried, {},
                      [](auto const& one) { return std::pair{one.first.bytes, one.first.born}; });
    carried_.clear();
    for (auto const& [what, at] : carried) {
      *at = {.index = carried_.size(), .is_carried = true};
      carried_.push_back({.what = what});
    }
  } catch (std::exception const&) {
    carried_.clear();
    live_.clear();
  }
}

void step_recorder::on_allocate(void const* block, entry const& what) noexcept {
  try {
    entries_.push_back(what);
    live_.insert_or_assign(block, place{.index = entries_.size() - 1, .is_carried = false});
  } catch (std::exception const&) {
    complete_ = false;
  }
}

void step_recorder::on_deallocate(void const* block, request_time now) noexcept {
  const auto found = live_.find(block);
  if (found == live_.end()) return;
  place const at = found->second;
  (at.is_carried ? carried_[at.index].what : entries_[at.index]).died = now;
  live_.erase(found);
}

bool step_recorder::overlaps_carried(std::size_t bytes, request_time born) noexcept {
  const auto size_of = [](carried_block const& carried) { return carried.what.bytes; };
  const auto first = std::ranges::lower_bound(carried_, bytes, {}, size_of);
  if (first == carried_.end()) return false;
  const auto oldest = first + static_cast<std::ptrdiff_t>(std::min(
                                  first->successors, static_cast<std::size_t>(carried_.end() - first)));
  if (oldest == carried_.end() || size_of(*oldest) != bytes) return false;
  ++first->successors;
  return oldest->what.died == 0 || oldest->what.died > born;
}

step_plan step_recorder::plan(plan_options const& options, std::size_t max_slots,
                              std::span<byte_range const> obstacles) {
  if (!complete_) throw std::bad_alloc{};
  std::vector<entry> entries = entries_;  // those that a plan served are not in order yet
  std::ranges::sort(entries, {}, &entry::born);
  step_plan made;
  made.requests = entries.size();
  made.alignment = options.alignment;
  const request_time begin = entries.empty() ? 0 : entries.front().born;
  std::size_t own_end = 0, max_alignment = options.alignment;
  std::vector<lifetime> lifetimes;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entry const& e = entries[i];
    const std::size_t align = std::max(options.alignment, e.align);
    max_alignment = std::max(max_alignment, align);
    lifetime life{.lower = i, .upper = e.died - begin, .size = e.bytes, .alignment = align};
    if (e.died != 0) {
      made.blocks.push_back({.request = i, .life = life});
      life.size = std::max<std::size_t>(life.size, 1);  // an address for each
      lifetimes.push_back(life);
      continue;
    }
    life.lower = 0;
    life.upper = made.requests + 1;
    for (int n = max_slots > 1 && overlaps_carried(e.bytes, e.born) ? 2 : 1; n > 0; --n) {
      own_end =
          lowest_beside(obstacles, align_up(own_end, align), own_bytes(e.bytes, options.alignment), align);
      if (own_end > max_plan_bytes) throw std::bad_alloc{};
      life.offset = own_end;
      made.blocks.push_back({.request = i, .life = life});
      own_end = end_of_block(made.blocks.back(), options.alignment);
    }
  }
  // Bytes of their own are best at one end, where they split nothing, and at the lower one, so that the
  // memory above can be decommitted while they are in use.
  own_end = align_up(own_end, max_alignment);
  for (byte_range const& taken : obstacles) {
    const std::size_t above = std::max(taken.begin, own_end);
    if (taken.end() <= above) continue;
    lifetimes.push_back(
        {.lower = 0, .upper = made.requests + 1, .size = taken.end() - above, .offset = above - own_end});
  }
  memory_plan const placed = make_plan(lifetimes, options);
  auto offset = placed.offsets.begin();
  for (planned_block& block : made.blocks) {
    if (!block.life.offset) block.life.offset = own_end + *offset++;
  }
  made.height = own_end + placed.height;
  made.lower_bound = own_end + placed.lower_bound;
  made.require_valid();
  return made;
}

step_plan with_more_slots(step_plan const& plan, std::vector<std::size_t> requests) {
  step_plan made = plan;
  std::size_t own_end = 0, others_begin = plan.height, max_alignment = plan.alignment;
  for (planned_block const& block : plan.blocks) {
    max_alignment = std::max(max_alignment, block.life.alignment);
    if (plan.outlives(block)) own_end = std::max(own_end, end_of_block(block, plan.alignment));
    else others_begin = std::min(others_begin, *block.life.offset);
  }
  own_end = align_up(own_end, max_alignment);
  // Not in each plan of a file.
  const bool is_own_below = own_end <= others_begin;
  const std::size_t begin = is_own_below ? own_end : align_up(plan.height, max_alignment);
  std::size_t end = begin;
  std::ranges::sort(requests);
  made.blocks.clear();
  auto next = requests.begin();
  for (auto block = plan.blocks.begin(); block != plan.blocks.end(); ++block) {
    made.blocks.push_back(*block);
    const bool is_last = std::next(block) == plan.blocks.end() || std::next(block)->request != block->request;
    for (; is_last && next != requests.end() && *next == block->request; ++next) {
      made.blocks.push_back(*block);
      made.blocks.back().life.offset = align_up(end, block->life.alignment);
      end = align_up(end_of_block(made.blocks.back(), plan.alignment), max_alignment);
    }
  }
  const std::size_t more = end - begin;
  if (is_own_below) {
    for (planned_block& block : made.blocks) {
      if (!plan.outlives(block)) *block.life.offset += more;
    }
  }
  made.height = (is_own_below ? std::max(plan.height, own_end) : begin) + more;
  made.lower_bound += more;
  return made;
}

}  // namespace tidemark::detail
