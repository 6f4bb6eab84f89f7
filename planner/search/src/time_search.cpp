// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Along time".
// Each death becomes a gap, and `find_choices_of` lists the likely choices of gaps for the births, in stages.
// The PQ-tree rejects a choice whose gaps cannot be consecutive. If no choice is left, the search goes back
// some levels. The number of levels grows while no try comes further. After some failures a new try begins at
// the other end of time with some choices exchanged. `find_offsets` goes back from the last moment and puts
// removed leaves where their replacements lie.
#include "time_search.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <ranges>
#include <tuple>
#include <utility>

#include "problem.hpp"
#include "stages.hpp"

namespace tidemark::planner::detail {
namespace {

// Maximum choices of each stage at a moment.
constexpr std::size_t max_choices = 64;
// Maximum old gaps considered; the nearest are kept.
constexpr std::size_t max_old_gaps = 48;
// Maximum places to which a part of a gap can move.
constexpr std::size_t max_remainders = 2;

/// Returns the elements of `some` whose bits are set.
[[nodiscard]] std::vector<std::uint32_t> chosen(std::vector<std::uint32_t> const& some, std::uint32_t bits) {
  std::vector<std::uint32_t> made;
  for (std::size_t k = 0; k < some.size(); ++k) {
    if ((bits >> k & 1U) != 0) made.push_back(some[k]);
  }
  return made;
}

[[nodiscard]] order births_of(auto const& moment) { return {moment.births.begin(), moment.births.end()}; }

}  // namespace

time_search::time_search(solver_context& context)
    : context_{&context},
      instance_{&context.instance()},
      random_{context.seed()},
      birth_of_(instance_->buffers.size()),
      death_of_(instance_->buffers.size()),
      leaf_of_(instance_->buffers.size()),
      offsets_(instance_->buffers.size()) {
  if (is_for(*instance_)) find_moments();
}

/// If the search can go back, each time is its own moment, so that one place need not take all births.
/// Otherwise a moment has consecutive deaths and the births that follow them.
void time_search::find_moments() {
  std::vector<buffer> const& all = instance_->buffers;
  by_begin_ = numbers_by(all.size(), [&](std::uint32_t i) { return all[i].moments.begin; });
  by_end_ = numbers_by(all.size(), [&](std::uint32_t i) { return all[i].moments.end; });
  const bool splits = can_backtrack(*instance_);
  std::size_t begun = 0, ended = 0;
  for (std::uint64_t last = 0; ended != all.size();) {
    const std::uint64_t end = all[by_end_[ended]].moments.end;
    const std::uint64_t begin = begun == all.size() ? end : all[by_begin_[begun]].moments.begin;
    const bool dies = end <= begin, is_later = moments_.empty() || std::min(begin, end) != last;
    last = std::min(begin, end);
    if (is_later && (splits || moments_.empty() || (dies && begun != moments_.back().begun)))
      moments_.push_back({ended, begun});
    const auto number = static_cast<std::uint32_t>(moments_.size() - 1);
    if (dies) death_of_[by_end_[ended++]] = number;
    else birth_of_[by_begin_[begun++]] = number;
  }
  moments_.push_back({ended, begun});
}

/// Returns the deaths and births of the current level.
time_search::moment time_search::now() const {
  const std::size_t number = backwards_ ? moments_.size() - 2 - at_ : at_;
  position const &from = moments_[number], &to = moments_[number + 1];
  moment made{std::span{by_end_}.subspan(from.ended, to.ended - from.ended),
              std::span{by_begin_}.subspan(from.begun, to.begun - from.begun)};
  if (backwards_) std::swap(made.deaths, made.births);
  return made;
}

/// Returns the number of the moment at which buffer i dies, in the direction of the try.
std::uint32_t time_search::death_of(std::uint32_t i) const {
  return backwards_ ? static_cast<std::uint32_t>(moments_.size() - 2) - birth_of_[i] : death_of_[i];
}

outcome time_search::probe(offset_type height, std::uint64_t max_nodes) {
  constexpr std::uint64_t min_failures = 100;
  height_ = height;
  levels_.resize(moments_.size() - 1);
  nodes_end_ = context_->nodes() + max_nodes;
  while (context_->nodes() < nodes_end_ && !context_->done()) {
    if (try_again(min_failures + 2 * tries_++)) return outcome::found;
    if (context_->nodes() > nodes_end_) continue;  // cut off
    reached_[kind_] += (static_cast<double>(furthest_) - reached_[kind_]) / ++tried_[kind_];
  }
  return outcome::unknown;
}

/// @return true if the try reached the last moment
bool time_search::try_again(std::uint64_t max_failures) {
  // The first tries are of three different kinds. Later tries mostly repeat the kind that came furthest,
  // because usually a single kind fits a hard step.
  const auto best = static_cast<std::size_t>(std::ranges::max_element(reached_) - reached_.begin());
  kind_ = tries_ < 4 ? tries_ ^ 1U : best ^ (tries_ % 7 == 0 ? 1U : 0U) ^ (tries_ % 3 == 0 ? 2U : 0U);
  begin(kind_ % 2 == 1);
  is_passed_over_.assign(levels_.size(), false);
  for (std::size_t m = 0; m < levels_.size() && tries_ > 4; ++m) is_passed_over_[m] = random_() % 8 == 0;
  enter();
  while (at_ < levels_.size()) {
    level& here = levels_[at_];
    restore(here.before);
    if (!context_->count_node(leaves_.size()) || context_->nodes() > nodes_end_) return false;
    if (here.next_choice < here.choices.size() || find_choices(here)) {
      if (!apply(here.choices[here.next_choice++]) || !later_deaths_gather()) continue;
      if (++at_ > furthest_) failures_there_ = 0;
      furthest_ = std::max(furthest_, at_);
      if (at_ < levels_.size()) enter();
      continue;
    }
    if (at_ == 0 || failures_++ == max_failures) return false;
    backtrack();
  }
  find_offsets();
  return true;
}

bool time_search::pass(offset_type height) {
  // Full steps took 3 to 4 steps for each buffer, measured from 5,000 to a million buffers.
  const std::uint64_t max_steps = 256 * instance_->buffers.size();
  height_ = height;
  std::uint64_t counted = 0;
  level here;
  for (begin(false); at_ + 1 < moments_.size(); ++at_) {
    find_fresh(here);
    if (!place_in_pass(here)) return false;
    for (std::size_t placed = now().births.size(); placed != 0; --placed) {
      if (!context_->count_node(0)) return false;
    }
    const std::uint64_t steps = tree_.steps() - std::exchange(counted, tree_.steps());
    if (!context_->count_steps(steps) || counted > max_steps) return false;
    tree_.forget();
  }
  find_offsets();
  return true;
}

/// Replaces the deaths of the moment as a whole, or in two parts.
bool time_search::place_in_pass(level& at) {
  at.choices.clear();
  const state before = current();
  const auto fits = [&](choice const& each) {
    if (apply(each)) return true;
    restore(before);
    return false;
  };
  if (now().births.empty()) return true;
  add_choice(at, at.fresh);
  if (std::ranges::any_of(at.choices, fits)) return true;
  at.choices.clear();
  add_two_places(at);
  return std::ranges::any_of(at.choices, fits);
}

/// Starts a try with the whole memory as one gap.
void time_search::begin(bool backwards) {
  backwards_ = backwards;
  at_ = furthest_ = 0;
  failures_ = failures_there_ = 0;
  steps_.clear();
  exchanged_.clear();
  cuts_.clear();
  leaves_.assign(1, {.is_gap = true});
  sizes_.assign(1, height_);
  tree_.restart(leaves{0});
}

/// Prepares the choices of the current moment.
void time_search::enter() {
  level& here = levels_[at_];
  here.before = current();
  here.next_stage = stage::one_gap_more;
  here.choices.clear();
  here.next_choice = 0;
  find_fresh(here);
  find_old(here);
}

/// Returns to the previous level. The deaths of the current moment become live again.
void time_search::exit_level() {
  restore(levels_[at_].before);
  for (std::uint32_t i : now().deaths) leaves_[leaf_of_[i]].is_gap = false;
  --at_;
}

time_search::state time_search::current() const {
  return {tree_.now(), leaves_.size(), steps_.size(), exchanged_.size(), cuts_.size()};
}

/// Restores the state before a choice.
void time_search::restore(state const& at) {
  tree_.undo(at.tree);
  for (; cuts_.size() > at.cut_n; cuts_.pop_back())
    sizes_[cuts_.back()] += std::exchange(sizes_[leaves_[cuts_.back()].remainder], 0);
  leaves_.resize(at.leaf_n);
  sizes_.resize(at.leaf_n);
  steps_.resize(at.step_n);
  exchanged_.resize(at.exchanged_n);
}

/// Goes back to an earlier level. The cause of a failure is unknown, so the distance grows the more failures
/// occur without progress.
void time_search::backtrack() {
  constexpr std::uint64_t failures_to_double = 6, max_doublings = 10;
  const std::uint64_t doublings = std::min(++failures_there_ / failures_to_double, max_doublings);
  const std::uint64_t levels = 1 + random_() % (std::uint64_t{1} << doublings);
  for (std::uint64_t k = 0; k < levels && at_ != 0; ++k) exit_level();
}

/// Returns true if the deaths of each later moment can still be consecutive, as far as they are live now.
/// Later births, earlier deaths and gaps can lie anywhere. The test fails for moments with deaths in two
/// places. Only some tries look ahead, and these skip some moments.
bool time_search::later_deaths_gather() {
  constexpr std::size_t max_moments = 128;
  if (kind_ < 2) return true;
  deaths_of_leaves_.clear();
  dying_n_.assign(levels_.size() + 1, 0);
  for (leaf const& each : leaves_) {
    deaths_of_leaves_.push_back(each.is_gap ? 0 : death_of(each.buffer));
    ++dying_n_[deaths_of_leaves_.back()];
  }
  const std::size_t end = std::min(levels_.size(), at_ + 1 + max_moments);
  for (std::size_t m = at_ + 1; m < end; ++m) {
    if (is_passed_over_[m] || dying_n_[m] < 2) continue;
    if (!context_->count_steps(leaves_.size())) return false;  // the try ends
    if (!tree_.can_gather(deaths_of_leaves_, static_cast<std::uint32_t>(m))) return false;
  }
  return true;
}

offset_type time_search::size_of(std::span<leaf_number const> gaps) const {
  offset_type sum = 0;
  for (leaf_number each : gaps) sum += sizes_[each];
  return sum;
}

offset_type time_search::bytes_of(std::span<std::uint32_t const> births) const {
  offset_type sum = 0;
  for (std::uint32_t i : births) sum += instance_->buffers[i].size;
  return sum;
}

/// @return true if some order of the row has the gaps of each exchange beside each other
bool time_search::apply(choice const& made) {
  return std::ranges::all_of(made, [&](exchange const& each) { return apply(each); });
}

bool time_search::apply(exchange const& made) {
  leaves added;
  const auto add = [&](leaf const& next, offset_type size) {
    added.push_back(static_cast<leaf_number>(leaves_.size()));
    leaves_.push_back(next);
    sizes_.push_back(size);
  };
  if (made.part != 0) cut(made.gaps.back(), made.part);
  offset_type left = size_of(made.gaps);
  for (std::uint32_t i : made.births) {
    add({.buffer = i}, instance_->buffers[i].size);
    leaf_of_[i] = added.back();
    left -= sizes_.back();
  }
  if (left != 0) {
    leaf_number remainder = no_rank;
    for (std::size_t k = std::min(made.births.size(), max_remainders); k != 0; --k) {
      add({.is_gap = true, .remainder = remainder}, 0);
      remainder = added.back();
    }
    add({.is_gap = true, .remainder = remainder}, left);
  }
  remove_remainders_of(made.gaps);
  const auto replaced = tree_.replace(made.gaps, added, sizes_);
  if (!replaced) return false;
  const auto append = [&](leaves const& some) {
    exchanged_.insert(exchanged_.end(), some.begin(), some.end());
    return exchanged_.size();
  };
  step next{.removed = exchanged_.size()};
  next.added = append(replaced->removed);
  next.before = append(added);
  next.behind = next.before + replaced->before_n;
  next.end = append(replaced->beside);
  steps_.push_back(next);
  return true;
}

/// Removes the empty remainders of the gaps from the row.
void time_search::remove_remainders_of(leaves const& gaps) {
  for (leaf_number each : gaps) {
    for (leaf_number next = leaves_[each].remainder; next != no_rank && sizes_[next] == 0;
         next = leaves_[next].remainder)
      tree_.remove(next);
  }
}

bool time_search::can_cut(leaf_number gap) const {
  const leaf_number remainder = leaves_[gap].remainder;
  return remainder != no_rank && sizes_[remainder] == 0;
}

/// Keeps `part` bytes of a gap. The rest lies in its first remainder from now on.
void time_search::cut(leaf_number gap, offset_type part) {
  sizes_[leaves_[gap].remainder] = sizes_[gap] - part;
  sizes_[gap] = part;
  cuts_.push_back(gap);
}

// ---- the choices of gaps ----------------------------------------------------------------------------------

/// Turns the deaths of the moment into gaps.
void time_search::find_fresh(level& at) {
  at.needed = bytes_of(now().births);
  at.fresh.clear();
  for (std::uint32_t i : now().deaths) {
    leaves_[leaf_of_[i]].is_gap = true;
    at.fresh.push_back(leaf_of_[i]);
  }
  if (at_ == 0) at.fresh.push_back(0);  // the whole memory
}

void time_search::find_old(level& at) {
  at.old.clear();
  at.all_gaps = true;
  for (leaf_number each : tree_.leaves()) {
    at.all_gaps = at.all_gaps && leaves_[each].is_gap;
    const bool is_fresh = std::ranges::find(at.fresh, each) != at.fresh.end();
    if (leaves_[each].is_gap && sizes_[each] != 0 && !is_fresh) at.old.push_back(each);
  }
  if (!at.all_gaps) sort_by_distance(at);
}

/// Sorts the old gaps by distance: the number of leaves below the lowest common ancestor of the gap and all
/// fresh gaps.
void time_search::sort_by_distance(level& at) {
  std::vector<std::tuple<std::size_t, offset_type, leaf_number>> keys;
  for (leaf_number each : at.old) {
    if (!context_->count_steps(leaves_.size())) break;  // the try ends with the gaps seen so far
    at.fresh.push_back(each);
    keys.emplace_back(at.fresh.size() > 1 ? tree_.leaves_around(at.fresh).size() : 0, sizes_[each], each);
    at.fresh.pop_back();
  }
  std::ranges::sort(keys);
  keys.resize(std::min(keys.size(), max_old_gaps));
  at.old.clear();
  for (auto const& key : keys) at.old.push_back(std::get<2>(key));
}

/// Lists further choices, the most likely first. @return false if there are no more choices
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
    // The fresh gaps become one gap if they can be consecutive. Otherwise they stay separate.
    if (!at.all_gaps && at.fresh.size() > 1) add_choice(at, at.fresh);
    at.choices.emplace_back();
    return;
  }
  if (at.all_gaps) {
    at.fresh.insert(at.fresh.end(), at.old.begin(), at.old.end());
    return add_choice(at, at.fresh);
  }
  if (which == stage::one_gap_more) return add_with_one(at, at.fresh);
  if (which == stage::around) return add_around(at);
  if (which == stage::two_places) return add_two_places(at);
  if (which == stage::two_gaps_more) return add_with_two(at);
  for (std::size_t k = 0; k < at.fresh.size(); ++k) {
    leaves some = at.fresh;
    some.erase(some.begin() + static_cast<std::ptrdiff_t>(k));
    add_with_one(at, some);
  }
}

/// Swaps some neighboring choices. The try number sets how many.
void time_search::shuffle_choices(level& at) {
  if (tries_ <= 2) return;
  const std::uint64_t one_in = std::uint64_t{4} << (tries_ / 4 % 6);
  for (std::size_t k = 1; k < at.choices.size(); ++k) {
    if (random_() % one_in == 0) std::swap(at.choices[k - 1], at.choices[k]);
  }
}

void time_search::add_choice(level& at, leaves gaps, offset_type part) {
  if (gaps.empty() || size_of(gaps) < at.needed || at.choices.size() >= max_choices) return;
  at.choices.push_back({{std::move(gaps), births_of(now()), part}});
}

/// Adds a choice of some gaps and some old gaps. Takes `part` bytes of the last gap, or all of it if `part`
/// is 0.
void time_search::add_with(level& at, leaves some, leaves const& old, offset_type part) {
  some.insert(some.end(), old.begin(), old.end());
  add_choice(at, std::move(some), part);
}

/// Adds these gaps alone, then with one old gap. Exactly filling gaps come first, then parts of larger gaps
/// that leave nothing over.
void time_search::add_with_one(level& at, leaves const& some) {
  add_choice(at, some);
  const offset_type has = size_of(some);
  const auto add_each = [&](auto is_next, offset_type part) {
    for (leaf_number each : at.old) {
      if (is_next(each)) add_with(at, some, {each}, part);
    }
  };
  const auto is_exact = [&](leaf_number each) { return has + sizes_[each] == at.needed; };
  const auto is_larger = [&](leaf_number each) { return has + sizes_[each] > at.needed && can_cut(each); };
  add_each(is_exact, 0);
  if (has < at.needed) add_each(is_larger, at.needed - has);
  add_each(std::not_fn(is_exact), 0);
}

/// Adds the fresh gaps with three old gaps, then with two, exactly filling choices first.
void time_search::add_with_two(level& at) {
  add_with_exactly_three(at);
  const offset_type has = size_of(at.fresh);
  for (bool exact : {true, false}) {
    for (std::size_t second = 1; second < at.old.size(); ++second) {
      for (std::size_t first = 0; first < second; ++first) {
        const offset_type sum = has + sizes_[at.old[first]] + sizes_[at.old[second]];
        if ((sum == at.needed) == exact) add_with(at, at.fresh, {at.old[first], at.old[second]});
      }
    }
  }
}

/// Adds the fresh gaps with three of the nearest old gaps that are exactly large enough.
void time_search::add_with_exactly_three(level& at) {
  const std::size_t n = std::min<std::size_t>(at.old.size(), 16);
  for (std::size_t third = 2; third < n; ++third) {
    for (std::size_t second = 1; second < third; ++second) {
      for (std::size_t first = 0; first < second; ++first) {
        leaves gaps = at.fresh;
        gaps.insert(gaps.end(), {at.old[first], at.old[second], at.old[third]});
        if (size_of(gaps) != at.needed) continue;
        if (!context_->count_steps(leaves_.size())) return;
        if (are_consecutive(gaps)) add_choice(at, std::move(gaps));
      }
    }
  }
}

/// Adds all gaps below the lowest common ancestor of the fresh gaps, then of the fresh gaps and each old gap.
/// Without fresh gaps, takes the ancestor of two old gaps.
void time_search::add_around(level& at) {
  std::size_t widest = 0;
  const auto add = [&](leaves const& these) {
    leaves around = tree_.leaves_around(these);
    std::erase_if(around, [&](leaf_number each) { return !leaves_[each].is_gap || sizes_[each] == 0; });
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

/// Returns true if some order of the row has these gaps beside each other.
bool time_search::are_consecutive(leaves const& gaps) {
  if (gaps.size() < 2) return true;
  const order_tree::mark before = tree_.now();
  remove_remainders_of(gaps);
  const bool can = tree_.can_replace(gaps);
  tree_.undo(before);
  return can;
}

/// Returns the exchanges that can take these births: the given gaps alone, or with one old gap.
std::vector<time_search::exchange> time_search::exchanges_of(level const& at, leaves const& gaps,
                                                             order const& births) const {
  constexpr std::size_t max_larger = 4;
  std::vector<exchange> made;
  const offset_type has = size_of(gaps), needs = bytes_of(births);
  if (!gaps.empty() && has >= needs) made.push_back({gaps, births});
  std::size_t larger = 0;
  for (leaf_number each : at.old) {
    const offset_type with = has + sizes_[each];
    if (births.empty() || with < needs || (with > needs && (!gaps.empty() || ++larger > max_larger)))
      continue;
    made.push_back({gaps, births});
    made.back().gaps.push_back(each);
  }
  return made;
}

/// Adds choices with two places. Each place takes a part of the fresh gaps and a part of the births. Choices
/// that leave the fewest gaps come first.
void time_search::add_two_places(level& at) {
  constexpr std::size_t max_both = 14;  // all subsets of this many are tried
  const order births = births_of(now());
  if (at.fresh.size() + births.size() > max_both) return;
  const std::uint32_t all_gaps = (1U << at.fresh.size()) - 1;
  const std::uint32_t all_births = (1U << births.size()) - 1;
  std::vector<offset_type> needed(all_births + std::size_t{1});  // by chosen births
  for (std::uint32_t some = 1; some <= all_births; ++some) needed[some] = bytes_of(chosen(births, some));
  offset_type largest = 0;
  for (leaf_number each : at.old) largest = std::max(largest, sizes_[each]);
  std::array<std::vector<choice>, 3> by_gaps_left;
  const auto leaves_gap = [&](exchange const& each) { return size_of(each.gaps) > bytes_of(each.births); };
  for (std::uint32_t some_gaps = 0; some_gaps <= all_gaps / 2; ++some_gaps) {
    if (!context_->count_steps(2 * leaves_.size())) return;
    const leaves gaps = chosen(at.fresh, some_gaps), other_gaps = chosen(at.fresh, all_gaps - some_gaps);
    if (!are_consecutive(gaps) || !are_consecutive(other_gaps)) continue;
    const offset_type room = size_of(gaps) + largest, other_room = size_of(other_gaps) + largest;
    for (std::uint32_t some = some_gaps == 0 ? 1 : 0; some <= all_births; ++some) {
      if (needed[some] > room || needed[all_births - some] > other_room) continue;
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

// ---- the offsets of the layout ----------------------------------------------------------------------------

/// Goes back from some order at the last moment. An exchange removed as many bytes as it added, in one place,
/// and moved nothing else. The leaves beside the exchange give the direction of the removed leaves.
void time_search::find_offsets() {
  std::vector<offset_type> offsets(leaves_.size(), no_offset);
  offset_type at = 0;
  const auto place = [&](leaf_number each) {
    offsets[each] = at;
    at += sizes_[each];
  };
  for (leaf_number each : tree_.leaves()) place(each);
  for (step const& made : steps_ | std::views::reverse) {
    const std::span all{exchanged_};
    const auto removed = all.subspan(made.removed, made.added - made.removed);
    at = no_offset;
    for (leaf_number each : all.subspan(made.added, made.before - made.added))
      at = std::min(at, offsets[each]);
    for (std::size_t k = made.before; k != made.end; ++k) {
      if (sizes_[all[k]] == 0) continue;
      if ((offsets[all[k]] < at) != (k < made.behind)) std::ranges::reverse(removed);
      break;
    }
    for (leaf_number each : removed) place(each);
  }
  for (std::size_t k = 0; k < leaves_.size(); ++k) {
    if (leaves_[k].buffer != no_rank) offsets_[leaves_[k].buffer] = offsets[k];
  }
}

void place_along_time(solver_context& context) {
  problem const& instance = context.instance();
  // For fewer buffers the search goes along time, and backtracks if it fails.
  if (context.done() || !time_search::is_for(instance) || time_search::can_backtrack(instance)) return;
  context.enter_stage("time");
  time_search search{context};
  if (search.pass(context.proven_bound())) context.offer(search.offsets());
}

}  // namespace tidemark::planner::detail
