// SPDX-License-Identifier: Apache-2.0
// Checks blocks and their conflicts, numbers the sections of time, and computes the lower bound. The bound is
// the largest sum of sizes that is live at once, the weight of a clique in a graph, or the end of a fixed
// block.
#include "plan_problem.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tidemark/core/detail/align.hpp>

namespace tidemark::detail::planning {
namespace {

constexpr std::size_t max_bytes = std::size_t{1} << 62;

[[noreturn]] void refuse(std::string const& reason) { throw std::invalid_argument("make_plan: " + reason); }

std::string called(std::size_t block) { return "block " + std::to_string(block); }

/// Checks a block, and adds a buffer if the block has bytes and a lifetime.
/// @post each offset that an order computes fits: it is below `max_bytes` * 3
template <class Block>
void add_block(plan_problem& problem, std::size_t number, Block const& block, std::size_t alignment,
               std::size_t& bytes_left) {
  bool is_buffer = block.size != 0;
  if constexpr (std::is_same_v<Block, lifetime>) {
    if (block.upper < block.lower) {
      refuse(called(number) + " ends at " + std::to_string(block.upper) + ", before it begins at " +
             std::to_string(block.lower));
    }
    is_buffer = is_buffer && block.lower != block.upper;
  }
  if (!std::has_single_bit(block.alignment)) {
    refuse(called(number) + " has alignment " + std::to_string(block.alignment) +
           ", which is not a power of two");
  }
  const std::size_t align = std::max(alignment, block.alignment), offset = block.offset.value_or(0);
  const auto refuse_offset = [&](std::string const& reason) {
    refuse(called(number) + " is fixed at offset " + std::to_string(offset) + reason);
  };
  if (offset % align != 0)
    refuse_offset(", which is not a multiple of its alignment " + std::to_string(align));
  if (block.offset && (offset > max_bytes || block.size > max_bytes - offset))
    refuse_offset(" and has " + std::to_string(block.size) + " bytes, which end above 2^62");
  if (block.size > bytes_left || (block.size != 0 && align > bytes_left) ||
      align_up(block.size, align) > bytes_left) {
    refuse(called(number) + " of " + std::to_string(block.size) +
           " bytes makes more than 2^62 bytes of the blocks together, each rounded up to its alignment");
  }
  bytes_left -= align_up(block.size, align);
  // A block without bytes or a lifetime is at its fixed offset, or at 0, within the memory.
  if (block.offset || !is_buffer)
    problem.lower_bound = std::max(problem.lower_bound, align_up(offset + block.size, alignment));
  if (!is_buffer) return;
  problem.buffers.push_back({.block = number,
                             .size = align_up(block.size, alignment),
                             .align = align,
                             .fixed = block.offset.value_or(unplaced)});
}

template <class Block>
plan_problem problem_with(std::span<Block const> blocks, std::size_t alignment) {
  if (!std::has_single_bit(alignment))
    refuse("the alignment of the plan, " + std::to_string(alignment) + ", is not a power of two");
  if (blocks.size() >= std::numeric_limits<std::uint32_t>::max() / 4)
    refuse(std::to_string(blocks.size()) + " blocks are more than it can count");
  plan_problem problem;
  std::size_t bytes_left = max_bytes;
  for (std::size_t i = 0; i < blocks.size(); ++i) add_block(problem, i, blocks[i], alignment, bytes_left);
  return problem;
}

void check_fixed(plan_problem const& problem) {
  require_apart(problem, placed_buffers{problem}.offsets(),
                "make_plan: ", "are in conflict, and their fixed offsets make them share bytes");
}

/// Numbers the sections, and finds the largest load of each lifespan. The largest load of all is a bound.
void find_sections(plan_problem& problem, std::span<event const> events) {
  std::vector<std::pair<std::uint32_t, std::size_t>> peaks;  // sections, each fuller than all later ones
  std::size_t live = 0;
  bool died = true;
  for (event const& e : events) {
    buffer& at = problem.buffers[e.number];
    if (e.birth) {
      if (died) ++problem.section_count;
      at.lifespan.begin = problem.section_count - 1;
      live += at.size;
    } else {
      if (!died) {  // the section has all of its buffers
        while (!peaks.empty() && peaks.back().second <= live) peaks.pop_back();
        peaks.emplace_back(problem.section_count - 1, live);
        problem.lower_bound = std::max(problem.lower_bound, live);
      }
      at.lifespan.end = problem.section_count;
      at.load = std::ranges::lower_bound(peaks, std::pair{at.lifespan.begin, std::size_t{0}})->second;
      live -= at.size;
    }
    died = !e.birth;
  }
}

/// Finds the conflicts between buffers, each in both directions, sorted and without duplicates.
void find_neighbors(plan_problem& problem, std::span<plan_conflict const> conflicts, std::size_t blocks) {
  std::vector<std::uint32_t> buffer_of(blocks, std::numeric_limits<std::uint32_t>::max());
  for (std::uint32_t i = 0; i < problem.buffers.size(); ++i) buffer_of[problem.buffers[i].block] = i;
  problem.neighbors.resize(problem.buffers.size());
  for (std::size_t k = 0; k < conflicts.size(); ++k) {
    auto const [first, second] = conflicts[k];
    if (std::max(first, second) >= blocks) {
      refuse("conflict " + std::to_string(k) + " names " + called(std::max(first, second)) +
             ", and there are " + std::to_string(blocks) + " blocks");
    }
    const std::uint32_t one = buffer_of[first], other = buffer_of[second];
    if (one == other || std::max(one, other) >= problem.buffers.size()) continue;
    problem.neighbors[one].push_back(other);
    problem.neighbors[other].push_back(one);
  }
  for (order& each : problem.neighbors) {
    std::ranges::sort(each);
    each.erase(std::ranges::unique(each).begin(), each.end());
  }
}

/// Returns the weight of a clique: the buffer with the largest load, and its neighbors in falling size.
std::size_t clique_weight(plan_problem const& problem) {
  const auto seed = static_cast<std::size_t>(std::ranges::max_element(problem.buffers, {}, &buffer::load) -
                                             problem.buffers.begin());
  std::size_t weight = problem.buffers[seed].size, members = 0;
  order candidates = problem.neighbors[seed];
  std::ranges::sort(candidates, std::greater{}, [&](std::uint32_t i) {
    return std::tuple{problem.buffers[i].size, problem.buffers[i].load, ~i};
  });
  std::vector<std::uint32_t> common(problem.buffers.size(), 0);  // members in conflict with a buffer
  for (std::uint32_t i : candidates) {
    if (common[i] != members) continue;
    ++members;
    weight += problem.buffers[i].size;
    for (std::uint32_t j : problem.neighbors[i]) ++common[j];
  }
  return weight;
}

}  // namespace

plan_problem problem_of(std::span<lifetime const> blocks, std::size_t alignment) {
  plan_problem problem = problem_with(blocks, alignment);
  for (buffer& each : problem.buffers)
    each.duration = static_cast<double>(blocks[each.block].upper - blocks[each.block].lower);
  const std::vector<event> events = events_of(problem.buffers.size(), [&](std::uint32_t i) {
    lifetime const& life = blocks[problem.buffers[i].block];
    return range{life.lower, life.upper};
  });
  find_sections(problem, events);
  check_fixed(problem);
  return problem;
}

plan_problem problem_of(std::span<plan_block const> blocks, std::span<plan_conflict const> conflicts,
                        std::size_t alignment) {
  plan_problem problem = problem_with(blocks, alignment);
  find_neighbors(problem, conflicts, blocks.size());
  for (std::uint32_t i = 0; i < problem.buffers.size(); ++i) {
    buffer& each = problem.buffers[i];
    each.duration = static_cast<double>(problem.neighbors[i].size());
    each.load = each.size;
    for (std::uint32_t j : problem.neighbors[i]) each.load += problem.buffers[j].size;
  }
  check_fixed(problem);
  if (!problem.buffers.empty()) problem.lower_bound = std::max(problem.lower_bound, clique_weight(problem));
  return problem;
}

void require_apart(plan_problem const& problem, std::vector<std::size_t> const& offsets, char const* prefix,
                   char const* fault) {
  const auto bytes_of = [&](std::uint32_t i) { return problem.buffers[i].bytes_at(offsets[i]); };
  const auto refuse_pair = [&](std::uint32_t i, std::uint32_t j) {
    auto const [first, second] = std::minmax(problem.buffers[i].block, problem.buffers[j].block);
    throw std::invalid_argument{prefix + called(first) + " and " + called(second) + " " + fault};
  };
  if (!problem.is_graph()) {
    const auto events =
        events_of(offsets.size(), [&](std::uint32_t i) { return problem.buffers[i].lifespan; });
    if (const auto found = find_overlap(events, bytes_of)) refuse_pair(found->first, found->second);
  }
  for (std::uint32_t i = 0; i < problem.neighbors.size(); ++i) {
    for (std::uint32_t j : problem.neighbors[i])
      if (j > i && bytes_of(i).overlaps(bytes_of(j))) refuse_pair(i, j);
  }
}

placed_buffers::placed_buffers(plan_problem const& problem) : problem_{&problem} {
  for (buffer const& each : problem.buffers) {
    if (each.is_fixed()) by_offset_.push_back(static_cast<std::uint32_t>(offsets_.size()));
    offsets_.push_back(each.fixed);
  }
  std::ranges::sort(by_offset_, {}, [&](std::uint32_t i) { return offsets_[i]; });
}

void placed_buffers::place(std::uint32_t i, std::size_t offset) {
  offsets_[i] = offset;
  if (problem_->is_graph()) return;
  by_offset_.insert(
      std::ranges::upper_bound(by_offset_, offset, {}, [&](std::uint32_t j) { return offsets_[j]; }), i);
}

std::size_t placed_buffers::lowest_gap(std::uint32_t i, std::size_t floor) {
  buffer const& each = problem_->buffers[i];
  around_.clear();
  for (std::uint32_t j : problem_->is_graph() ? problem_->neighbors[i] : by_offset_) {
    buffer const& other = problem_->buffers[j];
    const range bytes = other.bytes_at(offsets_[j]);
    if (bytes.end > floor && (problem_->is_graph() || other.lifespan.overlaps(each.lifespan)))
      around_.push_back(bytes);
  }
  if (problem_->is_graph()) std::ranges::sort(around_);
  std::size_t offset = align_up(floor, each.align);
  for (range const& bytes : around_) {
    if (bytes.begin >= offset + each.size) break;
    if (bytes.end > offset) offset = align_up(bytes.end, each.align);
  }
  return offset;
}

}  // namespace tidemark::detail::planning
