// SPDX-License-Identifier: Apache-2.0
#include <tidemark/plan/replay/detail/plan_cache.hpp>

#include <algorithm>
#include <functional>
#include <tuple>

namespace tidemark::detail {

std::vector<step_plan> plan_cache::copies() const {
  std::vector<kept_plan const*> newest_first;
  for (auto const& plan : plans_) newest_first.push_back(plan.get());
  std::ranges::sort(newest_first, std::greater{}, &kept_plan::used_last);
  std::vector<step_plan> copied;
  for (kept_plan const* plan : newest_first) copied.push_back(plan->plan());
  return copied;
}

kept_plan* plan_cache::choose(std::size_t bytes, std::size_t align) const noexcept {
  kept_plan const* const expected = last_used_ != nullptr ? last_used_->next : nullptr;
  // Best is: for that very size; not given up the last time; the successor of the last plan; the
  // tightest; the one used last.
  const auto rank = [&](kept_plan const& plan) {
    const std::size_t planned = plan.planned(0).bytes;
    return std::tuple{planned == bytes, !plan.was_given_up, &plan == expected, ~planned, plan.used_last};
  };
  kept_plan* best = nullptr;
  for (auto const& plan : plans_) {
    if (!plan->fits(0, bytes, align)) continue;
    if (plan->was_given_up && plan->planned(0).bytes != bytes) continue;
    if (best == nullptr || rank(*best) < rank(*plan)) best = plan.get();
  }
  return best;
}

kept_plan* plan_cache::find_agreeing(kept_plan const& current, std::size_t bytes,
                                     std::size_t align) const noexcept {
  const std::size_t next = current.cursor();
  for (auto const& other : plans_) {
    if (other.get() == &current || !other->fits(next, bytes, align) || other->planned(next).bytes != bytes)
      continue;
    std::size_t i = 0;
    while (i < next && current.newest(i).bytes == other->planned(i).bytes) ++i;
    if (i == next) return other.get();
  }
  return nullptr;
}

kept_plan* plan_cache::displaced_by(kept_plan const& made) {
  plans_.reserve(plans_.size() + 1);
  for (auto const& plan : plans_) {
    if (plan->has_same_requests(made)) return plan.get();
  }
  if (plans_.size() < max_size_) return nullptr;
  return std::ranges::min_element(plans_, {}, &kept_plan::used_last)->get();
}

void plan_cache::erase(kept_plan& gone) noexcept {
  for (auto const& other : plans_) {
    if (other->next == &gone) other->next = nullptr;
  }
  if (last_used_ == &gone) last_used_ = nullptr;
  std::erase_if(plans_, [&](auto const& plan) { return plan.get() == &gone; });
}

}  // namespace tidemark::detail
