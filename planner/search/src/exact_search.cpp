// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "Canonical order", "By rising offset" and "Along the skyline".
// A depth-first search. `solve` returns at once if the same unplaced buffers failed before. `try_cases` finds
// the buffers that may come next. `place` and `waste` make one case and undo it if the search below fails.
// One stack holds the unplaced buffers of each node on the path. A case is cut off if a section cannot hold
// its unplaced buffers.
#include "exact_search.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace tidemark::planner::detail {
namespace {

[[nodiscard]] bool has_section(section_range sections, std::uint32_t section) {
  return sections.begin <= section && section < sections.end;
}

}  // namespace

exact_search::exact_search(solver_context& context)
    : context_{&context},
      instance_{&context.instance()},
      offsets_(instance_->buffers.size()),
      shapes_(shapes_of(*instance_)),
      lowest_(instance_->buffers.size()),
      skyline_(instance_->section_count),
      left_(instance_->section_count, 0),
      crossing_(instance_->section_count + std::size_t{1}, 0),
      last_fitting_(instance_->section_count, 0),
      plateau_end_(instance_->section_count),
      cases_(instance_->section_count + std::size_t{1}),
      stack_tops_(instance_->buffers.size()),
      failures_(std::bit_ceil(std::min(max_failure_n, instance_->buffers.size() * 1024 + 1))) {
  for (ranked const& each : shapes_) {
    for (std::uint32_t s = each.lifespan.begin; s < each.lifespan.end; ++s) left_[s] += each.size;
    for (std::uint32_t s = each.lifespan.begin + 1; s < each.lifespan.end; ++s) ++crossing_[s];
  }
}

outcome exact_search::probe(way which, order const& by, offset_type height, std::uint64_t max_nodes) {
  way_ = which;
  height_ = height;
  nodes_end_ = context_->nodes() + max_nodes;
  ++generation_;
  ranked_ = rank_shapes(shapes_, by);
  std::ranges::fill(skyline_, offset_type{0});
  std::ranges::fill(stack_tops_, stack_top{});
  depth_ = 0;
  candidates_.clear();
  stack_.clear();
  for (std::uint32_t rank = 0; rank < ranked_.size(); ++rank) {
    lowest_[rank] = ranked_[rank].fixed_offset;
    if (lowest_[rank] + ranked_[rank].size > height_) return outcome::impossible;
    stack_.push_back({lowest_[rank], rank});
  }
  const node all{.begin = 0, .end = stack_.size(), .sections = {0, instance_->section_count}, .last = {}};
  return all_feasible(all) ? split_and_solve(all) : outcome::impossible;
}

/// Counts a node. @return false if the probe gives up
bool exact_search::may_visit(node const& at) {
  const std::size_t n = at.end - at.begin;
  return context_->count_node(n) && context_->nodes() <= nodes_end_ && stack_.size() + n <= max_stack &&
         depth_ < max_depth;
}

/// Returns true if two buffers with the same sections would lie on each other in the wrong order.
bool exact_search::stacked_wrongly(unplaced each) const {
  ranked const& shape = ranked_[each.rank];
  stack_top const& top = stack_tops_[shape.stack_group];
  return top.end == each.offset && each.rank < top.rank && shape.swaps && ranked_[top.rank].swaps;
}

/// Returns true if the least layout can have this buffer next: its twin is placed and it is not stacked
/// wrongly.
bool exact_search::may_be_next(unplaced each) const {
  const std::uint32_t twin = ranked_[each.rank].twin;
  return (twin == no_rank || lowest_[twin] == no_offset) && !stacked_wrongly(each);
}

/// Returns true if the buffer fits between the sides of a plateau and can lie on it.
bool exact_search::lies_on_plateau(unplaced each) const {
  const section_range sections = ranked_[each.rank].lifespan;
  return skyline_[sections.begin] == each.offset && plateau_end_[sections.begin] >= sections.end &&
         may_be_next(each);
}

bool exact_search::is_feasible_with(std::uint32_t section, std::uint32_t rank) const {
  return has_section(ranked_[rank].lifespan, section) && lowest_[rank] != no_offset &&
         lowest_[rank] + left_[section] <= height_;
}

/// Returns true if the section has an unplaced buffer that is low enough for all of its unplaced buffers.
/// Tests the buffer of the last success first, because it is usually still low enough.
bool exact_search::is_feasible(std::uint32_t section, node const& at) {
  if (left_[section] == 0 || is_feasible_with(section, last_fitting_[section])) return true;
  for (std::size_t k = at.begin; k < at.end; ++k) {
    if (!is_feasible_with(section, stack_[k].rank)) continue;
    last_fitting_[section] = stack_[k].rank;
    return true;
  }
  return false;
}

/// Returns true if all sections of a node are feasible. Tests the section that failed last first.
bool exact_search::all_feasible(node const& at) {
  if (has_section(at.sections, last_failed_section_) && !is_feasible(last_failed_section_, at)) return false;
  for (std::uint32_t section = at.sections.begin; section < at.sections.end; ++section) {
    if (is_feasible(section, at)) continue;
    last_failed_section_ = section;
    return false;
  }
  return true;
}

state_key exact_search::key_of(node const& at) const {
  state_key key{.low = generation_, .high = generation_};
  for (std::size_t k = at.begin; k < at.end; ++k)
    add_to_key(key, stack_[k].rank, stacked_wrongly(stack_[k]), stack_[k].offset);
  return key;
}

void exact_search::find_plateaus(section_range sections) {
  for (std::uint32_t begin = sections.begin, end = begin; begin < sections.end; begin = end) {
    for (; end < sections.end && skyline_[end] == skyline_[begin]; ++end) continue;
    const bool is_low = (begin == sections.begin || skyline_[begin - 1] > skyline_[begin]) &&
                        (end == sections.end || skyline_[end] > skyline_[begin]);
    for (std::uint32_t s = begin; s < end; ++s) plateau_end_[s] = is_low ? end : 0;
  }
}

/// Returns the section of a plateau with the fewest cases. Ties are broken by the least slack.
exact_search::decision exact_search::decide(node const& at) {
  find_plateaus(at.sections);
  for (std::uint32_t s = at.sections.begin; s <= at.sections.end; ++s) cases_[s] = 0;
  for (std::size_t k = at.begin; k < at.end; ++k) {
    if (!lies_on_plateau(stack_[k])) continue;
    ++cases_[ranked_[stack_[k].rank].lifespan.begin];
    --cases_[ranked_[stack_[k].rank].lifespan.end];
  }
  decision fewest{.cases = std::numeric_limits<std::int64_t>::max()};
  offset_type least_slack = 0;
  std::int64_t buffers = 0;
  for (std::uint32_t s = at.sections.begin; s < at.sections.end; ++s) {
    buffers += cases_[s];
    if (plateau_end_[s] == 0) continue;
    const offset_type slack =
        height_ - left_[s] - skyline_[s];  // sections are feasible: skyline + left <= height
    const std::int64_t cases = buffers + (slack > 0 ? 1 : 0);
    if (std::pair{cases, slack} >= std::pair{fewest.cases, least_slack}) continue;
    fewest = {.section = s, .cases = cases, .may_waste = slack > 0};
    least_slack = slack;
  }
  return fewest;
}

/// Pushes the unplaced buffers of a node except `except`, and raises the buffers in `sections` to `top`. Sets
/// the lowest offset of each buffer behind `child.last`. @return true if each buffer ends at `height_` or
/// below
bool exact_search::push_raised(node const& at, section_range sections, offset_type top, std::uint32_t except,
                               node& child) {
  for (std::size_t k = at.begin; k < at.end; ++k) {
    unplaced each = stack_[k];
    if (each.rank == except) continue;
    ranked const& shape = ranked_[each.rank];
    if (each.offset < top && shape.lifespan.overlaps(sections)) {
      if (shape.fixed) return false;
      each.offset = align_up(top, shape.align);
    }
    const offset_type lowest = each < child.last ? child.last.offset + shape.least_neighbor : each.offset;
    if (lowest + shape.size > height_) return false;
    lowest_[each.rank] = lowest;
    stack_.push_back(each);
  }
  child.end = stack_.size();
  return true;
}

outcome exact_search::solve(node const& at) {
  if (at.end - at.begin == 1) {
    unplaced const& only = stack_[at.begin];
    offsets_[ranked_[only.rank].number] = only.offset;
    return outcome::found;
  }
  const state_key key = key_of(at);
  failure& known = failures_[key.low % failures_.size()];
  if (known.key == key && known.last <= at.last) return outcome::impossible;
  const outcome result = try_cases(at);
  if (result == outcome::impossible) known = {key, at.last};
  return result;
}

/// Places each candidate until one leads to a layout.
outcome exact_search::try_cases(node const& at) {
  const std::size_t first = candidates_.size();
  decision next;
  if (way_ == way::by_rising_offset) {
    find_by_rising_offset(at);
  } else {
    next = decide(at);
    if (next.cases != 0) find_on_plateau(at, next.section);
  }
  const std::size_t end = candidates_.size();
  outcome result = outcome::impossible;
  for (std::size_t k = first; k < end && result == outcome::impossible; ++k) {
    result = place(at, candidates_[k]);
    candidates_.resize(end);
  }
  candidates_.resize(first);
  return result == outcome::impossible && next.may_waste ? waste(at, next.section) : result;
}

void exact_search::find_on_plateau(node const& at, std::uint32_t section) {
  for (std::size_t k = at.begin; k < at.end; ++k) {
    const unplaced each = stack_[k];
    if (has_section(ranked_[each.rank].lifespan, section) && lies_on_plateau(each))
      candidates_.push_back(each);
  }
}

/// Finds the buffers that may come next. A candidate begins below the lowest possible end of all unplaced
/// buffers, and low enough for the fullest section to hold its unplaced buffers.
void exact_search::find_by_rising_offset(node const& at) {
  offset_type window = no_offset, most_left = 0;
  for (std::size_t k = at.begin; k < at.end; ++k)
    window = std::min(window, stack_[k].offset + ranked_[stack_[k].rank].size);
  for (std::uint32_t s = at.sections.begin; s < at.sections.end; ++s)
    most_left = std::max(most_left, left_[s]);
  const offset_type highest = std::min(window - 1, height_ - most_left);
  const auto first = static_cast<std::ptrdiff_t>(candidates_.size());
  for (std::size_t k = at.begin; k < at.end; ++k) {
    const unplaced each = stack_[k];
    if (each.offset <= highest && each >= at.last && may_be_next(each)) candidates_.push_back(each);
  }
  std::sort(candidates_.begin() + first, candidates_.end());
}

/// Places one buffer of a node, and then the remaining buffers.
outcome exact_search::place(node const& at, unplaced next) {
  if (!may_visit(at)) return outcome::unknown;
  ranked const& shape = ranked_[next.rank];
  const offset_type top = next.offset + shape.size;
  node child{.begin = stack_.size(), .end = 0, .sections = at.sections, .last = {}};
  if (way_ == way::by_rising_offset) child.last = next;
  outcome result = outcome::impossible;
  lowest_[next.rank] = no_offset;
  if (push_raised(at, shape.lifespan, top, next.rank, child)) {
    offsets_[shape.number] = next.offset;
    const stack_top was = std::exchange(stack_tops_[shape.stack_group], {top, next.rank});
    for (std::uint32_t s = shape.lifespan.begin; s < shape.lifespan.end; ++s) {
      left_[s] -= shape.size;
      skyline_[s] = top;
    }
    if (all_feasible(child)) result = solve_without(at, child, shape);
    for (std::uint32_t s = shape.lifespan.begin; s < shape.lifespan.end; ++s) {
      left_[s] += shape.size;
      skyline_[s] = next.offset;
    }
    stack_tops_[shape.stack_group] = was;
  }
  stack_.resize(child.begin);
  return result;
}

/// Solves the remaining buffers, as one part or as several parts.
outcome exact_search::solve_without(node const& at, node const& child, ranked const& placed) {
  ++depth_;
  // Sections that become free at the edge of the node shorten it and do not cut it.
  bool splits = left_[at.sections.begin] == 0 || left_[at.sections.end - 1] == 0;
  for (std::uint32_t s = placed.lifespan.begin + 1; s < placed.lifespan.end; ++s)
    splits |= --crossing_[s] == 0;
  splits |= left_[placed.lifespan.begin] == 0;
  const outcome result = splits ? split_and_solve(child) : solve(child);
  for (std::uint32_t s = placed.lifespan.begin + 1; s < placed.lifespan.end; ++s) ++crossing_[s];
  --depth_;
  return result;
}

/// Leaves bytes of a section unused, up to the lowest offset at which a buffer can lie next.
outcome exact_search::waste(node const& at, std::uint32_t section) {
  if (!may_visit(at)) return outcome::unknown;
  const offset_type level = skyline_[section];
  offset_type next = no_offset;
  for (std::size_t k = at.begin; k < at.end; ++k) {
    ranked const& shape = ranked_[stack_[k].rank];
    if (!has_section(shape.lifespan, section)) continue;
    const offset_type offset = stack_[k].offset;
    if (offset > level) next = std::min(next, offset);
    else if (!shape.fixed) next = std::min(next, align_up(offset + shape.least_neighbor, shape.align));
  }
  if (next == no_offset || next > height_ - left_[section]) return outcome::impossible;
  node child{.begin = stack_.size(), .end = 0, .sections = at.sections, .last = {}};
  outcome result = outcome::impossible;
  if (push_raised(at, {section, section + 1}, next, no_rank, child)) {
    skyline_[section] = next;
    ++depth_;
    if (all_feasible(child)) result = solve(child);
    --depth_;
    skyline_[section] = level;
  }
  stack_.resize(child.begin);
  return result;
}

/// Solves each connected part of the sections separately, small parts first.
outcome exact_search::split_and_solve(node const& at) {
  std::vector<std::uint32_t> begins{at.sections.begin};
  for (std::uint32_t s = at.sections.begin + 1; s < at.sections.end; ++s) {
    if (crossing_[s] == 0) begins.push_back(s);
  }
  begins.push_back(at.sections.end);
  std::vector<std::vector<unplaced>> parts(begins.size());
  for (std::size_t k = at.begin; k < at.end; ++k) {
    const std::uint32_t section = ranked_[stack_[k].rank].lifespan.begin;
    parts[static_cast<std::size_t>(std::ranges::upper_bound(begins, section) - begins.begin()) - 1].push_back(
        stack_[k]);
  }
  for (std::uint32_t part : numbers_by(parts.size(), [&](std::uint32_t k) { return parts[k].size(); })) {
    if (parts[part].empty()) continue;
    const std::size_t begin = stack_.size();
    if (begin + parts[part].size() > max_stack) return outcome::unknown;
    stack_.insert(stack_.end(), parts[part].begin(), parts[part].end());
    const outcome result = solve({begin, stack_.size(), {begins[part], begins[part + 1]}, at.last});
    stack_.resize(begin);
    if (result != outcome::found) return result;
  }
  return outcome::found;
}

}  // namespace tidemark::planner::detail
