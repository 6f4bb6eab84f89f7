// SPDX-License-Identifier: Apache-2.0
#include <tidemark/plan/replay/detail/planning_budget.hpp>

#include <algorithm>

namespace tidemark::detail {

void planning_budget::forgive(std::uint64_t step) noexcept {
  if (unpaid_ == 0) forgave_at_ = step;
  if (step - forgave_at_ < forgives_after_) return;
  forgave_at_ = step;
  forgives_after_ *= 2;
  --unpaid_;
}

bool planning_budget::may_record(std::uint64_t step) noexcept {
  forgive(step);
  return sightings_needed() == 1 || step < record_until_;
}

bool planning_budget::is_worth_a_plan(std::uint64_t step, std::uint64_t signature, std::uint64_t misses,
                                      std::uint64_t max_misses, bool is_recorded) noexcept {
  forgive(step);
  auto found = std::ranges::find_if(
      seen_, [&](sighting const& one) { return one.count != 0 && one.signature == signature; });
  if (found == seen_.end()) {
    found = std::ranges::min_element(seen_, {}, &sighting::last_step);
    *found = {.signature = signature};
  }
  ++found->count;
  found->misses += misses;
  found->last_step = step;
  if (found->misses < max_misses || found->count < sightings_needed()) return false;
  if (!is_recorded) {
    record_until_ = step + max_steps_to_record;
    return false;
  }
  *found = {};
  record_until_ = 0;
  return true;
}

}  // namespace tidemark::detail
