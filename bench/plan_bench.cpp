// SPDX-License-Identifier: Apache-2.0
// Topic plan: how long the planner takes until no plan can be lower, how low it is after a time, and how its
// first order grows with the number of blocks. Counter `ratio`: the height by the lower bound. There is no
// package of MiniMalloc to measure beside: the times that bench/targets.json compares with are what it took
// for the same on one core of such a machine when the targets were set.
#include <benchmark/benchmark.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/plan/solver/plan.hpp>

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

/// The shape of a training step: sizes over six orders of magnitude, few of which are large; most blocks die
/// soon, and one in eight is kept by the way forward for the way back, where the first comes last.
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

void plan_again(benchmark::State& state, blocks const& some, plan_options const& options) {
  memory_plan made;
  for (auto _ : state) made = make_plan(some, options);
  state.counters["ratio"] = made.ratio();
}

void plan_for(std::string const& name, blocks const& some, plan_options const& options) {
  benchmark::RegisterBenchmark(("planner/" + name).c_str(),
                               [=](benchmark::State& state) { plan_again(state, some, options); });
}

const bool registered = [] {
  // They end when they meet the bound.
  plan_for("to_bound/resnet50", read_plan("resnet50"), {.time_limit = 10s});
  plan_for("to_bound/torch_gpt", read_step("torch_gpt_lifetimes"), {.time_limit = 10s});
  for (std::string const name : {"A", "C"}) {
    const blocks hard = read_plan("minimalloc_" + name);
    plan_for("50ms/minimalloc_" + name, hard, {.alignment = 1, .time_limit = 50ms});
    plan_for("1s/minimalloc_" + name, hard, {.alignment = 1, .time_limit = 1s});
    // Until their published capacity is met.
    plan_for("exact/minimalloc_" + name, hard,
             {.alignment = 1, .time_limit = 60s, .exact = true, .capacity = 1 * MiB});
  }
  for (const std::size_t n : std::array<std::size_t, 3>{5'000, 20'000, 62'000}) {
    const blocks some = training_step(n);
    plan_for("first_order/" + std::to_string(n), some, {.time_limit = 0s});
    plan_for("1s/generated/" + std::to_string(n), some, {.time_limit = 1s});
  }
  return true;
}();

}  // namespace
