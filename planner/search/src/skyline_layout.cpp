// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Plateaus".
// Places the buffer that can lie lowest. A heap has the plateaus of the skyline by level, and a k-d tree over
// lifespans finds the first buffer that fits on the lowest plateau. If no buffer fits, the plateau is raised
// to its lower neighbor. A buffer blocked by fixed buffers waits in a second heap for the level at which it
// fits.
#include "skyline_layout.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <numeric>
#include <utility>

namespace tidemark::planner::detail {
namespace {

/// Alignment bits of offset 0, which is a multiple of all alignments.
constexpr std::uint8_t max_align_bits = 64;

/// Returns the exponent of the largest power of two that divides an offset.
std::uint8_t bits_of(offset_type offset) { return static_cast<std::uint8_t>(std::countr_zero(offset)); }

/// Returns a range that every buffer within the sections contains, so the condition `over` always holds.
section_range reversed(section_range sections) { return {sections.end, sections.begin}; }

[[nodiscard]] bool lives_throughout(buffer const& each, problem const& instance) {
  return each.lifespan == section_range{0, instance.section_count};
}

/// Counts the conflicts between a free buffer and a fixed buffer that does not live throughout.
std::uint64_t fixed_conflicts(problem const& instance) {
  // By section: the number of these fixed buffers that begin or end before it.
  std::vector<std::uint32_t> begun(instance.section_count + std::size_t{1}), ended(begun.size());
  for (buffer const& each : instance.buffers) {
    if (!each.is_fixed() || lives_throughout(each, instance)) continue;
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
  constexpr std::uint64_t max_waits = std::uint64_t{1} << 22U;  // about 0.4 us each
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
      resumes_at_(leaves_.size()),
      occupancy_(instance_->section_count),
      offsets_(leaves_.size()) {
  for (std::uint32_t i = 0; i < offsets_.size(); ++i) {
    buffer const& each = instance_->buffers[i];
    any_aligned_ = any_aligned_ || each.align != 1;
    if (!each.is_fixed()) continue;
    if (!fixed_) fixed_.emplace(*instance_);
    fixed_->occupy(i, each.fixed);
    if (lives_throughout(each, *instance_)) add_range(fixed_throughout_, each.fixed_bytes());
    offsets_[i] = each.fixed;
    fixed_by_offset_.push_back(i);
  }
  std::ranges::sort(fixed_by_offset_, {}, [&](std::uint32_t i) { return instance_->buffers[i].fixed; });
  std::iota(leaves_.begin(), leaves_.end(), 0U);
  split({0, static_cast<std::uint32_t>(leaf_n_)}, axis::begin);
  for (std::uint32_t k = 0; k < leaves_.size(); ++k) at_[leaves_[k]] = k;
}

/// Splits a range of `leaves_` into halves by one key, and each half by the next key.
void skyline_layout::split(section_range places, axis by) {
  const std::uint32_t end = std::min(places.end, static_cast<std::uint32_t>(leaves_.size()));
  const std::uint32_t middle = places.begin + (places.end - places.begin) / 2;
  if (places.end - places.begin < 2 || places.begin >= end) return;
  const auto at = [&](std::uint32_t place) { return leaves_.begin() + static_cast<std::ptrdiff_t>(place); };
  const auto key_of = [&](std::uint32_t i) {
    buffer const& each = instance_->buffers[i];
    return std::pair{by == axis::begin ? each.lifespan.begin
                     : by == axis::end ? each.lifespan.end
                                       : each.size,
                     i};
  };
  if (middle < end) std::ranges::nth_element(at(places.begin), at(middle), at(end), {}, key_of);
  const bool sizes_count = !fixed_throughout_.empty();
  const axis next = by == axis::begin ? axis::end : by == axis::end && sizes_count ? axis::size : axis::begin;
  split({places.begin, middle}, next);
  split({middle, places.end}, next);
}

bool skyline_layout::place(order const& by) {
  over_fullest_ = false;
  past_ = {};
  return place_all(by);
}

bool skyline_layout::place_all(order const& by) {
  restart(by);
  while (left_ != 0) {
    const auto [level, begin] = lowest_.top();
    steps_ = 1;
    if (plateaus_[begin].level != level) {
      pop_lowest();
      continue;
    }
    resume_waiting(level);
    const plateau lowest = plateaus_[begin];
    const std::uint32_t rank = next_on({begin, lowest.end}, level);
    if (rank == no_number) {
      const offset_type next_level = level_above(begin);
      past_.tried.clear();
      if (next_level == no_offset) {
        raise_limit();  // all remaining buffers were tried
        continue;
      }
      pop_lowest();
      raise(begin, next_level);
      if (over_fullest_) {
        use_up_one(past_.raises_left);
        subtract_fixed_below(next_level);
        enforce_limit(lowest.shaped_by, count_waste({begin, lowest.end}, next_level - level));
      }
      if (!context_->count_steps(steps_)) return false;
      continue;
    }
    const std::uint32_t next = by_rank_[rank];
    buffer const& placed = instance_->buffers[next];
    const offset_type offset = lowest_offset(next, level);
    if (offset - level >= placed.align) {
      remove(rank, offset);
      if (!context_->count_steps(steps_)) return false;
      continue;
    }
    decide(rank, begin);
    remove(rank);
    offsets_[next] = offset;
    set_top(begin, placed.lifespan, offset + placed.size);
    --left_;
    // Padding is accepted and raises the limit, because most buffers with larger alignments have padding
    // below them.
    if (over_fullest_ && offset != level)
      past_.limit = std::max(past_.limit, count_waste(placed.lifespan, offset - level));
    if (!context_->count_node(steps_)) return false;
  }
  context_->offer(offsets_);
  return true;
}

void skyline_layout::restart(order const& by) {
  by_rank_ = by;
  left_ = by.size() - fixed_by_offset_.size();
  std::ranges::fill(tree_, summary{});
  waiting_ = {};
  std::ranges::fill(resumes_at_, no_offset);
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
  return {rank, bits_of(each.align), each.lifespan, each.lifespan, each.size};
}

void skyline_layout::summarize(std::size_t node) {
  summary const &left = tree_[node * 2], &right = tree_[node * 2 + 1];
  tree_[node] = {std::min(left.first_rank, right.first_rank),
                 std::min(left.least_align_bits, right.least_align_bits),
                 {std::min(left.least.begin, right.least.begin), std::min(left.least.end, right.least.end)},
                 {std::max(left.last.begin, right.last.begin), std::max(left.last.end, right.last.end)},
                 std::min(left.least_size, right.least_size)};
}

void skyline_layout::set_leaf(std::uint32_t buffer, summary const& now) {
  std::size_t node = leaf_n_ + at_[buffer];
  tree_[node] = now;
  while ((node /= 2) != 0) summarize(node);
}

/// Removes a buffer from the tree, for good or until a level.
void skyline_layout::remove(std::uint32_t rank, offset_type resumes_at) {
  log_change(leaf_change{rank, no_offset});
  set_leaf(by_rank_[rank], {});
  resumes_at_[rank] = resumes_at;
  if (resumes_at != no_offset) waiting_.emplace(resumes_at, rank);
  if (over_fullest_) use_up_one(past_.steps_left);
}

/// Returns the buffers that wait for this level to the tree.
void skyline_layout::resume_waiting(offset_type level) {
  for (; !waiting_.empty(); waiting_.pop()) {
    const auto [resumes_at, rank] = waiting_.top();
    ++steps_;
    if (resumes_at != resumes_at_[rank]) continue;  // undone
    if (resumes_at > level) return;
    log_change(leaf_change{rank, resumes_at});
    resumes_at_[rank] = no_offset;
    set_leaf(by_rank_[rank], leaf_of(rank));
  }
}

/// Subtracts a fixed buffer from the occupancy once a plateau is raised over its offset, because the raise
/// counts its bytes as waste. Subtracts all of its bytes at once, so that the occupancy is never too large.
void skyline_layout::subtract_fixed_below(offset_type level) {
  for (; fixed_passed_ < fixed_by_offset_.size(); ++fixed_passed_) {
    buffer const& passed = instance_->buffers[fixed_by_offset_[fixed_passed_]];
    if (passed.fixed >= level) return;
    add_to_occupancy(passed.lifespan, -static_cast<double>(passed.size));
  }
}

/// Returns the lowest offset of a buffer, at least `level`, that fixed buffers leave free.
offset_type skyline_layout::lowest_offset(std::uint32_t number, offset_type level) {
  buffer const& each = instance_->buffers[number];
  if (!fixed_) return align_up(level, each.align);
  fixed_->read(number, readers_, level);
  steps_ += ranges_to_read(readers_);
  return lowest_gap(readers_, each, level);
}

/// Returns the first bytes above a level that are fixed in all sections, or a range at `no_offset`.
range skyline_layout::next_fixed_throughout(offset_type level) const {
  const auto next = std::ranges::upper_bound(fixed_throughout_, level, {}, &range::end);
  return next == fixed_throughout_.end() ? range{no_offset, no_offset} : *next;
}

/// Returns the bytes from a level to the next bytes fixed in all sections. Returns 0 if the level lies in
/// such bytes.
offset_type skyline_layout::room_at(offset_type level) const {
  return std::max(next_fixed_throughout(level).begin, level) - level;
}

/// Returns the rank of the next buffer on a plateau. Over the fullest section padding is accepted, because
/// buffers with larger alignments would otherwise come last. If no buffer can lie over the fullest section,
/// the waste there is unavoidable.
std::uint32_t skyline_layout::next_on(section_range sections, offset_type level) {
  const offset_type room = room_at(level);
  if (over_fullest_) {
    const std::uint32_t fullest = occupancy_.largest_in(sections).section;
    const std::uint32_t found = first_of({sections, {fullest, fullest + 1}, max_align_bits, room});
    if (found != no_number) return found;
  }
  return first_of({sections, reversed(sections), bits_of(level), room});
}

/// Returns the first rank that meets the conditions.
std::uint32_t skyline_layout::first_of(query const& asked) {
  found_ = no_number;
  search(1, asked);
  return found_;
}

/// Descends into nodes that may have an earlier rank.
void skyline_layout::search(std::size_t node, query const& asked) {
  summary const& here = tree_[node];
  ++steps_;
  if (here.first_rank >= found_ || here.least_align_bits > asked.align_bits || here.least_size > asked.room ||
      here.least.end > asked.within.end || here.last.begin < asked.within.begin ||
      here.least.begin > asked.over.begin || here.last.end < asked.over.end)
    return;
  if (node >= leaf_n_) {
    if (!was_tried(here.first_rank)) found_ = here.first_rank;
    return;
  }
  const std::size_t earlier =
      tree_[node * 2].first_rank < tree_[node * 2 + 1].first_rank ? node * 2 : node * 2 + 1;
  search(earlier, asked);
  search(earlier ^ 1U, asked);
}

/// Returns the least alignment bits of the untried buffers within `sections` that fit into the room. Returns
/// those of offset 0 if there is no such buffer.
std::uint8_t skyline_layout::least_align_bits(section_range sections, offset_type room) {
  std::uint8_t least = max_align_bits;
  while (least != 0) {
    const auto below = static_cast<std::uint8_t>(least - 1);
    const std::uint32_t rank = first_of({sections, reversed(sections), below, room});
    if (rank == no_number) break;
    least = bits_of(instance_->buffers[by_rank_[rank]].align);
  }
  return least;
}

void skyline_layout::set_plateau(section_range sections, offset_type level, std::uint32_t begin_before) {
  change_plateau(sections.begin) = {level, sections.end, begin_before, last_decision()};
  if (sections.end != plateaus_.size()) change_plateau(sections.end).begin_before = sections.begin;
  lowest_.emplace(level, sections.begin);
}

skyline_layout::plateau& skyline_layout::change_plateau(std::uint32_t begin) {
  log_change(plateau_change{begin, plateaus_[begin]});
  return plateaus_[begin];
}

/// Puts a buffer on the plateau that begins at `begin`.
void skyline_layout::set_top(std::uint32_t begin, section_range sections, offset_type top) {
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

/// Returns the next level of a plateau: its lower neighbor, or a level at which a buffer may fit again.
/// Returns `no_offset` if there is no such level. @pre only tried buffers fit on the plateau
offset_type skyline_layout::level_above(std::uint32_t begin) {
  plateau const& here = plateaus_[begin];
  const section_range sections{begin, here.end};
  const offset_type left = begin == 0 ? no_offset : plateaus_[here.begin_before].level;
  const offset_type right = here.end == plateaus_.size() ? no_offset : plateaus_[here.end].level;
  const offset_type resume_level = waiting_.empty() ? no_offset : waiting_.top().first;
  const std::uint8_t bits = any_aligned_ ? least_align_bits(sections, room_at(here.level)) : max_align_bits;
  const offset_type aligned =
      bits < max_align_bits ? align_up(here.level + 1, offset_type{1} << bits) : no_offset;
  const bool any_needs_room =
      !fixed_throughout_.empty() && least_align_bits(sections, no_offset) < max_align_bits;
  const offset_type roomier = any_needs_room ? next_fixed_throughout(here.level).end : no_offset;
  return std::min({left, right, resume_level, aligned, roomier});
}

void skyline_layout::raise(std::uint32_t begin, offset_type level) {
  change_plateau(begin).level = level;
  lowest_.emplace(level, begin);
  join_right(begin);
  if (begin != 0) join_right(plateaus_[begin].begin_before);
}

/// Merges a plateau with its right neighbor if both have one level.
void skyline_layout::join_right(std::uint32_t begin) {
  const std::uint32_t joined = plateaus_[begin].end;
  if (joined == plateaus_.size() || plateaus_[joined].level != plateaus_[begin].level) return;
  plateau& here = change_plateau(begin);
  plateau& right = change_plateau(joined);
  here.end = right.end;
  here.shaped_by = std::max(here.shaped_by, right.shaped_by);
  right.level = no_offset;
  if (here.end != plateaus_.size()) change_plateau(here.end).begin_before = begin;
}

void skyline_layout::pop_lowest() {
  past_.highest_popped = std::max(past_.highest_popped, lowest_.top().first);
  lowest_.pop();
}

}  // namespace tidemark::planner::detail
