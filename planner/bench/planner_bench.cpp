// SPDX-License-Identifier: Apache-2.0
// Topic plan: time until no plan can be lower, height after a time limit, and growth of the first plan with
// the number of blocks. Counter `ratio`: height over lower bound. No package of MiniMalloc exists to measure
// beside. bench/targets.json has MiniMalloc's times for the same steps, measured on one core of a similar
// machine when the targets were set.
//
// planner/hard: 56 generated steps that fit exactly into 1 MiB. Each is searched until it fits, for at most
// TIDEMARK_BENCH_PLAN_SECONDS (60). Counters: percentiles of the CPU seconds to capacity, with the limit for
// steps that did not fit, and the share of those steps. TIDEMARK_BENCH_ORDER is a seed that shuffles the
// rows. make_plan/hard: `make_plan` alone, the best plan of its three quick orders.
//
// planner/limit/any_lifetime/60000: the same limit; each TIDEMARK_BENCH_ORDER gives another step. Counter
// `percent_above`: height above the bound.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/planner.hpp>

#include "hard_steps.hpp"
#include "plan_checker.hpp"
#include "plan_file.hpp"

namespace {

using namespace tidemark;
using namespace std::chrono_literals;
using blocks = std::vector<lifetime>;

blocks read_plan(std::string const& name) {
  return tools::read_lifetimes(std::string{TIDEMARK_PLANS "/"} + name + ".csv").blocks;
}
blocks read_step(std::string const& name) {
  return tools::read_lifetimes(std::string{TIDEMARK_TRACES "/"} + name + ".csv").blocks;
}

/// The shape of a training step: sizes over six orders of magnitude, few of them large. Most blocks die soon.
/// One in eight blocks of the forward pass is kept for the backward pass, and the first of these dies last.
blocks training_step(std::size_t n) {
  std::minstd_rand random{1};
  std::uniform_real_distribution<double> magnitude{8, 24};
  std::geometric_distribution<std::uint64_t> delay{0.1};
  blocks made;
  made.reserve(n);
  const std::uint64_t end = 2 * n;
  for (std::uint64_t i = 0; i < n; ++i) {
    const bool is_kept = i < n / 2 && random() % 8 == 0;
    const std::uint64_t dies = is_kept ? end - i : i + 1 + delay(random);
    made.push_back(
        {.lower = i, .upper = dies, .size = static_cast<std::size_t>(std::exp2(magnitude(random)))});
  }
  return made;
}

/// Each block lives for up to a sixteenth of the step and has up to 1 MiB, uniformly distributed. Few moments
/// are as full as the fullest, and the blocks over these moments decide the height. The result for 60,000
/// blocks depends on the seed.
blocks any_lifetimes(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  blocks made;
  made.reserve(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t lower = random() % (4 * n), upper = lower + 1 + random() % (n / 4);
    made.push_back({.lower = lower, .upper = upper, .size = 1 + random() % MiB});
  }
  return made;
}

/// Adds 60 blocks that are fixed throughout the step, with gaps between them. One block is aligned further.
blocks around_fixed(blocks some) {
  const std::uint64_t end = std::ranges::max(some, {}, &lifetime::upper).upper;
  for (std::size_t i = 0; i < 60; ++i)
    some.push_back({.lower = 0, .upper = end, .size = 64 * KiB, .offset = (i + 1) * 8 * MiB});
  some.front().alignment = 4 * KiB;
  return some;
}

void plan_again(benchmark::State& state, blocks const& some, planner::options const& options) {
  planner::result made;
  for (auto _ : state) made = planner::find_plan(some, options);
  state.counters["ratio"] = made.ratio();
  state.counters["percent_above"] = 100 * (made.ratio() - 1);
}

/// Measures the first plan of the generated steps.
template <class Made>
void plan_first(std::string const& name, Made steps) {
  benchmark::RegisterBenchmark(("planner/first_order/" + name).c_str(), [=](benchmark::State& state) {
    plan_again(state, steps(), {.time_limit = 0s});
  });
}

void plan_for(std::string const& name, blocks const& some, planner::options const& options) {
  benchmark::RegisterBenchmark(("planner/" + name).c_str(),
                               [=](benchmark::State& state) { plan_again(state, some, options); });
}

// ---- hard steps, some of which take long ------------------------------------------------------------------

/// Returns an environment variable's number, or `otherwise` if it is not set. @throws std::invalid_argument
/// if it is not a number.
double setting(char const* name, double otherwise) {
  char const* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::stod(text);
}

struct hard_family {
  char const* name;
  test::step_shape shape;
  bool has_gaps;
};
constexpr std::array<hard_family, 4> hard_families{
    {{"nested", test::step_shape::nested, false},
     {"nested_gaps", test::step_shape::nested, true},
     {"overlapping", test::step_shape::overlapping, false},
     {"overlapping_gaps", test::step_shape::overlapping, true}}};
constexpr std::array<std::size_t, 7> hard_sizes{150, 200, 250, 300, 350, 400, 500};
// The tests, with which the search was written, use other seeds.
constexpr std::array<std::uint64_t, 2> hard_seeds{100, 101};
constexpr std::size_t family_steps = hard_sizes.size() * hard_seeds.size();

std::vector<blocks> hard_steps(hard_family const& family, std::uint64_t order) {
  std::vector<blocks> made;
  for (const std::size_t n : hard_sizes) {
    for (const std::uint64_t seed : hard_seeds) {
      blocks& rows = made.emplace_back(
          test::hard_step({.shape = family.shape, .buffers = n, .has_gaps = family.has_gaps, .seed = seed}));
      std::mt19937_64 random{order};
      for (std::size_t i = rows.size(); order != 0 && i > 1; --i)
        std::swap(rows[i - 1], rows[static_cast<std::size_t>(random() % i)]);
    }
  }
  return made;
}

/// The results of all hard steps.
class hard_results {
 public:
  /// Plans a step until it fits. @return true if it fits; @throws std::logic_error if the plan is unsound.
  bool plan(blocks const& rows, planner::options const& options) {
    const std::clock_t begin = std::clock();
    const planner::result made = planner::find_plan(rows, options);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    const std::string fault = test::plan_fault(made, rows, options.alignment);
    if (!fault.empty()) throw std::logic_error(fault);
    log_ratios_ += std::log(made.ratio());
    const bool fits = made.height <= test::hard_step_capacity;
    const double limit = std::chrono::duration<double>{options.time_limit}.count();
    seconds_.push_back(fits ? std::min(seconds, limit) : limit);  // the plan may fit just after the limit
    return fits;
  }
  /// Returns the time that this percentage of the steps did not exceed. @pre `percent` is at least 1
  [[nodiscard]] double percentile(std::size_t percent) {
    std::ranges::sort(seconds_);
    return seconds_[(seconds_.size() * percent + 99) / 100 - 1];
  }
  /// Returns the geometric mean.
  [[nodiscard]] double ratio() const { return std::exp(log_ratios_ / static_cast<double>(seconds_.size())); }

 private:
  std::vector<double> seconds_;
  double log_ratios_ = 0;
};

std::uint64_t order_of_rows() { return static_cast<std::uint64_t>(setting("TIDEMARK_BENCH_ORDER", 0)); }
std::chrono::nanoseconds plan_limit() {
  const std::chrono::duration<double> limit{setting("TIDEMARK_BENCH_PLAN_SECONDS", 60)};
  return std::chrono::duration_cast<std::chrono::nanoseconds>(limit);
}

void plan_hard_steps(benchmark::State& state, std::chrono::nanoseconds limit) {
  const std::uint64_t order = order_of_rows();
  for (auto _ : state) {
    hard_results results;
    std::size_t unsolved = 0;
    for (hard_family const& family : hard_families) {
      std::size_t fitted = 0;
      for (blocks const& rows : hard_steps(family, order)) {
        fitted += results.plan(rows, {.alignment = 1,
                                      .time_limit = limit,
                                      .seed = order,
                                      .exact = true,
                                      .capacity = test::hard_step_capacity});
      }
      unsolved += family_steps - fitted;
      state.counters[std::string{"unsolved_"} + family.name] =
          1 - static_cast<double>(fitted) / static_cast<double>(family_steps);
    }
    constexpr std::size_t steps = family_steps * hard_families.size();
    state.counters["steps"] = static_cast<double>(steps);
    state.counters["unsolved"] = static_cast<double>(unsolved) / static_cast<double>(steps);
    state.counters["p50"] = results.percentile(50);
    state.counters["p90"] = results.percentile(90);
    state.counters["max"] = results.percentile(100);
    state.counters["ratio"] = results.ratio();
  }
}

const bool registered = [] {
  // These end when they meet the bound.
  plan_for("to_bound/resnet50", read_plan("resnet50"), {.time_limit = 10s});
  plan_for("to_bound/torch_gpt", read_step("torch_gpt_lifetimes"), {.time_limit = 10s});
  for (std::string const name : {"A", "C"}) {
    const blocks hard = read_plan("minimalloc_" + name);
    plan_for("50ms/minimalloc_" + name, hard, {.alignment = 1, .time_limit = 50ms});
    plan_for("1s/minimalloc_" + name, hard, {.alignment = 1, .time_limit = 1s});
    // These end at the published capacity.
    plan_for("exact/minimalloc_" + name, hard,
             {.alignment = 1, .time_limit = 60s, .exact = true, .capacity = 1 * MiB});
  }
  for (const std::size_t n : std::array<std::size_t, 3>{5'000, 20'000, 62'000}) {
    const blocks some = training_step(n);
    plan_for("first_order/" + std::to_string(n), some, {.time_limit = 0s});
    plan_for("1s/generated/" + std::to_string(n), some, {.time_limit = 1s});
  }
  plan_first("any_lifetime/60000", [] { return any_lifetimes(60'000, 0); });
  plan_first("any_lifetime/1000000", [] { return any_lifetimes(1'000'000, order_of_rows()); });
  plan_first("around_fixed/60000", [] { return around_fixed(any_lifetimes(60'000, 0)); });
  benchmark::RegisterBenchmark("planner/limit/any_lifetime/60000",
                               [](benchmark::State& state) {
                                 plan_again(state, any_lifetimes(60'000, order_of_rows()),
                                            {.alignment = 1, .time_limit = plan_limit()});
                               })
      ->Iterations(1)
      ->Unit(benchmark::kSecond);
  benchmark::RegisterBenchmark("planner/hard",
                               [](benchmark::State& state) { plan_hard_steps(state, plan_limit()); })
      ->Iterations(1)
      ->Unit(benchmark::kSecond);
  benchmark::RegisterBenchmark("make_plan/hard", [](benchmark::State& state) { plan_hard_steps(state, 0s); })
      ->Iterations(1)
      ->Unit(benchmark::kSecond);
  return true;
}();

}  // namespace
