// SPDX-License-Identifier: Apache-2.0
// Strategy: all offsets of a few small buffers as the model. The search finds a layout at the least height,
// and proves that no lower layout exists.
#include "pair_search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "problem.hpp"
#include "solver_context.hpp"
#include "test_problem.hpp"

namespace tidemark::planner::detail {
namespace {

constexpr auto no_limit = std::numeric_limits<std::uint64_t>::max();
const planner::options by_bytes{.alignment = 1, .time_limit = std::chrono::nanoseconds::max()};

/// Returns true if the buffers from number `n` on fit below the height, by trying all offsets.
bool fits(problem const& instance, offset_type height, std::vector<offset_type>& offsets, std::size_t n = 0) {
  if (n == instance.buffers.size()) return true;
  buffer const& next = instance.buffers[n];
  for (offset_type at = next.is_fixed() ? next.fixed : 0; at + next.size <= height; at += next.align) {
    const auto shares_bytes = [&](std::size_t other) {
      buffer const& placed = instance.buffers[other];
      return placed.lifespan.overlaps(next.lifespan) && offsets[other] < at + next.size &&
             at < offsets[other] + placed.size;
    };
    offsets[n] = at;
    bool is_free = true;
    for (std::size_t other = 0; other < n && is_free; ++other) is_free = !shares_bytes(other);
    if (is_free && fits(instance, height, offsets, n + 1)) return true;
    if (next.is_fixed()) break;
  }
  return false;
}

offset_type least_height(problem const& instance) {
  std::vector<offset_type> offsets(instance.buffers.size());
  for (offset_type height = 0;; ++height) {
    if (fits(instance, height, offsets)) return height;
  }
}

/// Returns the first fault of a layout, or an empty text.
std::string fault(problem const& instance, std::vector<offset_type> const& offsets, offset_type height) {
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    buffer const& one = instance.buffers[i];
    if (offsets[i] + one.size > height) return "too high";
    if (offsets[i] % one.align != 0) return "misaligned";
    if (one.is_fixed() && offsets[i] != one.fixed) return "moved";
    for (std::size_t j = 0; j < i; ++j) {
      buffer const& other = instance.buffers[j];
      if (one.lifespan.overlaps(other.lifespan) && offsets[i] < offsets[j] + other.size &&
          offsets[j] < offsets[i] + one.size)
        return "shares bytes";
    }
  }
  return "";
}

/// Returns random blocks, some of which are fixed.
std::vector<lifetime> some_blocks(std::uint64_t seed, bool are_alike) {
  std::mt19937_64 random{seed};
  const auto between = [&](std::size_t low, std::size_t high) { return low + random() % (high - low + 1); };
  std::vector<lifetime> made;
  for (std::size_t n = between(2, 6); n > 0; --n) {
    const std::uint64_t lower = between(0, 3);
    const std::size_t alignment = std::size_t{1} << between(0, 3);
    made.push_back({.lower = lower,
                    .upper = lower + between(1, 4),
                    .size = between(1, are_alike ? 2 : 7),
                    .alignment = are_alike ? std::min<std::size_t>(alignment, 2) : alignment});
  }
  if (seed % 5 == 0) made.front().offset = made.front().alignment * between(0, 2);
  return made;
}

class searched {
 public:
  explicit searched(std::span<lifetime const> blocks) : instance_{test_problem_of(blocks, by_bytes)} {
    context_.enter_stage("pairs");
  }
  [[nodiscard]] problem const& instance() const { return instance_; }
  outcome probe(offset_type height, std::uint64_t max_cases = no_limit) {
    return search_.probe(height, max_cases, &steps_);
  }
  [[nodiscard]] std::vector<offset_type> const& offsets() const { return search_.offsets(); }
  [[nodiscard]] std::vector<pair_search::step> const& steps() const { return steps_; }

 private:
  problem instance_;
  solver_context context_{instance_, {}, by_bytes};
  pair_search search_{context_};
  std::vector<pair_search::step> steps_;
};

// P.42
TEST(pair_search, finds_the_lowest_layout_and_refutes_lower_ones) {
  std::size_t above = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    searched search{some_blocks(seed, seed % 2 == 1)};
    const offset_type least = least_height(search.instance());
    above += least > search.instance().lower_bound ? 1 : 0;
    ASSERT_EQ(search.probe(least), outcome::found) << seed;
    ASSERT_EQ(fault(search.instance(), search.offsets(), least), "") << seed;
    ASSERT_EQ(search.probe(least - 1), outcome::impossible) << seed;
    ASSERT_EQ(search.probe(least + 1), outcome::found) << seed;
  }
  EXPECT_GT(above, 100U);  // the bound of live bytes alone is often too low
}

TEST(pair_search, refutes_by_alignment_padding_in_one_case) {
  const std::vector<lifetime> blocks(5, {.lower = 0, .upper = 1, .size = 10, .alignment = 64});
  searched search{blocks};
  ASSERT_EQ(search.instance().unit_bytes, 2U);
  EXPECT_EQ(search.probe((4 * 64 + 10) / 2 - 1, 1), outcome::impossible);
  EXPECT_EQ(search.probe((4 * 64 + 10) / 2), outcome::found);
}

TEST(pair_search, tries_identical_buffers_in_one_order) {
  // Four identical buffers have 24 orders. The search tries one of these, so eight cases suffice.
  std::vector<lifetime> blocks(4, {.lower = 0, .upper = 2, .size = 3, .alignment = 2});
  blocks.push_back({.lower = 1, .upper = 3, .size = 4});
  searched search{blocks};
  EXPECT_EQ(search.probe(least_height(search.instance()) - 1, 8), outcome::impossible);
}

TEST(pair_search, returns_no_answer_once_stopped) {
  const std::atomic<bool> stop{true};
  planner::options stopped = by_bytes;
  stopped.stop = &stop;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const problem instance = test_problem_of(some_blocks(seed, false), stopped);
    solver_context context{instance, {}, stopped};
    context.enter_stage("pairs");
    pair_search search{context};
    const bool ends_above = instance.buffers.front().fixed_bytes().end > instance.lower_bound;
    ASSERT_EQ(search.probe(instance.lower_bound, no_limit),
              ends_above ? outcome::impossible : outcome::unknown);
    ASSERT_FALSE(context.count_node(0));
  }
}

// P.42
TEST(pair_search, keeps_the_steps_of_a_proof) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    searched search{some_blocks(seed, false)};
    ASSERT_EQ(search.probe(least_height(search.instance()) - 1), outcome::impossible);
    std::size_t open = 1;  // cases
    for (pair_search::step const& each : search.steps()) {
      ASSERT_GT(open, 0U);
      open = each.is_contradiction() ? open - 1 : open + 1;
    }
    ASSERT_EQ(open, 0U);
  }
}

TEST(pair_search, gives_up_after_max_cases) {
  std::size_t cut = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    searched search{some_blocks(seed, false)};
    const offset_type height = least_height(search.instance()) - 1;
    const bool ends_above =
        search.instance().buffers.front().fixed_bytes().end > height;  // refuted without a case
    ASSERT_EQ(search.probe(height, 0), ends_above ? outcome::impossible : outcome::unknown);
    cut += search.probe(height, 1) == outcome::unknown ? 1 : 0;
  }
  EXPECT_GT(cut, 10U);
}

}  // namespace
}  // namespace tidemark::planner::detail
