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

// The first offset from `from` on at which so many bytes have none that is taken.
std::size_t lowest_beside(std::span<byte_range const> taken, std::size_t from, std::size_t bytes,
                          std::size_t align) noexcept {
  for (byte_range const& one : taken) {
    if (one.begin >= from + bytes) break;
    if (one.end() > from) from = align_up(one.end(), align);
  }
  return from;
}

// Bytes that neither an obstacle nor a slot of another plan has.
std::vector<byte_range> taken_from_own(plan_surroundings const& beside) {
  std::vector<byte_range> taken;
  std::ranges::merge(beside.obstacles, beside.own_of_others, std::back_inserter(taken), {},
                     &byte_range::begin, &byte_range::begin);
  return taken;
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

// Places the blocks that die within the step, of which those have offsets that are shared with a plan.
void place_others(laid_plan& made, plan_options const& options, plan_surroundings const& beside,
                  step_plan const* alike) {
  step_plan& plan = made.plan;
  // What is fixed cannot move out of the way of obstacles.
  bool shares = alike != nullptr && beside.obstacles.empty() &&
                std::ranges::none_of(plan.blocks, [&](planned_block const& block) {
                  return !plan.outlives(block) && block.life.offset && *block.life.offset < beside.zone_end;
                });
  const auto place = [&] {
    std::vector<lifetime> lifetimes;
    for (planned_block const& block : plan.blocks) {
      if (plan.outlives(block)) continue;
      lifetimes.push_back(block.life);
      lifetime& life = lifetimes.back();
      life.size = std::max<std::size_t>(life.size, 1);  // an address for each
      if (!shares) life.offset = std::nullopt;
      else if (life.offset) *life.offset -= beside.zone_end;
    }
    for (byte_range const& taken : beside.obstacles) {
      const std::size_t above = std::max(taken.begin, made.zone_end);
      if (taken.end() <= above) continue;
      lifetimes.push_back({.lower = 0,
                           .upper = plan.requests + 1,
                           .size = taken.end() - above,
                           .offset = above - made.zone_end});
    }
    return make_plan(lifetimes, options);
  };
  memory_plan placed = place();
  // Memory is as high as the highest plan: to share blocks with that one costs nothing, with a lower one
  // little.
  if (shares &&
      placed.height - placed.height / 8 > std::max(placed.lower_bound, alike->height - beside.zone_end)) {
    shares = false;
    placed = place();
  }
  auto offset = placed.offsets.begin();
  for (planned_block& block : plan.blocks) {
    if (!plan.outlives(block)) block.life.offset = made.zone_end + *offset++;
  }
  plan.height = made.zone_end + placed.height;
  plan.lower_bound = made.zone_end + placed.lower_bound;
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
  if (live_.empty()) return;
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

laid_plan step_recorder::plan(plan_options const& options, std::size_t max_slots,
                              plan_surroundings const& beside) {
  if (!complete_) throw std::bad_alloc{};
  std::vector<lifetime> lives = lifetimes(options);
  step_plan const* alike = nullptr;
  std::size_t shared = 0;
  for (step_plan const* other : beside.alike) {
    const std::size_t common = other->alignment == options.alignment ? common_requests(lives, *other) : 0;
    if (common <= shared || common == std::max(lives.size(), other->requests))
      continue;  // no plan of its own
    shared = common;
    alike = other;
  }
  laid_plan made;
  made.plan.requests = lives.size();
  made.plan.alignment = options.alignment;
  std::vector<planned_block>& blocks = made.plan.blocks;
  std::size_t own_end = 0, max_alignment = options.alignment;
  const std::vector<byte_range> taken = taken_from_own(beside);
  auto shared_block = shared > 0 ? alike->blocks.begin() : std::vector<planned_block>::const_iterator{};
  for (std::size_t i = 0; i < lives.size(); ++i) {
    max_alignment = std::max(max_alignment, lives[i].alignment);
    if (i < shared) {
      for (; shared_block != alike->blocks.end() && shared_block->request == i; ++shared_block) {
        blocks.push_back({.request = i, .life = lives[i]});
        blocks.back().life.offset = shared_block->life.offset;
        if (made.plan.outlives(blocks.back()))
          own_end = std::max(own_end, end_of_block(blocks.back(), options.alignment));
      }
      continue;
    }
    blocks.push_back({.request = i, .life = lives[i]});
    if (!made.plan.outlives(blocks.back())) continue;
    bool is_second = max_slots > 1 && overlaps_carried(lives[i].size, entries_[i].born);
    for (;; is_second = false) {
      const std::size_t bytes = own_bytes(lives[i].size, options.alignment), align = lives[i].alignment;
      own_end = lowest_beside(taken, align_up(own_end, align), bytes, align);
      if (own_end > max_plan_bytes) throw std::bad_alloc{};
      blocks.back().life.offset = own_end;
      own_end = end_of_block(blocks.back(), options.alignment);
      if (!is_second) break;
      blocks.push_back({.request = i, .life = lives[i]});
    }
  }
  // Bytes of their own are best at one end, where they split nothing, and at the lower one, so that the
  // memory above can be decommitted while they are in use.
  made.zone_end = align_up(std::max(own_end, beside.zone_end), max_alignment);
  place_others(made, options, beside, alike);
  made.plan.require_valid();
  return made;
}

laid_plan with_more_slots(step_plan const& plan, std::vector<std::size_t> requests,
                          plan_surroundings const& beside) {
  laid_plan laid{.plan = plan};
  step_plan& made = laid.plan;
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
      made.blocks.back().life.offset =
          lowest_beside(is_own_below ? beside.own_of_others : std::span<byte_range const>{}, end,
                        own_bytes(block->life.size, plan.alignment), max_alignment);
      end = align_up(end_of_block(made.blocks.back(), plan.alignment), max_alignment);
    }
  }
  if (!is_own_below) {
    made.height = end;
    made.lower_bound += end - begin;
    return laid;
  }
  const std::size_t zone_end = std::max(own_end, beside.zone_end);
  laid.zone_end = align_up(std::max(zone_end, end), max_alignment);
  const std::size_t more = laid.zone_end - zone_end;
  for (planned_block& block : made.blocks) {
    if (!plan.outlives(block)) *block.life.offset += more;
  }
  made.height = std::max(plan.height, own_end) + more;
  made.lower_bound += more;
  return laid;
}

}  // namespace tidemark::detail
