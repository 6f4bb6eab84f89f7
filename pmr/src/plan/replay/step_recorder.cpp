// SPDX-License-Identifier: Apache-2.0
#include <tidemark/plan/replay/detail/step_recorder.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <iterator>
#include <new>
#include <optional>
#include <utility>

#include <tidemark/core/detail/align.hpp>
#include <tidemark/plan/make_plan.hpp>

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

// How many requests from the first on are the same in a plan, with blocks that die at the same times, as far
// as these lie before the request at which the two differ.
std::size_t common_requests(std::span<lifetime const> lives, step_plan const& plan) noexcept {
  std::size_t common = std::min(lives.size(), plan.requests), request = 0;
  for (planned_block const& block : plan.blocks) {
    if (block.request >= common) break;
    if (block.request < request) continue;  // a further slot
    request = block.request + 1;
    lifetime const& life = lives[block.request];
    if (life.size != block.life.size || life.alignment != block.life.alignment) return block.request;
    const bool own = life.upper == lives.size() + 1;
    if (own && plan.outlives(block)) continue;
    const std::uint64_t upper = own                    ? block.life.upper
                                : plan.outlives(block) ? life.upper
                                                       : std::min(life.upper, block.life.upper);
    if (own || plan.outlives(block) || life.upper != block.life.upper)
      common = std::min(common, static_cast<std::size_t>(upper));
  }
  return common;
}

// Places the blocks that die within the step above `own_end`. Those that are shared with a plan have an offset,
// counted from there.
void place_others(step_plan& plan, plan_options const& options, plan_surroundings const& beside,
                  step_plan const* alike, std::size_t own_end) {
  const std::size_t zone_end = std::max(own_end, beside.zone_end);
  std::vector<lifetime> fixed;
  for (byte_range const& taken : beside.obstacles) {
    const std::size_t above = std::max(taken.begin, zone_end);
    if (taken.end() <= above) continue;
    fixed.push_back(
        {.lower = 0, .upper = plan.requests + 1, .size = taken.end() - above, .offset = above - zone_end});
  }
  const auto place = [&](bool shares) {
    std::vector<lifetime> lifetimes;
    for (planned_block const& block : plan.blocks) {
      if (plan.outlives(block)) continue;
      lifetimes.push_back(block.life);
      lifetimes.back().size = std::max<std::size_t>(block.life.size, 1);  // an address for each
      if (!shares) lifetimes.back().offset = std::nullopt;
    }
    lifetimes.insert(lifetimes.end(), fixed.begin(), fixed.end());
    return make_plan(lifetimes, options.alignment);
  };
  const bool may_share =
      alike != nullptr && std::ranges::none_of(plan.blocks, [&](planned_block const& block) {
        return !plan.outlives(block) && block.life.offset &&
               std::ranges::any_of(fixed, [&](lifetime const& taken) {
                 return *taken.offset < end_of_block(block, plan.alignment) &&
                        *block.life.offset < *taken.offset + taken.size;
               });
      });
  memory_plan placed = place(may_share);
  // Memory is as high as the highest plan: to share blocks with that one costs nothing, with a lower one
  // little.
  if (may_share &&
      placed.height - placed.height / 8 > std::max(placed.lower_bound, alike->height - outliving_end(*alike)))
    placed = place(false);
  auto offset = placed.offsets.begin();
  for (planned_block& block : plan.blocks) {
    if (!plan.outlives(block)) block.life.offset = own_end + *offset++;
  }
  plan.height = own_end + placed.height;
  plan.lower_bound = own_end + placed.lower_bound;
}

}  // namespace

std::size_t outliving_end(step_plan const& plan) noexcept {
  std::size_t end = 0, max_alignment = plan.alignment;
  for (planned_block const& block : plan.blocks) {
    max_alignment = std::max(max_alignment, block.life.alignment);
    if (plan.outlives(block)) end = std::max(end, end_of_block(block, plan.alignment));
  }
  return align_up(end, max_alignment);
}

bool outliving_lie_below(step_plan const& plan) noexcept {
  const std::size_t end = outliving_end(plan);
  return std::ranges::all_of(plan.blocks, [&](planned_block const& block) {
    return plan.outlives(block) || *block.life.offset >= end;
  });
}

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

void step_recorder::record_deallocation(void const* block, request_time now) noexcept {
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

std::vector<lifetime> step_recorder::lifetimes(plan_options const& options) {
  std::ranges::sort(entries_, {}, &entry::born);  // those that a plan served are not in order yet
  const request_time begin = entries_.empty() ? 0 : entries_.front().born;
  std::vector<lifetime> lives;
  lives.reserve(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    entry const& e = entries_[i];
    const std::size_t align = std::max(options.alignment, e.align);
    if (e.died != 0)
      lives.push_back({.lower = i, .upper = e.died - begin, .size = e.bytes, .alignment = align});
    else lives.push_back({.lower = 0, .upper = entries_.size() + 1, .size = e.bytes, .alignment = align});
  }
  return lives;
}

step_plan step_recorder::plan(plan_options const& options, std::size_t max_slots,
                              plan_surroundings const& beside) {
  if (!complete_) throw std::bad_alloc{};
  const std::vector<lifetime> lives = lifetimes(options);
  step_plan const* alike = nullptr;
  std::size_t shared = 0;
  for (step_plan const* other : beside.alike) {
    const std::size_t common = other->alignment == options.alignment ? common_requests(lives, *other) : 0;
    if (common <= shared || common == std::max(lives.size(), other->requests))
      continue;  // no plan of its own
    shared = common;
    alike = other;
  }
  step_plan made;
  made.requests = lives.size();
  made.alignment = options.alignment;
  std::size_t own_end = 0;
  const std::size_t shared_origin = shared > 0 ? outliving_end(*alike) : 0;
  auto shared_block = shared > 0 ? alike->blocks.begin() : std::vector<planned_block>::const_iterator{};
  for (std::size_t i = 0; i < lives.size(); ++i) {
    planned_block block{.request = i, .life = lives[i]};
    std::size_t own_slots = 0;  // in the plan that is alike
    for (; i < shared && shared_block != alike->blocks.end() && shared_block->request == i; ++shared_block) {
      if (alike->outlives(*shared_block)) ++own_slots;
      else block.life.offset = *shared_block->life.offset - shared_origin;
    }
    if (!made.outlives(block)) {
      made.blocks.push_back(block);
      continue;
    }
    const bool is_second = max_slots > 1 && overlaps_carried(block.life.size, entries_[i].born);
    for (std::size_t n = std::max<std::size_t>(own_slots, is_second ? 2 : 1); n > 0; --n) {
      block.life.offset = align_up(own_end, block.life.alignment);
      own_end = end_of_block(block, options.alignment);
      if (own_end > max_plan_bytes) throw std::bad_alloc{};
      made.blocks.push_back(block);
    }
  }
  // Bytes of their own are best at one end, where they split nothing, and at the lower one, so that the
  // memory above can be decommitted while they are in use.
  place_others(made, options, beside, alike, outliving_end(made));
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
