// SPDX-License-Identifier: Apache-2.0
// The prefix is a table of places by size and alignment. Each plan uses the first places of a size. Plans
// with the same outliving blocks therefore share all of their places.
#include <tidemark/plan/replay/detail/kinds_of_steps.hpp>

#include <algorithm>
#include <exception>
#include <map>
#include <utility>
#include <vector>

#include <tidemark/core/detail/align.hpp>

namespace tidemark::detail {
namespace {

using shape = std::pair<std::size_t, std::size_t>;  // bytes and alignment of a slot with bytes of its own

// Finds the places of a plan's slots: the n-th slot of a shape has the n-th place of the shape.
std::vector<std::size_t> find_places(plan_replayer const& plan,
                                     std::map<shape, std::vector<std::size_t>>& places, std::size_t& end) {
  std::map<shape, std::size_t> used;
  std::vector<std::size_t> found(plan.own_slots().size());
  // Further slots of a request follow the first slots of all requests, whose places stay when slots are
  // added.
  for (std::size_t turn = 0; turn < 2 * found.size(); ++turn) {
    const std::uint32_t i = plan.own_slots()[turn % found.size()];
    if ((i >= plan.requests()) != (turn >= found.size())) continue;
    const shape key{plan.all_slots()[i].max_bytes, plan.alignment_of(i)};
    std::vector<std::size_t>& known = places[key];
    const std::size_t n = used[key]++;
    if (n == known.size()) {
      known.push_back(align_up(end, key.second));
      end = known.back() + key.first;
    }
    found[turn % found.size()] = known[n];
  }
  return found;
}

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
    std::map<shape, std::vector<std::size_t>> places;
    std::vector<std::pair<plan_replayer*, std::vector<std::size_t>>> found;
    std::size_t end = 0, alignment = 1;
    for (kind_of_step const& one : kinds_) {
      if (one.plan == nullptr) continue;
      found.emplace_back(one.plan.get(), has_prefix_
                                             ? find_places(*one.plan, places, end)
                                             : std::vector<std::size_t>(one.plan->own_slots().size()));
      alignment = std::max(alignment, one.plan->alignment());
    }
    prefix_end_ = align_up(end, alignment);
    for (auto const& [plan, offsets] : found) plan->lay_out(offsets, prefix_end_);
  } catch (std::exception const&) {
    // Without memory each plan keeps its places. The plans are then in each other's way, and miss.
  }
}

}  // namespace tidemark::detail
