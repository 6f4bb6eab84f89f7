// SPDX-License-Identifier: Apache-2.0
// docs/planner.md, "Many buffers".
#include "skyline_layout.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <numeric>
#include <utility>

namespace tidemark::detail::planning {

bool skyline_layout::is_for(problem const& instance) {
  return !instance.graph && std::ranges::all_of(instance.buffers, [](buffer const& each) {
    return each.align == 1 && !each.is_fixed();
  });
}

skyline_layout::skyline_layout(solver_context& context)
    : context_{&context},
      instance_{&context.instance()},
      leaves_(instance_->buffers.size()),
      at_(leaves_.size()),
      leaf_n_{std::bit_ceil(std::max<std::size_t>(leaves_.size(), 1))},
      tree_(leaf_n_ * 2),
      plateaus_(instance_->section_count),
      fullness_(instance_->section_count),
      offsets_(leaves_.size()) {
  std::iota(leaves_.begin(), leaves_.end(), 0U);
  split({0, static_cast<std::uint32_t>(leaf_n_)}, false);
  for (std::uint32_t k = 0; k < leaves_.size(); ++k) at_[leaves_[k]] = k;
}

/// Sorts places of `leaves_` into halves, and each half by itself.
void skyline_layout::split(section_range places, bool by_end) {
  const std::uint32_t end = std::min(places.end, static_cast<std::uint32_t>(leaves_.size()));
  const std::uint32_t middle = places.begin + (places.end - places.begin) / 2;
  if (places.end - places.begin < 2 || places.begin >= end) return;
  const auto at = [&](std::uint32_t place) { return leaves_.begin() + static_cast<std::ptrdiff_t>(place); };
  if (middle < end) {
    std::ranges::nth_element(at(places.begin), at(middle), at(end), {}, [&](std::uint32_t i) {
      section_range const& sections = instance_->buffers[i].lifespan;
      return std::pair{by_end ? sections.end : sections.begin, i};
    });
  }
  split({places.begin, middle}, !by_end);
  split({middle, places.end}, !by_end);
}

bool skyline_layout::place(order const& by, offset_type max_height, next_buffer next_is) {
  restart(by);
  if (next_is == next_buffer::over_fullest) fullness_.restart(instance_->section_loads);
  offset_type height = 0;
  for (std::size_t left = by.size(); left != 0;) {
    const auto [level, begin] = lowest_.top();
    steps_ = 1;
    if (plateaus_[begin].level != level) {
      lowest_.pop();
      continue;
    }
    const section_range plateau{begin, plateaus_[begin].end};
    const std::uint32_t next = next_on(plateau, next_is);
    if (next == no_number) {
      lowest_.pop();
      const offset_type wasted = raise(begin);
      if (next_is == next_buffer::over_fullest) fullness_.add(plateau, static_cast<double>(wasted));
      if (!context_->count_steps(steps_)) return false;
      continue;
    }
    buffer const& placed = instance_->buffers[next];
    const offset_type top = level + placed.size;
    if (top >= max_height) return true;
    offsets_[next] = level;
    height = std::max(height, top);
    remove(next);
    put(begin, placed.lifespan, top);
    --left;
    if (!context_->count_node(steps_)) return false;
  }
  context_->offer(offsets_, height);
  return true;
}

void skyline_layout::restart(order const& by) {
  by_rank_ = by;
  std::ranges::fill(tree_, summary{});
  for (std::uint32_t rank = 0; rank < by.size(); ++rank) {
    section_range const& sections = instance_->buffers[by[rank]].lifespan;
    tree_[leaf_n_ + at_[by[rank]]] = {rank, sections, sections};
  }
  for (std::size_t node = leaf_n_ - 1; node != 0; --node) summarize(node);
  std::ranges::fill(plateaus_, plateau{});
  lowest_ = {};
  if (instance_->section_count != 0) set_plateau({0, instance_->section_count}, 0, 0);
}

void skyline_layout::summarize(std::size_t node) {
  summary const &left = tree_[node * 2], &right = tree_[node * 2 + 1];
  tree_[node] = {std::min(left.first_rank, right.first_rank),
                 {std::min(left.least.begin, right.least.begin), std::min(left.least.end, right.least.end)},
                 {std::max(left.last.begin, right.last.begin), std::max(left.last.end, right.last.end)}};
}

void skyline_layout::remove(std::uint32_t buffer) {
  std::size_t node = leaf_n_ + at_[buffer];
  tree_[node] = {};
  while ((node /= 2) != 0) summarize(node);
}

/// The next buffer on a plateau. Where none can lie over the fullest section, bytes are wasted there in any case.
std::uint32_t skyline_layout::next_on(section_range plateau, next_buffer next) {
  if (next == next_buffer::over_fullest) {
    const std::uint32_t fullest = fullness_.largest_in(plateau);
    const std::uint32_t found = first_within(plateau, {fullest, fullest + 1});
    if (found != no_number) return found;
  }
  const section_range none{plateau.end, plateau.begin};  // reversed: each buffer on the plateau is over it
  return first_within(plateau, none);
}

/// The first of the order that has all its sections within `sections`, and all of `over`.
std::uint32_t skyline_layout::first_within(section_range sections, section_range over) {
  found_ = no_number;
  search_within(1, sections, over);
  return found_ == no_number ? no_number : by_rank_[found_];
}

/// Goes down the tree where there may be an earlier one.
void skyline_layout::search_within(std::size_t node, section_range sections, section_range over) {
  summary const& here = tree_[node];
  ++steps_;
  if (here.first_rank >= found_ || here.least.end > sections.end || here.last.begin < sections.begin ||
      here.least.begin > over.begin || here.last.end < over.end)
    return;
  if (node >= leaf_n_) {
    found_ = here.first_rank;
    return;
  }
  const std::size_t earlier =
      tree_[node * 2].first_rank < tree_[node * 2 + 1].first_rank ? node * 2 : node * 2 + 1;
  search_within(earlier, sections, over);
  search_within(earlier ^ 1U, sections, over);
}

void skyline_layout::set_plateau(section_range sections, offset_type level, std::uint32_t begin_before) {
  plateaus_[sections.begin] = {level, sections.end, begin_before};
  if (sections.end != plateaus_.size()) plateaus_[sections.end].begin_before = sections.begin;
  lowest_.emplace(level, sections.begin);
}

/// Puts a buffer onto the plateau that begins there.
void skyline_layout::put(std::uint32_t begin, section_range sections, offset_type top) {
  const plateau under = plateaus_[begin];
  std::uint32_t before = under.begin_before;
  if (begin != sections.begin) {
    set_plateau({begin, sections.begin}, under.level, before);
    before = begin;
  }
  set_plateau(sections, top, before);
  if (sections.end != under.end) set_plateau({sections.end, under.end}, under.level, sections.begin);
  join_right(sections.begin);
  if (begin == sections.begin && begin != 0) join_right(under.begin_before);
}

/// Raises a plateau, on which nothing can lie, to the lower one of its neighbors. @return by how much
offset_type skyline_layout::raise(std::uint32_t begin) {
  plateau& here = plateaus_[begin];
  const offset_type left = begin == 0 ? no_offset : plateaus_[here.begin_before].level;
  const offset_type right = here.end == plateaus_.size() ? no_offset : plateaus_[here.end].level;
  const offset_type wasted = std::min(left, right) - here.level;
  here.level += wasted;
  lowest_.emplace(here.level, begin);
  join_right(begin);
  if (begin != 0) join_right(plateaus_[begin].begin_before);
  return wasted;
}

/// Makes one plateau of this one and the next if they have one level.
void skyline_layout::join_right(std::uint32_t begin) {
  plateau& here = plateaus_[begin];
  if (here.end == plateaus_.size() || plateaus_[here.end].level != here.level) return;
  const std::uint32_t joined = here.end;
  here.end = plateaus_[joined].end;
  plateaus_[joined].level = no_offset;
  if (here.end != plateaus_.size()) plateaus_[here.end].begin_before = begin;
}

}  // namespace tidemark::detail::planning
