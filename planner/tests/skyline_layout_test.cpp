// SPDX-License-Identifier: Apache-2.0
// Strategy: random lifetimes, aligned and fixed or not, compared with layouts that look at all pairs of
// buffers, and with layouts that copy their state before each decision.
#include "skyline_layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "plan_checker.hpp"
#include "test_problem.hpp"

namespace tidemark::planner::detail {
namespace {

const planner::options by_bytes{.alignment = 1, .time_limit = std::chrono::nanoseconds::max()};

struct layout_of {
  explicit layout_of(std::vector<lifetime> const& blocks, planner::options const& options = by_bytes)
      : instance{test_problem_of(blocks, options)}, context{instance, {}, options}, layout{context} {
    context.enter_stage("tested");
  }
  problem instance;
  solver_context context;
  skyline_layout layout;
};

struct kind {
  bool has_aligned = false, has_fixed = false;
};

std::vector<lifetime> random_blocks(std::mt19937_64& random, std::size_t n, kind of) {
  std::vector<lifetime> made;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t lower = random() % (2 * n);
    made.push_back({.lower = lower, .upper = lower + 1 + random() % n, .size = 1 + random() % 100});
    if (of.has_aligned && random() % 3 == 0) made.back().alignment = std::size_t{1} << random() % 8;
    if (of.has_fixed && random() % 8 == 0) made.back().lower = 0, made.back().upper = 3 * n;  // throughout
  }
  if (!of.has_fixed) return made;
  // Fixes some buffers at their offsets in a plan, or higher, without overlap. Buffers that live throughout
  // are fixed too; no buffer waits for these.
  const planner::result plan = planner::find_plan(made, {.alignment = 1, .time_limit = {}});
  const std::size_t higher = random() % 2 * 256;
  for (std::size_t i = 0; i < n; ++i) {
    if (random() % 4 == 0 || made[i].upper == 3 * n) made[i].offset = plan.offsets[i] + higher;
  }
  return made;
}

/// Returns the offsets if the next buffer is always the lowest possible one above its placed neighbors and
/// clear of fixed buffers. Ties are broken by the order.
std::vector<offset_type> lowest_first(problem const& instance, order const& by) {
  std::vector<buffer> const& all = instance.buffers;
  std::vector<offset_type> offsets(all.size(), no_offset);
  for (std::size_t i = 0; i < all.size(); ++i) offsets[i] = all[i].fixed;
  const auto lowest = [&](std::uint32_t i) {
    offset_type at = 0;
    const auto shares_bytes_or_is_below = [&](std::uint32_t other) {
      if (offsets[other] == no_offset || !all[other].lifespan.overlaps(all[i].lifespan)) return false;
      const offset_type end = offsets[other] + all[other].size;
      return at < end && (!all[other].is_fixed() || offsets[other] < at + all[i].size);
    };
    while (std::ranges::any_of(by, shares_bytes_or_is_below)) at += all[i].align;
    return at;
  };
  while (true) {
    std::pair<offset_type, std::uint32_t> next{no_offset, 0};
    for (std::uint32_t rank = 0; rank < by.size(); ++rank) {
      if (offsets[by[rank]] == no_offset) next = std::min(next, {lowest(by[rank]), rank});
    }
    if (next.first == no_offset) return offsets;
    offsets[by[next.second]] = next.first;
  }
}

order first_to_last(std::size_t n) {
  order by(n);
  std::iota(by.begin(), by.end(), 0U);
  return by;
}

void expect_lowest_first(kind of) {
  std::mt19937_64 random{1};
  for (std::size_t n = 1; n < 40; ++n) {
    layout_of tested{random_blocks(random, n, of)};
    order by = first_to_last(n);
    for (int k = 0; k < 5; ++k) {
      std::ranges::shuffle(by, random);
      EXPECT_TRUE(tested.layout.place(by));
      EXPECT_EQ(tested.layout.offsets(), lowest_first(tested.instance, by)) << n << " buffers";
    }
  }
}

TEST(skyline_layout, places_the_buffer_with_the_lowest_offset_next) { expect_lowest_first({}); }
TEST(skyline_layout, places_the_lowest_buffer_next_with_mixed_alignments) {
  expect_lowest_first({.has_aligned = true});
}
TEST(skyline_layout, places_the_lowest_buffer_next_around_fixed_buffers) {
  expect_lowest_first({.has_fixed = true});
}
TEST(skyline_layout, places_the_lowest_buffer_next_with_fixed_and_mixed_alignments) {
  expect_lowest_first({.has_aligned = true, .has_fixed = true});
}

/// Checks the layout over the fullest section and its number of placements. @return its height
std::size_t height_over_fullest(std::vector<lifetime> const& blocks, std::size_t max_tried) {
  const std::size_t n = blocks.size();
  layout_of tested{blocks};
  EXPECT_TRUE(tested.layout.place_over_fullest(first_to_last(n), max_tried));
  EXPECT_LE(tested.context.nodes(), n + 2 * n * max_tried + n);
  planner::result made = tested.context.finish(n);
  made.optimal = made.height == made.proven_bound;
  EXPECT_EQ(test::plan_fault(made, blocks, 1), "") << n << " blocks";
  return made.height;
}

TEST(skyline_layout, over_the_fullest_section_returns_sound_plans) {
  std::mt19937_64 random{2};
  for (std::size_t n = 1; n < 60; ++n) {
    const std::vector<lifetime> blocks = random_blocks(random, n, {.has_aligned = true, .has_fixed = true});
    height_over_fullest(blocks, n % 9);
  }
}

TEST(skyline_layout, over_the_fullest_section_places_a_buffer_after_all_were_tried) {
  EXPECT_EQ(height_over_fullest({{.lower = 2, .upper = 5, .size = 4},
                                 {.lower = 0, .upper = 6, .size = 6},
                                 {.lower = 2, .upper = 4, .size = 1, .offset = 9}},
                                16),
            14u);
  std::mt19937_64 random{5};
  for (std::size_t k = 0; k < 3000; ++k)
    height_over_fullest(random_blocks(random, 2 + k % 14, {.has_aligned = k % 2 == 1, .has_fixed = true}),
                        16);
}

TEST(skyline_layout, backtracking_over_the_fullest_section_lowers_the_height) {
  std::mt19937_64 random{3};
  for (const kind of : {kind{}, kind{.has_aligned = true}}) {
    std::size_t without = 0, with = 0;
    for (int k = 0; k < 4; ++k) {
      const std::vector<lifetime> blocks = random_blocks(random, 1000, of);
      without += height_over_fullest(blocks, 0);
      with += height_over_fullest(blocks, 16);
    }
    EXPECT_LT(with, without);
  }
}

TEST(skyline_layout, over_the_fullest_section_never_backtracks_below_the_capacity) {
  std::mt19937_64 random{6};
  const std::vector<lifetime> blocks = random_blocks(random, 500, {});
  planner::options options = by_bytes;
  const auto nodes = [&] {
    layout_of tested{blocks, options};
    EXPECT_TRUE(tested.layout.place_over_fullest(first_to_last(blocks.size()), 8));
    return tested.context.nodes();
  };
  EXPECT_GT(nodes(), blocks.size());
  options.capacity = test_problem_of(blocks, options).lower_bound * 3;
  EXPECT_EQ(nodes(), blocks.size());
}

/// Expects that the layout backtracks, and takes less than `most` times the steps of a layout without
/// backtracking.
void expect_backjumping_ends(std::vector<lifetime> const& blocks, std::size_t max_tried, std::uint64_t most) {
  layout_of tested{blocks};
  EXPECT_TRUE(tested.layout.place_over_fullest(first_to_last(blocks.size()), 0));
  const std::uint64_t steps = tested.context.steps(), nodes = tested.context.nodes();
  EXPECT_TRUE(tested.layout.place_over_fullest(first_to_last(blocks.size()), max_tried));
  EXPECT_GT(tested.context.nodes() - nodes, nodes) << "it did not go back";
  EXPECT_LT(tested.context.steps() - steps, most * steps);
}

TEST(skyline_layout, backtracking_over_buffers_behind_fixed_buffers_ends) {
  // One-byte fixed buffers with odd gaps and free buffers of even sizes, so that most buffers wait for each
  // fixed one.
  std::mt19937_64 random{7};
  std::vector<lifetime> blocks;
  for (std::size_t i = 0; i < 1000; ++i) {
    const std::uint64_t lower = random() % 100;
    blocks.push_back({.lower = lower, .upper = lower + 1 + random() % 100, .size = 2 + random() % 500 * 2});
  }
  for (std::size_t i = 0; i < 100; ++i)
    blocks.push_back({.lower = 50, .upper = 150, .size = 1, .offset = (i + 1) * 501});
  expect_backjumping_ends(blocks, 8, 4);
}

TEST(skyline_layout, backtracking_across_many_fixed_buffers_ends) {
  // After a decision each plateau is raised at the end of each room.
  std::mt19937_64 random{8};
  std::vector<lifetime> blocks = random_blocks(random, 1000, {});
  for (std::size_t i = 0; i < 500; ++i)
    blocks.push_back({.lower = 0, .upper = 3000, .size = 1, .offset = (i + 1) * 51});
  expect_backjumping_ends(blocks, 16, 50);
}

/// The layout over the fullest sections, section by section, with a copy of the state at each decision. For
/// buffers that are neither fixed nor aligned further.
class copying_layout {
 public:
  copying_layout(problem const& instance, order by, std::size_t max_tried)
      : instance_{instance},
        by_{std::move(by)},
        max_tried_{max_tried},
        limit_{static_cast<double>(instance.lower_bound)},
        steps_left_{2 * max_tried * by_.size()},
        raises_left_{2 * steps_left_},
        now_{.level = std::vector<offset_type>(instance.section_count),
             .shaped_by = std::vector<std::size_t>(instance.section_count),
             .occupancy = {instance.section_loads.begin(), instance.section_loads.end()},
             .offsets = std::vector<offset_type>(by_.size(), no_offset)} {}

  std::vector<offset_type> place() {
    while (std::ranges::find(now_.offsets, no_offset) != now_.offsets.end()) {
      const auto lowest = static_cast<std::size_t>(std::ranges::min_element(now_.level) - now_.level.begin());
      const section_range plateau = plateau_of(lowest);
      const std::size_t rank = next_on(plateau);
      if (rank == by_.size()) raise(plateau);
      else place_buffer(plateau, rank);
    }
    return now_.offsets;
  }

 private:
  struct state {
    std::vector<offset_type> level;
    std::vector<std::size_t> shaped_by;  // by section
    std::vector<double> occupancy;
    std::vector<offset_type> offsets;
  };
  struct decision {
    state before;
    std::size_t rank, plateau_shaped_by;
    std::vector<std::size_t> tried_before;
  };

  [[nodiscard]] section_range plateau_of(std::size_t section) const {
    std::size_t begin = section, end = section + 1;
    while (begin != 0 && now_.level[begin - 1] == now_.level[section]) --begin;
    while (end != now_.level.size() && now_.level[end] == now_.level[section]) ++end;
    return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
  }

  [[nodiscard]] double fullest_in(section_range sections) const {
    return *std::max_element(now_.occupancy.begin() + sections.begin, now_.occupancy.begin() + sections.end);
  }

  /// Returns the first buffer over the first of the fullest sections, otherwise the first buffer.
  [[nodiscard]] std::size_t next_on(section_range plateau) const {
    std::uint32_t fullest = plateau.begin;
    while (now_.occupancy[fullest] != fullest_in(plateau)) ++fullest;
    for (const bool over_fullest : {true, false}) {
      for (std::size_t rank = 0; rank < by_.size(); ++rank) {
        section_range const& sections = instance_.buffers[by_[rank]].lifespan;
        if (now_.offsets[by_[rank]] == no_offset && std::ranges::find(tried_, rank) == tried_.end() &&
            sections.begin >= plateau.begin && sections.end <= plateau.end &&
            (!over_fullest || (sections.begin <= fullest && fullest < sections.end)))
          return rank;
      }
    }
    return by_.size();
  }

  void place_buffer(section_range plateau, std::size_t rank) {
    decisions_.push_back({now_, rank, now_.shaped_by[plateau.begin], std::exchange(tried_, {})});
    if (decisions_.size() > farthest_ + 50) {
      farthest_ = decisions_.size();
      backjumps_ = 0;
      least_ = infinity;
    }
    use_up_one(steps_left_);
    buffer const& next = instance_.buffers[by_[rank]];
    now_.offsets[by_[rank]] = now_.level[plateau.begin];
    for (std::uint32_t s = plateau.begin; s < plateau.end; ++s) now_.shaped_by[s] = decisions_.size();
    for (std::uint32_t s = next.lifespan.begin; s < next.lifespan.end; ++s) now_.level[s] += next.size;
    join(next.lifespan.begin);
  }

  void use_up_one(std::size_t& left) {
    if (left == 0) limit_ = infinity;
    else --left;
  }

  void raise(section_range plateau) {
    tried_.clear();
    const offset_type left = plateau.begin == 0 ? no_offset : now_.level[plateau.begin - 1];
    const offset_type right = plateau.end == now_.level.size() ? no_offset : now_.level[plateau.end];
    const offset_type to = std::min(left, right);
    if (to == no_offset) return raise_limit();
    const std::size_t shaped_by = now_.shaped_by[plateau.begin];
    for (std::uint32_t s = plateau.begin; s < plateau.end; ++s) {
      now_.occupancy[s] += static_cast<double>(to - now_.level[s]);
      now_.level[s] = to;
    }
    join(plateau.begin);
    use_up_one(raises_left_);
    for (const double fullest = fullest_in(plateau); fullest > limit_; raise_limit()) {
      least_ = std::min(least_, fullest);
      std::size_t last = shaped_by;
      while (last != 0 && decisions_[last - 1].tried_before.size() == max_tried_)
        last = decisions_[last - 1].plateau_shaped_by;
      if (last != 0 && backjumps_ < 64 * max_tried_) return backjump(last);
    }
  }

  void join(std::size_t section) {
    const section_range joined = plateau_of(section);
    const auto begin = now_.shaped_by.begin() + joined.begin, end = now_.shaped_by.begin() + joined.end;
    std::fill(begin, end, *std::max_element(begin, end));
  }

  void backjump(std::size_t last) {
    ++backjumps_;
    now_ = decisions_[last - 1].before;
    tried_ = decisions_[last - 1].tried_before;
    tried_.push_back(decisions_[last - 1].rank);
    decisions_.resize(last - 1);
  }

  void raise_limit() {
    limit_ = std::max(limit_, std::exchange(least_, infinity));
    backjumps_ = 0;
    for (decision& each : decisions_) each.tried_before.clear();
  }

  static constexpr double infinity = std::numeric_limits<double>::infinity();

  problem const& instance_;
  order by_;
  std::size_t max_tried_;
  double limit_, least_ = infinity;
  std::size_t steps_left_, raises_left_, farthest_ = 0, backjumps_ = 0;
  std::vector<std::size_t> tried_;
  std::vector<decision> decisions_;
  state now_;
};

TEST(skyline_layout, backtracking_agrees_with_a_layout_that_copies_its_state) {
  std::mt19937_64 random{8};
  for (std::size_t n : {10u, 20u, 40u, 80u, 160u}) {
    for (std::size_t max_tried : {0u, 1u, 2u, 8u}) {
      const std::vector<lifetime> blocks = random_blocks(random, n, {});
      layout_of tested{blocks};
      EXPECT_TRUE(tested.layout.place_over_fullest(first_to_last(n), max_tried));
      EXPECT_EQ(tested.layout.offsets(), copying_layout(tested.instance, first_to_last(n), max_tried).place())
          << n << " buffers, " << max_tried << " tried";
    }
  }
}

TEST(skyline_layout, backtracking_leaves_no_state_for_the_next_layout) {
  std::mt19937_64 random{4};
  const std::vector<lifetime> blocks = random_blocks(random, 80, {.has_aligned = true, .has_fixed = true});
  layout_of tested{blocks};
  const order by = first_to_last(80);
  EXPECT_TRUE(tested.layout.place_over_fullest(by, 8));
  const std::vector<offset_type> offsets = tested.layout.offsets();
  EXPECT_GT(tested.context.nodes(), blocks.size()) << "it did not go back";
  EXPECT_TRUE(tested.layout.place(by));
  EXPECT_EQ(tested.layout.offsets(), lowest_first(tested.instance, by));
  EXPECT_TRUE(tested.layout.place_over_fullest(by, 8));
  EXPECT_EQ(tested.layout.offsets(), offsets);
}

/// Returns the offsets of the layout over the fullest section, by number.
std::vector<offset_type> over_fullest(std::vector<lifetime> const& blocks) {
  layout_of tested{blocks};
  const auto place = [&] {
    EXPECT_TRUE(tested.layout.place_over_fullest(first_to_last(blocks.size()), 8));
    return tested.layout.offsets();
  };
  const std::vector<offset_type> offsets = place();
  EXPECT_EQ(place(), offsets);
  return offsets;
}

TEST(skyline_layout, counts_no_bytes_of_a_fixed_buffer_as_waste) {
  // At offset 2, above the fixed buffer, moment 2 is the fullest. If the fixed buffer counted as waste,
  // moment 0 would be.
  const std::vector<offset_type> offsets = over_fullest({{.lower = 1, .upper = 3, .size = 2},
                                                         {.lower = 0, .upper = 2, .size = 2},
                                                         {.lower = 1, .upper = 3, .size = 2},
                                                         {.lower = 0, .upper = 1, .size = 4},
                                                         {.lower = 2, .upper = 3, .size = 5},
                                                         {.lower = 0, .upper = 1, .size = 2, .offset = 0}});
  EXPECT_EQ(offsets[0], 0u);
  EXPECT_EQ(offsets[2], 2u);
  EXPECT_EQ(offsets[1], 6u);
}

/// Returns the number of steps of a layout.
std::uint64_t steps_of(std::vector<lifetime> const& blocks) {
  layout_of tested{blocks};
  EXPECT_TRUE(tested.layout.place(first_to_last(blocks.size())));
  return tested.context.steps();
}

TEST(skyline_layout, raises_valleys_past_fixed_buffers_and_alignments_in_few_steps) {
  constexpr std::size_t valleys = 1000, fixed = 100, fixed_bytes = 1 << 20;
  std::vector<lifetime> blocks;
  for (std::size_t i = 0; i < valleys; ++i) {
    blocks.push_back({.lower = 2 * i, .upper = 2 * i + 1, .size = 2 * fixed * fixed_bytes + i});
    blocks.push_back({.lower = 2 * i + 1, .upper = 2 * i + 2, .size = 1 + i % 7});
  }
  const std::uint64_t steps = steps_of(blocks);
  // At other moments, with gaps in which the last buffer does not fit.
  for (std::size_t i = 0; i < fixed; ++i)
    blocks.push_back({.lower = 3000, .upper = 3001, .size = fixed_bytes - 3, .offset = i * fixed_bytes});
  blocks.push_back({.lower = 3000, .upper = 3001, .size = fixed_bytes});
  EXPECT_LT(steps_of(blocks), 2 * steps);
  blocks.back().alignment = fixed_bytes;
  constexpr std::uint64_t steps_of_a_raise = 64, bits = 20;
  EXPECT_LT(steps_of(blocks), 2 * steps + valleys * bits * steps_of_a_raise);
}

TEST(skyline_layout, handles_permanently_fixed_buffers_in_few_steps) {
  std::mt19937_64 random{9};
  std::vector<lifetime> blocks = random_blocks(random, 1000, {});
  const std::uint64_t steps = steps_of(blocks);
  for (std::size_t i = 0; i < 100; ++i)
    blocks.push_back({.lower = 0, .upper = 3000, .size = 1, .offset = (i + 1) * 127});
  EXPECT_LT(steps_of(blocks), 3 * steps);
}

TEST(skyline_layout, fills_a_gap_in_few_steps_with_mixed_alignments) {
  constexpr std::size_t room = std::size_t{1} << 40U;
  EXPECT_LT(steps_of({{.lower = 0, .upper = 2, .size = 1, .offset = room},
                      {.lower = 0, .upper = 1, .size = room + 1},
                      {.lower = 1, .upper = 2, .size = 2, .alignment = 2}}),
            1000u);
}

TEST(skyline_layout, passes_fixed_bytes_at_aligned_offsets_in_few_steps) {
  const auto steps_with = [](std::size_t rooms) {
    std::vector<lifetime> blocks;
    for (std::size_t i = 0; i < rooms; ++i) {
      blocks.push_back({.upper = 1, .size = 1, .alignment = 64});
      blocks.push_back({.upper = 1, .size = 126, .offset = i * 128 + 2});
    }
    return steps_of(blocks);
  };
  EXPECT_LT(steps_with(400), 3 * steps_with(200));
}

TEST(skyline_layout, finds_small_buffers_among_larger_buffers_in_few_steps) {
  constexpr std::size_t n = 4000;
  const auto steps_with = [](std::size_t room) {
    std::mt19937_64 random{10};
    std::vector<lifetime> blocks;
    for (std::size_t i = 0; i < n / 2; ++i) {
      const std::uint64_t lower = random() % n, upper = n + random() % n;
      blocks.push_back({.lower = lower, .upper = upper, .size = 100 * n + random() % 100});
      blocks.push_back({.lower = lower, .upper = upper, .size = 1 + random() % 100});
    }
    blocks.push_back({.lower = 0, .upper = 2 * n, .size = 1, .offset = room});
    layout_of tested{blocks};
    const order by = order_by(tested.instance, {aspect::load, aspect::duration, aspect::area});
    EXPECT_TRUE(tested.layout.place(by));
    return tested.context.steps();
  };
  EXPECT_LT(steps_with(70 * n), 4 * steps_with(std::size_t{1} << 60U));
}

TEST(skyline_layout, pays_unless_padding_is_large) {
  std::vector<lifetime> blocks(100, {.upper = 1, .size = 100});
  const auto pays = [&] { return skyline_layout::pays(test_problem_of(blocks, by_bytes)); };
  for (std::size_t i = 0; i < 44; ++i) blocks[i].alignment = 128;  // 28 bytes of padding each
  EXPECT_TRUE(pays());
  blocks[44].alignment = 128;
  EXPECT_FALSE(pays());
}

TEST(skyline_layout, pays_unless_many_buffers_overlap_fixed_buffers) {
  std::vector<lifetime> blocks(4096, {.lower = 1, .upper = 3, .size = 1});
  blocks.push_back({.lower = 2, .upper = 3, .size = 1});  // its own section
  for (std::size_t i = 0; i < 1024; ++i)
    blocks.push_back({.lower = 1, .upper = 2, .size = 1, .offset = 2 * i});
  const auto pays = [&] { return skyline_layout::pays(test_problem_of(blocks, by_bytes)); };
  EXPECT_TRUE(pays());
  blocks.push_back({.lower = 2, .upper = 3, .size = 1, .offset = 0});
  EXPECT_FALSE(pays());
  for (std::size_t beside_none : {0u, 3u}) {
    blocks.back().lower = beside_none;
    blocks.back().upper = beside_none + 1;
    EXPECT_TRUE(pays());
  }
  // No buffer waits for a fixed buffer that lives throughout.
  blocks.back() = {.lower = 0, .upper = 4, .size = 1, .offset = 2048};
  EXPECT_TRUE(pays());
}

TEST(skyline_layout, does_not_pay_for_conflict_graphs) {
  const std::vector<plan_block> blocks{{.size = 1}, {.size = 1}};
  const std::vector<plan_conflict> conflicts{{0, 1}};
  EXPECT_FALSE(skyline_layout::pays(test_problem_of(blocks, conflicts, by_bytes)));
}

}  // namespace
}  // namespace tidemark::planner::detail
