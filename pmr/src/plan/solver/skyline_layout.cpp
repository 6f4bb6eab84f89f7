// SPDX-License-Identifier: Apache-2.0
// docs/planner.md, "Many buffers".
#include "skyline_layout.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <numeric>
#include <utility>

#include <tidemark/core/detail/align.hpp>

namespace tidemark::detail::planning {
namespace {

/// Of the largest power of two that divides an offset; 64 for 0, a multiple of all.
std::uint8_t bits_of(offset_type offset) { return static_cast<std::uint8_t>(std::countr_zero(offset)); }

/// How many pairs of a fixed buffer and another are in conflict.
std::uint64_t fixed_conflicts(problem const& instance) {
  // By section, how many fixed ones begin or end before it.
  std::vector<std::uint32_t> begun(instance.section_count + std::size_t{1}), ended(begun.size());
  for (buffer const& each : instance.buffers) {
    if (!each.is_fixed()) continue;
    ++begun[each.lifespan.begin + std::size_t{1}];
    ++ended[each.lifespan.end];
  }
  std::partial_sum(begun.begin(), begun.end(), begun.begin());
  std::partial_sum(ended.begin(), ended.end(), ended.begin());
  std::uint64_t pairs = 0;
  for (buffer const& each : instance.buffers) {
    if (!each.is_fixed()) pairs += begun[each.lifespan.end] - ended[each.lifespan.begin];
  }
  return pairs;
}

}  // namespace

bool skyline_layout::pays(problem const& instance) {
  constexpr std::uint64_t max_waits = std::uint64_t{1} << 22U;  // of some 0.4 us each
  constexpr offset_type min_sizes_to_padding = 8;
  if (instance.graph) return false;
  offset_type sizes = 0, padding = 0;
  for (buffer const& each : instance.buffers) {
    sizes += each.size;
    padding += align_up(each.size, each.align) - each.size;
  }
  return padding <= sizes / min_sizes_to_padding && fixed_conflicts(instance) <= max_waits;
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
  for (std::uint32_t i = 0; i < offsets_.size(); ++i) {
    buffer const& each = instance_->buffers[i];
    align_bits_ = std::max(align_bits_, bits_of(each.align));
    if (!each.is_fixed()) continue;
    if (!fixed_) fixed_.emplace(*instance_);
    fixed_->occupy(i, each.fixed);
    offsets_[i] = each.fixed;
    fixed_by_end_.push_back(i);
  }
  std::ranges::sort(fixed_by_end_, {},
                    [&](std::uint32_t i) { return instance_->buffers[i].fixed_bytes().end; });
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
  const auto count_waste = [&](section_range sections, offset_type bytes) {
    if (next_is == next_buffer::over_fullest && bytes != 0)
      fullness_.add(sections, static_cast<double>(bytes));
  };
  restart(by);
  if (next_is == next_buffer::over_fullest) fullness_.restart(instance_->section_loads);
  offset_type height = fixed_by_end_.empty() ? 0 : instance_->buffers[fixed_by_end_.back()].fixed_bytes().end;
  for (std::size_t left = by.size() - fixed_by_end_.size(); left != 0;) {
    const auto [level, begin] = lowest_.top();
    steps_ = 1;
    if (plateaus_[begin].level != level) {
      lowest_.pop();
      continue;
    }
    wake(level);
    if (next_is == next_buffer::over_fullest) take_out_fixed_below(level);
    const section_range plateau{begin, plateaus_[begin].end};
    const std::uint32_t rank = next_on(plateau, level, next_is);
    if (rank == no_number) {
      lowest_.pop();
      count_waste(plateau, raise(begin));
      if (!context_->count_steps(steps_)) return false;
      continue;
    }
    const std::uint32_t next = by_rank_[rank];
    buffer const& placed = instance_->buffers[next];
    const offset_type offset = lowest_offset(next, level), top = offset + placed.size;
    if (top >= max_height) return true;
    remove(next);
    if (offset - level >= placed.align) {
      waiting_.emplace(offset, rank);
      if (!context_->count_steps(steps_)) return false;
      continue;
    }
    offsets_[next] = offset;
    height = std::max(height, top);
    count_waste(placed.lifespan, offset - level);
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
  waiting_ = {};
  fixed_passed_ = 0;
  for (std::uint32_t rank = 0; rank < by.size(); ++rank) {
    if (!instance_->buffers[by[rank]].is_fixed()) tree_[leaf_n_ + at_[by[rank]]] = leaf_of(rank);
  }
  for (std::size_t node = leaf_n_ - 1; node != 0; --node) summarize(node);
  std::ranges::fill(plateaus_, plateau{});
  lowest_ = {};
  if (instance_->section_count != 0) set_plateau({0, instance_->section_count}, 0, 0);
}

skyline_layout::summary skyline_layout::leaf_of(std::uint32_t rank) const {
  buffer const& each = instance_->buffers[by_rank_[rank]];
  return {rank, bits_of(each.align), each.lifespan, each.lifespan};
}

void skyline_layout::summarize(std::size_t node) {
  summary const &left = tree_[node * 2], &right = tree_[node * 2 + 1];
  tree_[node] = {std::min(left.first_rank, right.first_rank),
                 std::min(left.least_align_bits, right.least_align_bits),
                 {std::min(left.least.begin, right.least.begin), std::min(left.least.end, right.least.end)},
                 {std::max(left.last.begin, right.last.begin), std::max(left.last.end, right.last.end)}};
}

void skyline_layout::set_leaf(std::uint32_t buffer, summary const& now) {
  std::size_t node = leaf_n_ + at_[buffer];
  tree_[node] = now;
  while ((node /= 2) != 0) summarize(node);
}

/// What waits for the level can be next.
void skyline_layout::wake(offset_type level) {
  for (; !waiting_.empty() && waiting_.top().first <= level; waiting_.pop()) {
    const std::uint32_t rank = waiting_.top().second;
    set_leaf(by_rank_[rank], leaf_of(rank));
    ++steps_;
  }
}

/// Where plateaus were raised past a fixed buffer, its bytes were counted as waste, beside the load that they are part of.
void skyline_layout::take_out_fixed_below(offset_type level) {
  for (; fixed_passed_ < fixed_by_end_.size(); ++fixed_passed_) {
    buffer const& passed = instance_->buffers[fixed_by_end_[fixed_passed_]];
    if (passed.fixed_bytes().end > level) return;
    fullness_.add(passed.lifespan, -static_cast<double>(passed.size));
  }
}

/// The lowest offset of a buffer from `level` on that the fixed ones leave.
offset_type skyline_layout::lowest_offset(std::uint32_t number, offset_type level) {
  buffer const& each = instance_->buffers[number];
  if (!fixed_) return align_up(level, each.align);
  fixed_->read(number, readers_, level);
  steps_ += ranges_to_read(readers_);
  return choose_gap(readers_, each, gap_choice::lowest, level);
}

/// The rank of the next buffer on a plateau. Over the fullest section padding is taken into account: were what is
/// aligned further to wait for its level, most of it would come last. Where none can lie over that section, bytes are
/// wasted there in any case.
std::uint32_t skyline_layout::next_on(section_range plateau, offset_type level, next_buffer next) {
  if (next == next_buffer::over_fullest) {
    const std::uint32_t fullest = fullness_.largest_in(plateau);
    const std::uint32_t found = first_within(plateau, {fullest, fullest + 1}, 0);
    if (found != no_number) return found;
  }
  const section_range none{plateau.end, plateau.begin};  // reversed: each buffer on the plateau is over it
  return first_within(plateau, none, level);
}

/// The first rank of those that have all their sections within `sections`, and all of `over`, and that can lie at
/// `level`.
std::uint32_t skyline_layout::first_within(section_range sections, section_range over, offset_type level) {
  found_ = no_number;
  search_within(1, sections, over, bits_of(level));
  return found_;
}

/// Goes down the tree where there may be an earlier one.
void skyline_layout::search_within(std::size_t node, section_range sections, section_range over,
                                   std::uint8_t align_bits) {
  summary const& here = tree_[node];
  ++steps_;
  if (here.first_rank >= found_ || here.least_align_bits > align_bits || here.least.end > sections.end ||
      here.last.begin < sections.begin || here.least.begin > over.begin || here.last.end < over.end)
    return;
  if (node >= leaf_n_) {
    found_ = here.first_rank;
    return;
  }
  const std::size_t earlier =
      tree_[node * 2].first_rank < tree_[node * 2 + 1].first_rank ? node * 2 : node * 2 + 1;
  search_within(earlier, sections, over, align_bits);
  search_within(earlier ^ 1U, sections, over, align_bits);
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

/// Raises a plateau, on which nothing can lie, to the lower one of its neighbors, or to where something may lie again.
/// @return by how much
offset_type skyline_layout::raise(std::uint32_t begin) {
  plateau& here = plateaus_[begin];
  const offset_type left = begin == 0 ? no_offset : plateaus_[here.begin_before].level;
  const offset_type right = here.end == plateaus_.size() ? no_offset : plateaus_[here.end].level;
  const offset_type woken = waiting_.empty() ? no_offset : waiting_.top().first;
  const std::uint8_t bits = bits_of(here.level);
  const offset_type aligned = bits < align_bits_ ? here.level + (offset_type{1} << bits) : no_offset;
  const offset_type wasted = std::min({left, right, woken, aligned}) - here.level;
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
