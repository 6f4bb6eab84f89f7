// SPDX-License-Identifier: Apache-2.0
// planner/docs/planner.md, "The problem".
// Builds the problem: sizes in the largest common unit, sections, and bounds. A sweep over births and deaths
// opens a section at the first birth after a death. The largest load of a section is a lower bound. Padding
// of aligned buffers can raise the bound. If conflicts are given as pairs, the bound is the heaviest clique
// that a greedy search finds.
#include "problem.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "section_maximum.hpp"

namespace tidemark::planner::detail {
namespace {

/// Makes a buffer, in bytes, of each block that has bytes and a lifetime.
template <class Block>
problem problem_with(std::span<Block const> blocks, std::size_t alignment) {
  problem instance;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    Block const& block = blocks[i];
    if (!is_buffer(block)) continue;
    instance.block_of.push_back(i);
    buffer& added = instance.buffers.emplace_back();
    added.size = align_up(block.size, alignment);
    added.align = std::max(alignment, block.alignment);
    added.fixed = block.offset.value_or(no_offset);
  }
  return instance;
}

/// Counts sizes and offsets in their largest common unit, so that the search never tries a height that no
/// plan can have. The unit also divides the offsets of the start plan.
void scale_to_units(problem& instance, memory_plan const& start) {
  offset_type unit = 0;
  for (std::size_t block : instance.block_of) unit = std::gcd(unit, start.offsets[block]);
  for (buffer const& each : instance.buffers) {
    unit = std::gcd(unit, each.size);
    if (each.is_fixed()) unit = std::gcd(unit, each.fixed);
  }
  // An alignment that divides the unit always holds. Any other alignment becomes a multiple of the new unit.
  for (buffer const& each : instance.buffers) {
    if (unit % each.align != 0) unit = std::gcd(unit, each.align);
  }
  for (buffer& each : instance.buffers) {
    each.size /= unit;
    each.align = each.align <= unit ? 1 : each.align / unit;
    if (!each.is_fixed()) continue;
    each.fixed /= unit;
    instance.lower_bound = std::max(instance.lower_bound, each.fixed_bytes().end);
  }
  if (unit != 0) instance.unit_bytes = unit;
}

/// Numbers the sections and computes their loads. Raises the lower bound to the largest load.
void find_sections(problem& instance) {
  // Each event is a moment, a birth flag and a buffer number. Deaths sort before births, because lifetimes
  // are half-open.
  std::vector<std::tuple<std::uint64_t, bool, std::uint32_t>> events;
  for (std::uint32_t i = 0; i < instance.buffers.size(); ++i) {
    events.emplace_back(instance.buffers[i].moments.begin, true, i);
    events.emplace_back(instance.buffers[i].moments.end, false, i);
  }
  std::ranges::sort(events);
  std::vector<offset_type>& loads = instance.section_loads;
  offset_type live = 0;
  bool died = true;
  for (auto const& [moment, birth, number] : events) {
    buffer& at = instance.buffers[number];
    if (birth) {
      if (died) loads.push_back(0);
      at.lifespan.begin = static_cast<std::uint32_t>(loads.size() - 1);
      loads.back() = live += at.size;
      instance.lower_bound = std::max(instance.lower_bound, live);
    } else {
      at.lifespan.end = static_cast<std::uint32_t>(loads.size());
      live -= at.size;
    }
    died = !birth;
  }
  instance.section_count = static_cast<std::uint32_t>(loads.size());
}

/// Returns the largest load of the buffers that are aligned to `align` or more. Sizes are rounded up to
/// `align`, except the size of the highest buffer.
offset_type padded_load(problem const& instance, offset_type align) {
  const auto padded = [&](buffer const& each) { return align_up(each.size, align); };
  std::vector<offset_type> loads(instance.section_count + std::size_t{1});
  for (buffer const& each : instance.buffers) {
    if (each.align < align) continue;
    loads[each.lifespan.begin] += padded(each);
    loads[each.lifespan.end] -= padded(each);  // may wrap around; the partial sums do not
  }
  std::partial_sum(loads.begin(), loads.end(), loads.begin());
  const auto most = std::ranges::max_element(loads);
  const auto section = static_cast<std::uint32_t>(most - loads.begin());
  offset_type largest_slack = 0;
  for (buffer const& each : instance.buffers) {
    if (each.align >= align && each.lifespan.overlaps({section, section + 1}))
      largest_slack = std::max(largest_slack, padded(each) - each.size);
  }
  return *most - largest_slack;
}

void find_padded_bound(problem& instance) {
  offset_type alignments = 0;  // one bit for each alignment
  for (buffer const& each : instance.buffers) alignments |= each.align;
  instance.padded_bound = instance.lower_bound;
  for (alignments &= ~offset_type{1}; alignments != 0; alignments &= alignments - 1) {
    instance.padded_bound =
        std::max(instance.padded_bound, padded_load(instance, alignments & (~alignments + 1)));
  }
}

/// Returns the weight of a clique that starts with `seed` and adds neighbors by falling size. `common[i]`
/// counts the clique members that are neighbors of i. All entries of `common` are 0 before and after the
/// call.
offset_type clique_weight(problem const& instance, std::uint32_t seed, std::vector<std::uint32_t>& common) {
  offset_type weight = instance.buffers[seed].size;
  const std::span neighbors = instance.neighbors_of(seed);
  order candidates(neighbors.begin(), neighbors.end());
  std::ranges::sort(candidates, std::greater{}, [&](std::uint32_t i) {
    return std::tuple{instance.buffers[i].size, instance.buffers[i].load, -std::int64_t{i}};
  });
  order members;
  for (std::uint32_t i : candidates) {
    if (common[i] != members.size()) continue;
    members.push_back(i);
    weight += instance.buffers[i].size;
    for (std::uint32_t j : instance.neighbors_of(i)) ++common[j];
  }
  for (std::uint32_t i : members) {
    for (std::uint32_t j : instance.neighbors_of(i)) --common[j];
  }
  return weight;
}

/// Raises the lower bound to the heaviest clique grown from the seeds with the largest load. Stops at the
/// time limit.
void find_clique(problem& instance, std::chrono::nanoseconds time_limit) {
  constexpr std::size_t max_seeds = 64;
  const order seeds = order_by(instance, {aspect::load});
  std::vector<std::uint32_t> common(instance.buffers.size(), 0);
  for (std::size_t k = 0; k < std::min(seeds.size(), max_seeds); ++k) {
    instance.lower_bound = std::max(instance.lower_bound, clique_weight(instance, seeds[k], common));
    if (problem::clock::now() - instance.begin >= time_limit) return;
  }
}

/// Stores each conflict between two buffers in both directions, sorted and without duplicates.
void find_neighbors(problem& instance, std::span<plan_conflict const> conflicts, std::size_t blocks) {
  std::vector<std::uint32_t> buffer_of(blocks, std::numeric_limits<std::uint32_t>::max());
  for (std::uint32_t i = 0; i < instance.block_of.size(); ++i) buffer_of[instance.block_of[i]] = i;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (auto [first, second] : conflicts) {
    const std::uint32_t one = buffer_of[first], other = buffer_of[second];
    if (one == other || std::max(one, other) >= instance.buffers.size()) continue;
    pairs.emplace_back(one, other);
    pairs.emplace_back(other, one);
  }
  std::ranges::sort(pairs);
  pairs.erase(std::ranges::unique(pairs).begin(), pairs.end());
  instance.neighbor_begin.assign(instance.buffers.size() + 1, 0);
  for (auto [one, other] : pairs) {
    ++instance.neighbor_begin[one + 1];
    instance.neighbors.push_back(other);
  }
  std::partial_sum(instance.neighbor_begin.begin(), instance.neighbor_begin.end(),
                   instance.neighbor_begin.begin());
}

void describe_graph_buffers(problem& instance) {
  for (std::uint32_t i = 0; i < instance.buffers.size(); ++i) {
    buffer& each = instance.buffers[i];
    each.lifespan = {i, i + 1};
    each.duration = static_cast<double>(instance.neighbors_of(i).size());
    each.load = static_cast<double>(each.size);
    for (std::uint32_t j : instance.neighbors_of(i))
      each.load += static_cast<double>(instance.buffers[j].size);
  }
}

}  // namespace

problem problem_of(std::span<lifetime const> blocks, memory_plan const& start, options const& options) {
  problem instance = problem_with(blocks, options.alignment);
  for (std::size_t i = 0; i < instance.buffers.size(); ++i) {
    lifetime const& block = blocks[instance.block_of[i]];
    instance.buffers[i].moments = {block.lower, block.upper};
    instance.buffers[i].duration = static_cast<double>(block.upper - block.lower);
  }
  scale_to_units(instance, start);
  find_sections(instance);
  find_padded_bound(instance);
  section_maximum loads{instance.section_count};
  loads.restart(instance.section_loads);
  for (buffer& each : instance.buffers) each.load = loads.largest_in(each.lifespan).number;
  return instance;
}

problem problem_of(std::span<plan_block const> blocks, std::span<plan_conflict const> conflicts,
                   memory_plan const& start, options const& options) {
  problem instance = problem_with(blocks, options.alignment);
  instance.graph = true;
  scale_to_units(instance, start);
  find_neighbors(instance, conflicts, blocks.size());
  describe_graph_buffers(instance);
  find_clique(instance, options.time_limit);
  instance.padded_bound = instance.lower_bound;
  return instance;
}

order order_by(problem const& instance, aspects const& by) {
  std::vector<std::array<double, 3>> keys;
  for (buffer const& each : instance.buffers) {
    const auto size = static_cast<double>(each.size), begin = static_cast<double>(each.lifespan.begin);
    // In the order of the enumerators of `aspect`.
    const std::array values{0.0, each.load, each.duration, each.duration * size, size, -begin};
    const auto value = [&](aspect which) { return values[static_cast<std::size_t>(which)]; };
    keys.push_back({value(by[0]), value(by[1]), value(by[2])});
  }
  return numbers_by(keys.size(), [&](std::uint32_t i) -> auto const& { return keys[i]; }, std::greater{});
}

}  // namespace tidemark::planner::detail
