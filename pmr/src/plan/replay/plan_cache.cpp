// SPDX-License-Identifier: Apache-2.0
#include <tidemark/plan/replay/detail/plan_cache.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <tuple>

#include <tidemark/core/detail/align.hpp>

namespace tidemark::detail {

std::vector<step_plan> plan_cache::copies() const {
  std::vector<kept_plan const*> newest_first;
  for (auto const& plan : plans_) newest_first.push_back(plan.get());
  std::ranges::sort(newest_first, std::greater{}, &kept_plan::used_last);
  std::vector<step_plan> copied;
  for (kept_plan const* plan : newest_first) copied.push_back(plan->plan());
  return copied;
}

kept_plan* plan_cache::choose(std::uint64_t step, std::size_t bytes, std::size_t align) const noexcept {
  kept_plan const* const expected = last_used_ != nullptr ? last_used_->next : nullptr;
  // Best is: for that very size; the successor of the last plan; not given up the last time; the
  // tightest; the one used last.
  const auto rank = [&](kept_plan const& plan) {
    const std::size_t planned = plan.planned(0).bytes;
    return std::tuple{planned == bytes, &plan == expected, plan.given_up == 0, ~planned, plan.used_last};
  };
  kept_plan* best = nullptr;
  for (auto const& plan : plans_) {
    if (!plan->fits(0, bytes, align) || plan->rests(step)) continue;
    if (plan->given_up != 0 && plan->planned(0).bytes != bytes) continue;
    if (best == nullptr || rank(*best) < rank(*plan)) best = plan.get();
  }
  return best;
}

kept_plan* plan_cache::find_agreeing(std::uint64_t step, kept_plan const& current, std::size_t bytes,
                                     std::size_t align) const noexcept {
  const std::size_t next = current.cursor();
  for (auto const& other : plans_) {
    if (other.get() == &current || other->rests(step) || !other->fits(next, bytes, align) ||
        other->planned(next).bytes != bytes)
      continue;
    std::size_t i = 0;
    while (i < next && current.newest(i).bytes == other->planned(i).bytes) ++i;
    if (i == next) return other.get();
  }
  return nullptr;
}

plan_surroundings plan_cache::surroundings(kept_plan const* replaced) {
  alike_.clear();
  for (auto const& plan : plans_) {
    if (plan.get() != replaced && plan->own_slots().empty() == plan->outliving().empty())
      alike_.push_back(&plan->plan());
  }
  return {.obstacles = {}, .zone_end = zone_end_, .alike = alike_};
}

kept_plan* plan_cache::displaced_by(kept_plan& made) {
  plans_.reserve(plans_.size() + 1);
  made.reset_branches(plans_.size() + 1);
  for (auto const& plan : plans_) plan->reset_branches(plans_.size() + 1);
  for (auto const& plan : plans_) {
    if (plan->has_same_requests(made)) return plan.get();
  }
  if (plans_.size() < max_size_) return nullptr;
  return std::ranges::min_element(plans_, {}, &kept_plan::used_last)->get();
}

kept_plan const* plan_cache::oldest_if_full() const noexcept {
  if (plans_.size() < max_size_) return nullptr;
  return std::ranges::min_element(plans_, {}, &kept_plan::used_last)->get();
}

void plan_cache::keep(std::unique_ptr<kept_plan> made) noexcept {
  plans_.push_back(std::move(made));
  arrange();
  find_branches();
}

namespace {

// Places for slots with bytes of their own, by their bytes and alignment, the n-th for the n-th slot of a plan.
struct zone {
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::size_t>> places;
  std::size_t end = 0;

  std::vector<std::size_t> find_places(kept_plan const& plan) {
    std::map<std::pair<std::size_t, std::size_t>, std::size_t> used;
    std::vector<std::size_t> found;
    for (std::uint32_t i : plan.own_slots()) {
      const std::pair key{plan.all_slots()[i].max_bytes, plan.planned(plan.request_of(i)).align};
      std::vector<std::size_t>& known = places[key];
      std::size_t& n = used[key];
      if (n == known.size()) {
        known.push_back(align_up(end, key.second));
        end = known.back() + key.first;
      }
      found.push_back(known[n++]);
    }
    return found;
  }
};

}  // namespace

void plan_cache::arrange() noexcept {
  try {
    std::size_t alignment = 1;
    for (auto const& plan : plans_) alignment = std::max(alignment, plan->alignment());
    zone common;
    for (auto const& plan : plans_) {
      if (plan->served != 0 || plan == plans_.back()) (void)common.find_places(*plan);
    }
    zone_end_ = align_up(common.end, alignment);
    for (auto const& plan : plans_) {
      zone own = common;
      const std::vector<std::size_t> places = own.find_places(*plan);
      plan->lay_out(places, std::max(zone_end_, align_up(own.end, alignment)));
    }
  } catch (std::exception const&) {
    // Without memory each plan lies where it lay: they are in each other's way, and miss.
  }
}

void plan_cache::find_branches() noexcept {
  for (auto one = plans_.begin(); one != plans_.end(); ++one) {
    for (auto other = plans_.begin(); other != one; ++other) {
      const std::size_t common = (*one)->common_requests(**other);
      if (common < (*one)->requests()) (*one)->add_branch(common);
      if (common < (*other)->requests()) (*other)->add_branch(common);
    }
  }
}

void plan_cache::erase(kept_plan& gone) noexcept {
  for (auto const& other : plans_) {
    if (other->next == &gone) other->next = nullptr;
  }
  if (last_used_ == &gone) last_used_ = nullptr;
  std::erase_if(plans_, [&](auto const& plan) { return plan.get() == &gone; });
}

}  // namespace tidemark::detail
