// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Full steps".
#include "time_pass.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <ranges>
#include <utility>

#include "stages.hpp"
#include "time_search.hpp"

namespace tidemark::planner::detail {
namespace {

/// Finds some of few numbers that have a given sum, from the sums of the one half and of the other.
class subset_sums {
 public:
  /// @pre at most 31
  explicit subset_sums(std::span<offset_type const> numbers)
      : low_n_{numbers.size() / 2},
        low_(subsets_of(numbers.first(low_n_))),
        high_(subsets_of(numbers.subspan(low_n_))) {}

  /// @return the members as bits; 0: there are none
  [[nodiscard]] std::uint32_t find(offset_type sum) const {
    for (subset const& high : high_) {
      if (high.sum > sum) break;
      const auto low = std::ranges::lower_bound(low_, sum - high.sum, {}, &subset::sum);
      if (low != low_.end() && low->sum == sum - high.sum) return low->members | high.members << low_n_;
    }
    return 0;
  }

  /// How many sums a call looks at.
  [[nodiscard]] std::uint64_t steps() const {
    return high_.size() * static_cast<std::uint64_t>(std::bit_width(low_.size()));
  }

 private:
  struct subset {
    offset_type sum = 0;
    std::uint32_t members = 0;  // bits
    friend auto operator<=>(subset const&, subset const&) = default;
  };

  /// In rising sum.
  static std::vector<subset> subsets_of(std::span<offset_type const> numbers) {
    std::vector<subset> made(std::size_t{1} << numbers.size());
    for (std::uint32_t bits = 1; bits < made.size(); ++bits) {
      const auto last = static_cast<std::size_t>(std::countr_zero(bits));
      made[bits] = {made[bits & (bits - 1)].sum + numbers[last], bits};
    }
    std::ranges::sort(made);
    return made;
  }

  std::size_t low_n_;
  std::vector<subset> low_;
  std::vector<subset> high_;
};

}  // namespace

bool time_pass::is_for(problem const& instance) { return !instance.graph && can_lie_anywhere(instance); }

time_pass::time_pass(solver_context& context) : context_{&context}, instance_{&context.instance()} {
  std::vector<buffer> const& all = instance_->buffers;
  by_begin_ = numbers_by(all.size(), [&](std::uint32_t i) { return all[i].lifespan.begin; });
  by_end_ = numbers_by(all.size(), [&](std::uint32_t i) { return all[i].lifespan.end; });
}

bool time_pass::place(offset_type height) {
  std::vector<buffer> const& all = instance_->buffers;
  const auto whole = static_cast<leaf_number>(all.size());  // the memory before the first section is one gap
  sizes_.clear();
  for (buffer const& each : all) sizes_.push_back(each.size);
  sizes_.push_back(height);
  exchanges_.clear();
  exchanged_.clear();
  steps_ = counted_steps_ = 0;
  tree_.restart(leaves{whole});
  leaves died{whole}, born;
  next_ = {};
  while (next_.section < instance_->section_count) {
    go_on(next_, died, born);
    const bool placed = exchange(died, born) || exchange_in_parts(died, born);
    if (!count_steps(born.size()) || !placed) return false;
    died.clear();
    born.clear();
  }
  offer_layout();
  return true;
}

/// Adds what dies and what is born before the next section.
void time_pass::go_on(position& at, leaves& died, leaves& born) const {
  std::vector<buffer> const& all = instance_->buffers;
  for (; at.ended < by_end_.size() && all[by_end_[at.ended]].lifespan.end <= at.section; ++at.ended)
    died.push_back(by_end_[at.ended]);
  for (; at.begun < by_begin_.size() && all[by_begin_[at.begun]].lifespan.begin <= at.section; ++at.begun)
    born.push_back(by_begin_[at.begun]);
  ++at.section;
}

/// @return whether the pass goes on.
bool time_pass::count_steps(std::size_t placed) {
  for (; placed != 0; --placed) {
    if (!context_->count_node(0)) return false;
  }
  const std::uint64_t steps = steps_ - std::exchange(counted_steps_, steps_);
  return context_->count_steps(steps) && steps_ <= max_steps();
}

offset_type time_pass::size_of(leaves const& some) const {
  offset_type sum = 0;
  for (leaf_number each : some) sum += sizes_[each];
  return sum;
}

/// Puts what is born, and a gap of what is left over, in the place of what died. @return whether that can lie together
bool time_pass::exchange(leaves const& died, leaves const& born) {
  const offset_type has = size_of(died), needs = size_of(born);
  if (has < needs) return false;
  leaves added = born;
  if (has != needs) {
    added.push_back(static_cast<leaf_number>(sizes_.size()));
    sizes_.push_back(has - needs);
  }
  const auto made = tree_.replace(died, added);
  steps_ += tree_.steps();
  if (!made) return false;
  const auto at = [&] { return static_cast<std::uint32_t>(exchanged_.size()); };
  exchange_made& next = exchanges_.emplace_back();
  next.died = at();
  exchanged_.insert(exchanged_.end(), made->removed.begin(), made->removed.end());
  next.born = at();
  exchanged_.insert(exchanged_.end(), added.begin(), added.end());
  next.end = at();
  next.beside = made->beside;
  next.is_before = made->is_before;
  return true;
}

/// Where several parts of a step change at one moment: finds groups of what died, and births with the same sum.
bool time_pass::exchange_in_parts(leaves const& died, leaves const& born) {
  constexpr std::size_t max_groups = 8, max_born = 24;
  if (died.size() < 2 || born.size() < 2 || born.size() > max_born || size_of(died) != size_of(born))
    return false;
  const std::vector<leaves> groups = tree_.groups_of(died);
  steps_ += tree_.steps();
  if (groups.size() < 2 || groups.size() > max_groups) return false;
  std::vector<offset_type> sizes;
  for (leaf_number each : born) sizes.push_back(sizes_[each]);
  const subset_sums sums{sizes};
  // One group is never in the first part.
  for (std::uint32_t some = 1; some < 1U << (groups.size() - 1); ++some) {
    std::array<leaves, 2> gaps, births;
    for (std::size_t k = 0; k < groups.size(); ++k) {
      leaves& part = gaps[some >> k & 1U];
      part.insert(part.end(), groups[k].begin(), groups[k].end());
    }
    const std::uint32_t members = sums.find(size_of(gaps[1]));
    steps_ += sums.steps() + died.size();
    if (members == 0 || !tree_.can_replace(gaps[1])) continue;
    for (std::size_t k = 0; k < born.size(); ++k) births[members >> k & 1U].push_back(born[k]);
    return exchange(gaps[1], births[1]) &&
           (exchange(gaps[0], births[0]) || exchange_in_parts(gaps[0], births[0]));
  }
  return false;
}

/// Goes back from some order at the last moment. What died lay where is now what was born then, in the order in which
/// it was beside what stayed.
void time_pass::offer_layout() {
  std::vector<offset_type> offsets(sizes_.size());
  offset_type at = 0;
  const auto put = [&](leaf_number leaf) {
    offsets[leaf] = at;
    at += sizes_[leaf];
  };
  for (leaf_number leaf : tree_.leaves()) put(leaf);
  for (exchange_made const& each : exchanges_ | std::views::reverse) {
    const auto leaf_at = [&](std::uint32_t k) { return exchanged_.begin() + static_cast<std::ptrdiff_t>(k); };
    const std::span died(leaf_at(each.died), leaf_at(each.born));
    at = no_offset;
    for (leaf_number leaf : std::span(leaf_at(each.born), leaf_at(each.end)))
      at = std::min(at, offsets[leaf]);
    if (each.beside != order_tree_in_place::no_leaf && (offsets[each.beside] < at) != each.is_before)
      std::ranges::reverse(died);
    for (leaf_number leaf : died) put(leaf);
  }
  offsets.resize(instance_->buffers.size());
  offset_type height = 0;
  for (std::size_t i = 0; i < offsets.size(); ++i) height = std::max(height, offsets[i] + sizes_[i]);
  context_->offer(offsets, height);
}

void place_along_time(solver_context& context) {
  // Of fewer the search goes along time, and back where it fails.
  if (context.done() || !time_pass::is_for(context.instance()) || time_search::is_for(context.instance()))
    return;
  context.enter_stage("time");
  (void)time_pass{context}.place(context.proven_bound());
}

}  // namespace tidemark::planner::detail
