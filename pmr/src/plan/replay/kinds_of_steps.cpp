// SPDX-License-Identifier: Apache-2.0
// A zone is a table of places by size and alignment. Each plan takes the first places of a size, so that
// plans with the same blocks that outlive steps share all of them.
#include <tidemark/plan/replay/detail/kinds_of_steps.hpp>

#include <algorithm>
#include <exception>
#include <map>
#include <utility>
#include <vector>

#include <tidemark/core/detail/align.hpp>

namespace tidemark::detail {
namespace {

// Places for slots with bytes of their own, by their bytes and alignment, the n-th for the n-th slot of a
// plan.
struct zone {
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::size_t>> places;
  std::size_t end = 0;

  std::vector<std::size_t> find_places(plan_replayer const& plan) {
    std::map<std::pair<std::size_t, std::size_t>, std::size_t> used;
    std::vector<std::size_t> found(plan.own_slots().size());
    // Further slots of a request come behind the first slots of all, whose places stay when slots are added.
    for (std::size_t turn = 0; turn < 2 * found.size(); ++turn) {
      const std::uint32_t i = plan.own_slots()[turn % found.size()];
      if ((i >= plan.requests()) != (turn >= found.size())) continue;
      const std::pair key{plan.all_slots()[i].max_bytes, plan.alignment_of(i)};
      std::vector<std::size_t>& known = places[key];
      std::size_t& n = used[key];
      if (n == known.size()) {
        known.push_back(align_up(end, key.second));
        end = known.back() + key.first;
      }
      found[turn % found.size()] = known[n++];
    }
    return found;
  }
};

}  // namespace

kind_of_step* kinds_of_steps::find(std::uint64_t kind) noexcept {
  const auto found = std::ranges::find(kinds_, kind, &kind_of_step::kind);
  if (found == kinds_.end()) return nullptr;
  kinds_.splice(kinds_.begin(), kinds_, found);
  return &*found;
}

kind_of_step& kinds_of_steps::add(std::uint64_t kind) {
  kinds_.emplace_front().kind = kind;
  if (kinds_.size() > max_kinds_) {
    kinds_.front().debt = 2 * std::min(kinds_.back().debt, max_debt);
    kinds_.pop_back();
  }
  return kinds_.front();
}

void kinds_of_steps::lay_out() noexcept {
  try {
    zone common;
    std::vector<std::vector<std::size_t>> places;
    std::size_t alignment = 1;
    for (kind_of_step const& one : kinds_) {
      if (one.plan == nullptr) continue;
      places.push_back(common.find_places(*one.plan));
      alignment = std::max(alignment, one.plan->alignment());
    }
    zone_end_ = align_up(common.end, alignment);
    auto of_plan = places.begin();
    for (kind_of_step const& one : kinds_) {
      if (one.plan != nullptr) one.plan->lay_out(*of_plan++, zone_end_);
    }
  } catch (std::exception const&) {
    // Without memory each plan lies where it lay: they are in each other's way, and miss.
  }
}

}  // namespace tidemark::detail
