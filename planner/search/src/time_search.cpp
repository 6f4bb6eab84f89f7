// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Along time".
#include "time_search.hpp"

#include <algorithm>
#include <array>
#include <ranges>
#include <tuple>
#include <utility>

#include "problem.hpp"

namespace tidemark::planner::detail {
namespace {

// Of each stage at a moment.
constexpr std::size_t max_choices = 64;
// The nearest of them.
constexpr std::size_t max_old_gaps = 48;
// Of a gap: places to which some of it can move.
constexpr std::size_t max_spares = 2;

[[nodiscard]] bool contains(std::vector<std::uint32_t> const& some, std::uint32_t one) {
  return std::ranges::find(some, one) != some.end();
}

/// Those of some whose bits are set.
[[nodiscard]] std::vector<std::uint32_t> chosen(std::vector<std::uint32_t> const& some, std::uint32_t bits) {
  std::vector<std::uint32_t> made;
  for (std::size_t k = 0; k < some.size(); ++k) {
    if ((bits >> k & 1U) != 0) made.push_back(some[k]);
  }
  return made;
}

}  // namespace

bool time_search::is_for(problem const& instance) {
  // A tree can be as deep as there are leaves: some hundred bytes of the thread's stack a node.
  constexpr std::size_t max_buffers = 2048;
  return !instance.graph && instance.buffers.size() <= max_buffers && can_lie_anywhere(instance);
}

time_search::time_search(solver_context& context)
    : context_{&context},
      instance_{&context.instance()},
      random_{context.seed()},
      leaf_of_(instance_->buffers.size()),
      offsets_(instance_->buffers.size()) {
  if (is_for(*instance_)) find_moments();
}

void time_search::find_moments() {
  const auto lifetime_of = [&](std::uint32_t i) {
    range const moments = instance_->buffers[i].moments;
    return lifetime{.lower = moments.begin, .upper = moments.end};
  };
  auto& [forwards, backwards] = moments_;
  std::uint64_t last = 0;
  for (event const& e : events_of(instance_->buffers.size(), lifetime_of)) {
    if (forwards.empty() || e.moment != last) forwards.emplace_back();
    last = e.moment;
    (e.birth ? forwards.back().births : forwards.back().deaths).push_back(e.number);
  }
  backwards.assign(forwards.rbegin(), forwards.rend());
  for (moment& each : backwards) std::swap(each.births, each.deaths);
  levels_.resize(forwards.size());
  find_deaths();
}

void time_search::find_deaths() {
  for (std::size_t direction = 0; direction < 2; ++direction) {
    std::vector<moment> const& moments = moments_[direction];
    death_of_[direction].resize(instance_->buffers.size());
    for (std::uint32_t m = 0; m < moments.size(); ++m) {
      for (std::uint32_t i : moments[m].deaths) death_of_[direction][i] = m;
    }
  }
}

outcome time_search::probe(offset_type height, std::uint64_t max_nodes) {
  constexpr std::uint64_t min_failures = 100;
  height_ = height;
  nodes_end_ = context_->nodes() + max_nodes;
  while (context_->nodes() < nodes_end_ && !context_->done()) {
    if (try_again(min_failures + 2 * tries_++)) return outcome::found;
  }
  return outcome::unknown;
}

/// @return whether it came to the last moment.
bool time_search::try_again(std::uint64_t max_failures) {
  begin_try();
  while (at_ < levels_.size()) {
    level& here = levels_[at_];
    restore(here);
    if (!context_->count_node(leaves_.size()) || context_->nodes() > nodes_end_) return false;
    if (here.next_choice < here.choices.size() || find_choices(here)) {
      if (!apply(here.choices[here.next_choice++]) || !later_deaths_gather()) continue;
      if (trees_.sizes().children > max_tree_children) return false;
      if (++at_ > furthest_) failures_there_ = 0;
      furthest_ = std::max(furthest_, at_);
      if (at_ < levels_.size()) enter();
      continue;
    }
    if (at_ == 0 || failures_++ == max_failures) return false;
    go_back();
  }
  find_offsets();
  return true;
}

void time_search::begin_try() {
  backwards_ = tries_ % 2 == 0;
  looks_ahead_ = tries_ / 2 % 2 == 1;
  is_passed_over_.assign(levels_.size(), false);
  for (std::size_t m = 0; m < levels_.size() && tries_ > 4; ++m) is_passed_over_[m] = random_() % 8 == 0;
  at_ = furthest_ = 0;
  failures_ = failures_there_ = 0;
  trees_.cut({});
  steps_.clear();
  cuts_.clear();
  leaves_.assign(1, {.size = height_, .is_gap = true});
  tree_ = trees_.add(leaves{0});
  if (!levels_.empty()) enter();
}

/// Begins with the choices of a moment.
void time_search::enter() {
  for (std::uint32_t i : now().deaths) leaves_[leaf_of_[i]].is_gap = true;
  level& here = levels_[at_];
  here.tree = tree_;
  here.tree_size = trees_.sizes();
  here.leaf_n = leaves_.size();
  here.step_n = steps_.size();
  here.cut_n = cuts_.size();
  here.next_stage = stage::one_gap_more;
  here.choices.clear();
  here.next_choice = 0;
  find_gaps(here);
}

/// What died is live again.
void time_search::leave() {
  restore(levels_[at_]);
  for (std::uint32_t i : now().deaths) leaves_[leaf_of_[i]].is_gap = false;
  --at_;
}

/// All is as it was before the choice of a level.
void time_search::restore(level const& at) {
  tree_ = at.tree;
  trees_.cut(at.tree_size);
  for (; cuts_.size() > at.cut_n; cuts_.pop_back()) {
    leaf& spare = leaves_[leaves_[cuts_.back()].spare];
    leaves_[cuts_.back()].size += std::exchange(spare.size, 0);
  }
  leaves_.resize(at.leaf_n);
  steps_.resize(at.step_n);
}

/// Goes back to an earlier level. What is to blame is not known, so that it goes back further the more often no
/// try came further.
void time_search::go_back() {
  constexpr std::uint64_t failures_to_double = 6;
  constexpr std::uint64_t max_doublings = 10;
  const std::uint64_t doublings = std::min(++failures_there_ / failures_to_double, max_doublings);
  const std::uint64_t levels = 1 + random_() % (std::uint64_t{1} << doublings);
  for (std::uint64_t k = 0; k < levels && at_ != 0; ++k) leave();
}

/// Whether what dies at each later moment can still lie together then, as far as it is live now. What was born
/// later, what died before, and gaps can lie anywhere. It is not so at a moment when buffers die in two places, so
/// that only some tries look ahead, and they pass over some moments.
bool time_search::later_deaths_gather() {
  constexpr std::size_t max_moments = 128;
  if (!looks_ahead_) return true;
  std::vector<std::uint32_t> const& death_of = death_of_[backwards_ ? 1 : 0];
  deaths_of_leaves_.clear();
  for (leaf const& each : leaves_) deaths_of_leaves_.push_back(each.is_gap ? 0 : death_of[each.buffer]);
  const std::size_t end = std::min(levels_.size(), at_ + 1 + max_moments);
  for (std::size_t m = at_ + 1; m < end; ++m) {
    if (is_passed_over_[m] || moments_[backwards_ ? 1 : 0][m].deaths.size() < 2) continue;
    if (!context_->count_steps(leaves_.size())) return false;  // the try ends
    if (!trees_.can_gather(tree_, deaths_of_leaves_, static_cast<std::uint32_t>(m))) return false;
  }
  return true;
}

offset_type time_search::size_of(std::span<order_tree::leaf_number const> gaps) const {
  offset_type sum = 0;
  for (order_tree::leaf_number each : gaps) sum += leaves_[each].size;
  return sum;
}

offset_type time_search::bytes_of(order const& births) const {
  offset_type sum = 0;
  for (std::uint32_t i : births) sum += instance_->buffers[i].size;
  return sum;
}

/// @return whether there are orders of the row in which the gaps lie beside each other.
bool time_search::apply(choice const& made) {
  return std::ranges::all_of(made, [&](exchange const& each) { return apply(each); });
}

bool time_search::apply(exchange const& made) {
  leaves added;
  const auto add = [&](leaf const& next) {
    added.push_back(static_cast<order_tree::leaf_number>(leaves_.size()));
    leaves_.push_back(next);
  };
  if (made.part != 0) cut(made.gaps.back(), made.part);
  offset_type left = size_of(made.gaps);
  for (std::uint32_t i : made.births) {
    add({.size = instance_->buffers[i].size, .buffer = i});
    leaf_of_[i] = added.back();
    left -= leaves_.back().size;
  }
  if (left != 0) {
    order_tree::leaf_number spare = no_rank;
    for (std::size_t k = std::min(made.births.size(), max_spares); k != 0; --k) {
      add({.is_gap = true, .spare = spare});
      spare = added.back();
    }
    add({.size = left, .is_gap = true, .spare = spare});
  }
  const auto replaced = trees_.replace(without_spares_of(made.gaps), made.gaps, added);
  if (!replaced) return false;
  steps_.push_back({tree_, made.gaps, std::move(added)});
  tree_ = *replaced;
  return true;
}

/// The tree without the empty spare gaps of some.
order_tree::node_number time_search::without_spares_of(leaves const& gaps) {
  leaves spares;
  for (order_tree::leaf_number each : gaps) {
    for (std::uint32_t next = leaves_[each].spare; next != no_rank && leaves_[next].size == 0;
         next = leaves_[next].spare)
      spares.push_back(next);
  }
  return spares.empty() ? tree_ : trees_.without(tree_, spares);
}

bool time_search::can_cut(order_tree::leaf_number gap) const {
  const order_tree::leaf_number spare = leaves_[gap].spare;
  return spare != no_rank && leaves_[spare].size == 0;
}

/// The bytes of a gap that are no part of it lie in its spare one from now on.
void time_search::cut(order_tree::leaf_number gap, offset_type part) {
  leaves_[leaves_[gap].spare].size = leaves_[gap].size - part;
  leaves_[gap].size = part;
  cuts_.push_back(gap);
}

// ---- which gaps -------------------------------------------------------------------------------------------

void time_search::find_gaps(level& at) {
  at.needed = bytes_of(now().births);
  at.fresh.clear();
  for (std::uint32_t i : now().deaths) at.fresh.push_back(leaf_of_[i]);
  leaves row;
  trees_.leaves_of(tree_, row);
  at.old.clear();
  at.all_gaps = true;
  for (order_tree::leaf_number each : row) {
    at.all_gaps = at.all_gaps && leaves_[each].is_gap;
    if (leaves_[each].is_gap && leaves_[each].size != 0 && !contains(at.fresh, each)) at.old.push_back(each);
  }
  if (!at.all_gaps) sort_by_distance(at);
}

/// Sorts the old gaps by how many leaves are below the lowest node around one and all that are fresh.
void time_search::sort_by_distance(level& at) {
  std::vector<std::tuple<std::size_t, offset_type, order_tree::leaf_number>> keys;
  leaves around;
  for (order_tree::leaf_number each : at.old) {
    if (!context_->count_steps(leaves_.size())) break;  // the try ends, with whichever were looked at
    around.clear();
    if (!at.fresh.empty()) {
      at.fresh.push_back(each);
      trees_.leaves_around(tree_, at.fresh, around);
      at.fresh.pop_back();
    }
    keys.emplace_back(around.size(), leaves_[each].size, each);
  }
  std::ranges::sort(keys);
  keys.resize(std::min(keys.size(), max_old_gaps));
  at.old.clear();
  for (auto const& key : keys) at.old.push_back(std::get<2>(key));
}

/// Finds more choices, the likely ones first. @return whether there are any.
bool time_search::find_choices(level& at) {
  at.choices.clear();
  at.next_choice = 0;
  while (at.choices.empty() && at.next_stage != stage::none) {
    const stage which = at.next_stage;
    at.next_stage = static_cast<stage>(static_cast<unsigned>(which) + 1);
    if (at.all_gaps || now().births.empty()) at.next_stage = stage::none;
    find_choices_of(at, which);
  }
  shuffle_choices(at);
  return !at.choices.empty();
}

void time_search::find_choices_of(level& at, stage which) {
  if (now().births.empty()) {
    // One gap, if they lie beside each other; each by itself.
    if (!at.all_gaps && at.fresh.size() > 1) add_choice(at, at.fresh);
    at.choices.emplace_back();
    return;
  }
  if (at.all_gaps) {
    at.fresh.insert(at.fresh.end(), at.old.begin(), at.old.end());
    add_choice(at, at.fresh);
    return;
  }
  switch (which) {
    case stage::one_gap_more:
      add_choice(at, at.fresh);
      add_with_one(at, at.fresh);
      return;
    case stage::around:
      add_around(at);
      return;
    case stage::two_places:
      add_two_places(at);
      return;
    case stage::two_gaps_more:
      add_with_exactly_three(at);
      add_with_two(at, at.fresh);
      return;
    case stage::one_less:
      for (std::size_t k = 0; k < at.fresh.size(); ++k) {
        leaves some = at.fresh;
        some.erase(some.begin() + static_cast<std::ptrdiff_t>(k));
        add_choice(at, some);
        add_with_one(at, some);
      }
      return;
    case stage::none:
      return;
  }
}

/// Lets some neighbors change places: many or few of them, by the try.
void time_search::shuffle_choices(level& at) {
  if (tries_ <= 2) return;
  const std::uint64_t one_in = std::uint64_t{4} << (tries_ / 2 % 6);
  for (std::size_t k = 1; k < at.choices.size(); ++k) {
    if (random_() % one_in == 0) std::swap(at.choices[k - 1], at.choices[k]);
  }
}

void time_search::add_choice(level& at, leaves gaps) {
  if (gaps.empty() || size_of(gaps) < at.needed || at.choices.size() >= max_choices) return;
  at.choices.push_back({{std::move(gaps), now().births}});
}

/// These and a part of one old gap, with which nothing is left over of their place.
void time_search::add_with_part(level& at, leaves const& some) {
  const offset_type has = size_of(some);
  if (has >= at.needed) return;
  for (order_tree::leaf_number each : at.old) {
    if (has + leaves_[each].size <= at.needed || !can_cut(each) || at.choices.size() >= max_choices) continue;
    at.choices.push_back({{some, now().births, at.needed - has}});
    at.choices.back().back().gaps.push_back(each);
  }
}

/// These and one old gap: those that are just large enough first.
void time_search::add_with_one(level& at, leaves const& some) {
  const offset_type has = size_of(some);
  for (bool exact : {true, false}) {
    if (!exact) add_with_part(at, some);
    for (order_tree::leaf_number each : at.old) {
      if ((has + leaves_[each].size == at.needed) != exact) continue;
      leaves with = some;
      with.push_back(each);
      add_choice(at, std::move(with));
    }
  }
}

void time_search::add_with_two(level& at, leaves const& some) {
  const offset_type has = size_of(some);
  for (bool exact : {true, false}) {
    for (std::size_t second = 1; second < at.old.size(); ++second) {
      for (std::size_t first = 0; first < second; ++first) {
        const offset_type sum = has + leaves_[at.old[first]].size + leaves_[at.old[second]].size;
        if ((sum == at.needed) != exact) continue;
        leaves with = some;
        with.insert(with.end(), {at.old[first], at.old[second]});
        add_choice(at, std::move(with));
      }
    }
  }
}

/// The fresh ones and three of the nearest old gaps that are just large enough.
void time_search::add_with_exactly_three(level& at) {
  constexpr std::size_t max_near = 16;
  const std::size_t n = std::min(at.old.size(), max_near);
  const offset_type has = size_of(at.fresh);
  for (std::size_t third = 2; third < n; ++third) {
    for (std::size_t second = 1; second < third; ++second) {
      for (std::size_t first = 0; first < second; ++first) {
        leaves with{at.old[first], at.old[second], at.old[third]};
        if (has + size_of(with) != at.needed) continue;
        with.insert(with.begin(), at.fresh.begin(), at.fresh.end());
        if (!context_->count_steps(leaves_.size())) return;
        if (lie_together(with)) add_choice(at, std::move(with));
      }
    }
  }
}

/// All gaps below the lowest node around the fresh ones, and then below those around them and an old one; of two
/// old ones, where nothing died.
void time_search::add_around(level& at) {
  std::size_t widest = 0;
  const auto add = [&](leaves const& these) {
    leaves around;
    trees_.leaves_around(tree_, these, around);
    std::erase_if(around, [&](order_tree::leaf_number each) {
      return !leaves_[each].is_gap || leaves_[each].size == 0;
    });
    if (at.fresh.empty() || around.size() > widest) add_choice(at, around);
    widest = std::max(widest, around.size());
  };
  if (!at.fresh.empty()) add(at.fresh);
  for (std::size_t k = 0; k < at.old.size(); ++k) {
    leaves these = at.fresh;
    these.push_back(at.old[k]);
    if (at.fresh.empty() && k != 0) these.push_back(at.old[k - 1]);
    add(these);
  }
}

/// Whether there are orders of the row in which these lie beside each other.
bool time_search::lie_together(leaves const& gaps) {
  const order_tree::size before = trees_.sizes();
  const bool can =
      gaps.size() < 2 || trees_.replace(without_spares_of(gaps), gaps, leaves{gaps.front()}).has_value();
  trees_.cut(before);
  return can;
}

/// The gaps that can take some of what is born: some of those that are fresh, or they and an old one.
std::vector<time_search::exchange> time_search::exchanges_of(level const& at, leaves const& gaps,
                                                             order const& births) const {
  constexpr std::size_t max_larger = 4;
  std::vector<exchange> made;
  const offset_type has = size_of(gaps), needs = bytes_of(births);
  if (!gaps.empty() && has >= needs) made.push_back({gaps, births});
  std::size_t larger = 0;
  for (order_tree::leaf_number each : at.old) {
    const offset_type with = has + leaves_[each].size;
    if (births.empty() || with < needs || (with > needs && (!gaps.empty() || ++larger > max_larger)))
      continue;
    made.push_back({gaps, births});
    made.back().gaps.push_back(each);
  }
  return made;
}

/// Two places at once, with some of the fresh gaps and some of what is born each: those first that leave the
/// fewest gaps.
void time_search::add_two_places(level& at) {
  constexpr std::size_t max_both = 14;  // of which all subsets are tried
  order const& births = now().births;
  if (at.fresh.size() + births.size() > max_both) return;
  const std::uint32_t all_gaps = (1U << at.fresh.size()) - 1;
  const std::uint32_t all_births = (1U << births.size()) - 1;
  std::array<std::vector<choice>, 3> by_gaps_left;
  const auto leaves_gap = [&](exchange const& each) { return size_of(each.gaps) > bytes_of(each.births); };
  for (std::uint32_t some_gaps = 0; some_gaps <= all_gaps / 2; ++some_gaps) {
    if (!context_->count_steps(2 * leaves_.size())) return;
    const leaves gaps = chosen(at.fresh, some_gaps), other_gaps = chosen(at.fresh, all_gaps - some_gaps);
    if (!lie_together(gaps) || !lie_together(other_gaps)) continue;
    for (std::uint32_t some = some_gaps == 0 ? 1 : 0; some <= all_births; ++some) {
      const std::vector<exchange> seconds = exchanges_of(at, other_gaps, chosen(births, all_births - some));
      if (seconds.empty()) continue;
      for (exchange const& first : exchanges_of(at, gaps, chosen(births, some))) {
        for (exchange const& second : seconds) {
          if (first.gaps.back() == second.gaps.back()) continue;
          auto& similar = by_gaps_left[(leaves_gap(first) ? 1U : 0U) + (leaves_gap(second) ? 1U : 0U)];
          if (similar.size() < max_choices) similar.push_back({first, second});
        }
      }
    }
  }
  for (std::vector<choice> const& similar : by_gaps_left)
    at.choices.insert(at.choices.end(), similar.begin(), similar.end());
}

// ---- the layout -------------------------------------------------------------------------------------------

void time_search::take_offsets(leaves const& row) {
  offset_type offset = 0;
  for (order_tree::leaf_number each : row) {
    if (leaves_[each].buffer != no_rank) offsets_[leaves_[each].buffer] = offset;
    offset += leaves_[each].size;
  }
}

/// Goes back from some order at the last moment. An exchange removed as much as it added, in one place, and left
/// the others where they were.
void time_search::find_offsets() {
  leaves row;
  trees_.leaves_of(tree_, row);
  take_offsets(row);
  std::vector<double> positions(leaves_.size());
  for (step const& made : steps_ | std::views::reverse) {
    std::ranges::fill(positions, order_tree::no_position);
    for (std::size_t k = 0; k < row.size(); ++k) positions[row[k]] = static_cast<double>(k);
    auto first = static_cast<double>(row.size());
    for (order_tree::leaf_number each : made.added) {
      if (positions[each] != order_tree::no_position) first = std::min(first, positions[each]);
    }
    for (order_tree::leaf_number each : made.removed) positions[each] = first;
    row.clear();
    trees_.leaves_by(made.before, positions, row);
    take_offsets(row);
  }
}

}  // namespace tidemark::planner::detail
