// SPDX-License-Identifier: Apache-2.0
#include "plan_problem.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tuple>

#include <tidemark/detail/align.hpp>

namespace tidemark::detail::planning {
namespace {

constexpr std::size_t bytes_max = std::size_t{1} << 62;

[[noreturn]] void refuse(std::string const& what) { throw std::invalid_argument("make_plan: " + what); }

std::string called(std::size_t block) { return "block " + std::to_string(block); }

void require_aligned_options(plan_options const& options) {
  if (!std::has_single_bit(options.alignment))
    refuse("the alignment of the options, " + std::to_string(options.alignment) + ", is not a power of two");
}

/// Checks what lifetimes and blocks of a graph have alike, and adds up what they need at most.
/// @post every offset that a stage comes to fits: it is below `bytes_max` * 3.
class block_checks {
 public:
  explicit block_checks(plan_options const& options) : alignment_{options.alignment} {}

  template <class Block>
  void check(std::size_t number, Block const& block) {
    if (!std::has_single_bit(block.alignment)) {
      refuse(called(number) + " has alignment " + std::to_string(block.alignment) +
             ", which is not a power of two");
    }
    const std::size_t align = std::max(alignment_, block.alignment);
    if (block.offset) check_offset(number, *block.offset, block.size, align);
    const std::size_t room_bytes = bytes_max - sum_bytes_;
    if (block.size > room_bytes || (block.size != 0 && align > room_bytes) ||
        align_up(block.size, align) > room_bytes) {
      refuse(called(number) + " of " + std::to_string(block.size) +
             " bytes makes more than 2^62 bytes of the blocks together, each rounded up to its alignment");
    }
    sum_bytes_ += align_up(block.size, align);
  }

 private:
  static void check_offset(std::size_t number, std::size_t offset, std::size_t size, std::size_t align) {
    if (offset % align != 0) {
      refuse(called(number) + " is fixed at offset " + std::to_string(offset) +
             ", which is not a multiple of its alignment " + std::to_string(align));
    }
    if (offset > bytes_max || size > bytes_max - offset) {
      refuse(called(number) + " is fixed at offset " + std::to_string(offset) + " and has " +
             std::to_string(size) + " bytes, which end above 2^62");
    }
  }

  std::size_t alignment_;
  std::size_t sum_bytes_ = 0;  // <= bytes_max
};

template <class Block>
piece in_bytes(Block const& block, plan_options const& options) {
  return {.size = align_up(block.size, options.alignment),
          .align = std::max(block.alignment, options.alignment),
          .fixed = block.offset ? *block.offset : nowhere};
}

/// Turns bytes into the largest granules there are, so that heights that no plan can have are never tried.
void count_in_granules(problem& asked) {
  granules granule = 0;
  for (piece const& each : asked.pieces) {
    granule = std::gcd(granule, each.size);
    if (each.fixed != nowhere) granule = std::gcd(granule, each.fixed);
  }
  if (granule == 0) return;
  // An alignment that the granule is a multiple of holds by itself. Another one is a multiple of what is
  // left.
  for (piece const& each : asked.pieces) {
    if (granule % each.align != 0) granule = std::gcd(granule, each.align);
  }
  for (piece& each : asked.pieces) {
    each.size /= granule;
    each.align = each.align <= granule ? 1 : each.align / granule;
    if (each.fixed != nowhere) each.fixed /= granule;
  }
  asked.granule_bytes = granule;
}

void refuse_overlap(std::size_t one, std::size_t other) {
  refuse(called(std::min(one, other)) + " and " + called(std::max(one, other)) +
         " are in conflict, and their fixed offsets make them share bytes");
}

/// A piece that begins or ends.
struct event {
  std::uint64_t moment = 0;
  bool birth = false;
  std::uint32_t piece = 0;
};

/// Deaths before births, as a life does not reach its `upper`.
std::vector<event> events_of(problem const& asked, std::span<lifetime const> blocks) {
  std::vector<event> events;
  events.reserve(asked.pieces.size() * 2);
  for (std::uint32_t i = 0; i < asked.pieces.size(); ++i) {
    lifetime const& block = blocks[asked.block_of[i]];
    events.push_back({block.lower, true, i});
    events.push_back({block.upper, false, i});
  }
  std::ranges::sort(events, {}, [](event const& e) { return std::tuple{e.moment, e.birth, e.piece}; });
  return events;
}

/// Where two fixed pieces are live at once, the lower one must end before the other begins.
class fixed_overlaps {
 public:
  explicit fixed_overlaps(problem const& asked) : asked_{&asked} {}

  void pass(event const& e) {
    const granules begin = asked_->pieces[e.piece].fixed;
    if (begin == nowhere) return;
    if (!e.birth) {
      live_.erase(begin);
      return;
    }
    const auto above = live_.lower_bound(begin);
    if (above != live_.end() && above->first < end_of(e.piece)) refuse_pieces(e.piece, above->second);
    if (above != live_.begin() && end_of(std::prev(above)->second) > begin)
      refuse_pieces(e.piece, std::prev(above)->second);
    live_.emplace(begin, e.piece);
  }

 private:
  [[nodiscard]] granules end_of(std::uint32_t i) const {
    return asked_->pieces[i].fixed + asked_->pieces[i].size;
  }
  void refuse_pieces(std::uint32_t one, std::uint32_t other) const {
    refuse_overlap(asked_->block_of[one], asked_->block_of[other]);
  }

  problem const* asked_;
  std::map<granules, std::uint32_t> live_;  // by their offset; no two overlap
};

/// Numbers the sections, and finds their loads, of which the largest is a bound.
/// @return the load of each section.
std::vector<granules> find_sections(problem& asked, std::span<event const> events) {
  std::vector<granules> loads;
  fixed_overlaps overlaps{asked};
  granules live = 0;
  bool died = true;
  for (event const& e : events) {
    overlaps.pass(e);
    piece& at = asked.pieces[e.piece];
    if (e.birth) {
      if (died) loads.push_back(0);
      at.first_section = static_cast<std::uint32_t>(loads.size() - 1);
      live += at.size;
      loads.back() = live;
    } else {
      at.last_section = static_cast<std::uint32_t>(loads.size());
      live -= at.size;
    }
    died = !e.birth;
  }
  asked.section_n = static_cast<std::uint32_t>(loads.size());
  return loads;
}

/// The largest load of each piece's sections, by doubling: row k holds the largest of 2^k loads in a row.
void find_piece_loads(problem& asked, std::vector<granules> row) {
  std::vector<std::uint32_t> by_width(asked.pieces.size());
  std::iota(by_width.begin(), by_width.end(), 0U);
  const auto width = [&](std::uint32_t i) {
    return asked.pieces[i].last_section - asked.pieces[i].first_section;
  };
  std::ranges::sort(by_width, {}, [&](std::uint32_t i) { return std::tuple{width(i), i}; });
  std::uint32_t length = 1;
  for (std::uint32_t i : by_width) {
    for (; length * 2 <= width(i); length *= 2) {
      for (std::size_t at = 0; at + length < row.size(); ++at) row[at] = std::max(row[at], row[at + length]);
    }
    piece& each = asked.pieces[i];
    each.load = std::max(row[each.first_section], row[each.last_section - length]);
  }
}

void raise_bound_to_fixed(problem& asked) {
  for (piece const& each : asked.pieces) {
    if (each.fixed != nowhere) asked.lower_bound = std::max(asked.lower_bound, each.fixed + each.size);
  }
}

/// The weight of a clique that begins with `seed` and takes the neighbor that leaves the most to go on with.
/// `common[i]` counts the members of the clique that i is a neighbor of; it is left as it was: 0.
granules clique_weight(problem const& asked, std::uint32_t seed, std::vector<std::uint32_t>& common) {
  granules weight = asked.pieces[seed].size;
  std::vector<std::uint32_t> candidates(asked.neighbors_of(seed).begin(), asked.neighbors_of(seed).end());
  std::ranges::sort(candidates, [&](std::uint32_t a, std::uint32_t b) {
    piece const& one = asked.pieces[a];
    piece const& other = asked.pieces[b];
    return std::tuple{other.size, other.load, a} < std::tuple{one.size, one.load, b};
  });
  std::vector<std::uint32_t> members;
  for (std::uint32_t i : candidates) {
    if (common[i] != members.size()) continue;
    members.push_back(i);
    weight += asked.pieces[i].size;
    for (std::uint32_t j : asked.neighbors_of(i)) ++common[j];
  }
  for (std::uint32_t i : members) {
    for (std::uint32_t j : asked.neighbors_of(i)) --common[j];
  }
  return weight;
}

/// Of the pieces that have the most about them, as many as keep it cheap, and no more once the time is over.
void find_clique(problem& asked, std::chrono::nanoseconds time_limit) {
  constexpr std::size_t seeds_max = 64;
  std::vector<std::uint32_t> seeds(asked.pieces.size());
  std::iota(seeds.begin(), seeds.end(), 0U);
  std::ranges::sort(seeds, [&](std::uint32_t a, std::uint32_t b) {
    return std::tuple{asked.pieces[b].load, a} < std::tuple{asked.pieces[a].load, b};
  });
  std::vector<std::uint32_t> common(asked.pieces.size(), 0);
  for (std::size_t k = 0; k < std::min(seeds.size(), seeds_max); ++k) {
    asked.lower_bound = std::max(asked.lower_bound, clique_weight(asked, seeds[k], common));
    if (problem::clock::now() - asked.begin >= time_limit) return;
  }
}

/// The conflicts between pieces, each in both directions, ascending and once.
void find_neighbors(problem& asked, std::span<conflict const> conflicts, std::size_t block_n) {
  std::vector<std::uint32_t> piece_of(block_n, std::numeric_limits<std::uint32_t>::max());
  for (std::uint32_t i = 0; i < asked.block_of.size(); ++i) piece_of[asked.block_of[i]] = i;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  pairs.reserve(conflicts.size() * 2);
  for (auto [first, second] : conflicts) {
    const std::uint32_t one = piece_of[first];
    const std::uint32_t other = piece_of[second];
    if (one == other || std::max(one, other) >= asked.pieces.size()) continue;
    pairs.emplace_back(one, other);
    pairs.emplace_back(other, one);
  }
  std::ranges::sort(pairs);
  pairs.erase(std::ranges::unique(pairs).begin(), pairs.end());
  asked.neighbor_begin.assign(asked.pieces.size() + 1, 0);
  for (auto [one, other] : pairs) {
    ++asked.neighbor_begin[one + 1];
    asked.neighbors.push_back(other);
  }
  std::partial_sum(asked.neighbor_begin.begin(), asked.neighbor_begin.end(), asked.neighbor_begin.begin());
}

void describe_graph_pieces(problem& asked) {
  for (std::uint32_t i = 0; i < asked.pieces.size(); ++i) {
    piece& each = asked.pieces[i];
    each.first_section = i;
    each.last_section = i + 1;
    each.span = static_cast<double>(asked.neighbors_of(i).size());
    each.load = each.size;
    for (std::uint32_t j : asked.neighbors_of(i)) {
      each.load += asked.pieces[j].size;
      piece const& other = asked.pieces[j];
      if (each.fixed == nowhere || other.fixed == nowhere || j < i) continue;
      if (each.fixed < other.fixed + other.size && other.fixed < each.fixed + each.size)
        refuse_overlap(asked.block_of[i], asked.block_of[j]);
    }
  }
}

template <class Block>
void refuse_too_many(std::span<Block const> blocks) {
  if (blocks.size() >= std::numeric_limits<std::uint32_t>::max() / 4)
    refuse(std::to_string(blocks.size()) + " blocks are more than it can count");
}

}  // namespace

problem problem_of(std::span<lifetime const> blocks, plan_options const& options) {
  require_aligned_options(options);
  refuse_too_many(blocks);
  problem asked;
  block_checks checks{options};
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    lifetime const& block = blocks[i];
    if (block.upper < block.lower) {
      refuse(called(i) + " ends at " + std::to_string(block.upper) + ", before it begins at " +
             std::to_string(block.lower));
    }
    checks.check(i, block);
    if (block.size == 0 || block.lower == block.upper) continue;
    asked.pieces.push_back(in_bytes(block, options));
    asked.pieces.back().span = static_cast<double>(block.upper - block.lower);
    asked.block_of.push_back(i);
  }
  count_in_granules(asked);
  std::vector<granules> loads = find_sections(asked, events_of(asked, blocks));
  if (!loads.empty()) asked.lower_bound = std::ranges::max(loads);
  find_piece_loads(asked, std::move(loads));
  raise_bound_to_fixed(asked);
  return asked;
}

problem problem_of(std::span<plan_block const> blocks, std::span<conflict const> conflicts,
                   plan_options const& options) {
  require_aligned_options(options);
  refuse_too_many(blocks);
  problem asked;
  asked.graph = true;
  block_checks checks{options};
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    checks.check(i, blocks[i]);
    if (blocks[i].size == 0) continue;
    asked.pieces.push_back(in_bytes(blocks[i], options));
    asked.block_of.push_back(i);
  }
  for (std::size_t k = 0; k < conflicts.size(); ++k) {
    const std::size_t highest = std::max(conflicts[k].first, conflicts[k].second);
    if (highest >= blocks.size()) {
      refuse("conflict " + std::to_string(k) + " names " + called(highest) + ", and there are " +
             std::to_string(blocks.size()) + " blocks");
    }
  }
  count_in_granules(asked);
  find_neighbors(asked, conflicts, blocks.size());
  describe_graph_pieces(asked);
  find_clique(asked, options.time_limit);
  raise_bound_to_fixed(asked);
  return asked;
}

}  // namespace tidemark::detail::planning
