// SPDX-License-Identifier: Apache-2.0
// Topic latency: the longest time of a single warm allocation. A step allocates blocks of 16 to 4,096 bytes
// in random order and frees them. Each allocation is timed separately in ticks of the processor's counter,
// minus the time of an empty measurement. The counters are the median, the 99.99th percentile and the
// maximum. The maximum is usually caused by the machine: an interrupt or another process.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <random>
#include <string>
#include <vector>

#include <tidemark/tidemark.hpp>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "loop.hpp"
#include "peers.hpp"

namespace {

using namespace tidemark;

constexpr std::size_t blocks_of_a_step = 256;
constexpr std::size_t samples_max = std::size_t{1} << 21;

/// Reads the processor's counter after all earlier and before all later instructions.
std::uint64_t ticks() {
#if defined(__x86_64__)
  _mm_lfence();
  const std::uint64_t now = __rdtsc();
  _mm_lfence();
  return now;
#else
  return __builtin_readcyclecounter();
#endif
}

/// Returns the nanoseconds of a tick.
double tick_ns() {
  using clock = std::chrono::steady_clock;
  static const double measured = [] {
    const auto begin = clock::now();
    const std::uint64_t first = ticks();
    while (clock::now() - begin < std::chrono::milliseconds{20}) {
    }
    const std::uint64_t last = ticks();
    return std::chrono::duration<double, std::nano>(clock::now() - begin).count() /
           static_cast<double>(last - first);
  }();
  return measured;
}

/// Returns the median distance of two readings with nothing between them.
std::uint64_t empty_measurement() {
  std::array<std::uint64_t, 1001> apart{};
  for (std::uint64_t& one : apart) {
    const std::uint64_t begin = ticks();
    one = ticks() - begin;
  }
  std::ranges::nth_element(apart, apart.begin() + 500);
  return apart[500];
}

std::array<std::size_t, blocks_of_a_step> sizes_of_a_step() {
  std::mt19937 random{3};
  std::array<std::size_t, blocks_of_a_step> sizes{};
  for (std::size_t& bytes : sizes) bytes = std::size_t{16} << random() % 9;
  return sizes;
}

/// @param step calls its argument with the number of each block, and frees the blocks at its end
template <class Step>
void time_each(benchmark::State& state, std::pmr::memory_resource& memory, Step const& step) {
  const auto sizes = sizes_of_a_step();
  std::array<void*, blocks_of_a_step> made{};
  std::vector<std::uint32_t> samples;
  samples.reserve(samples_max);
  for (int i = 0; i < 100; ++i)
    step([&](std::size_t k) { bench::use(made[k] = memory.allocate(sizes[k])); }, made, sizes);
  const std::uint64_t nothing = empty_measurement();
  for (auto _ : state) {
    step(
        [&](std::size_t k) {
          const std::uint64_t begin = ticks();
          void* const block = memory.allocate(sizes[k]);
          const std::uint64_t took = ticks() - begin;
          bench::use(made[k] = block);
          if (samples.size() < samples_max) {
            samples.push_back(static_cast<std::uint32_t>(
                std::min<std::uint64_t>(took > nothing ? took - nothing : 0, UINT32_MAX)));
          }
        },
        made, sizes);
  }
  std::ranges::sort(samples);
  constexpr double counter_step_ns = 10;  // the counter's resolution on the author's machine
  const auto at = [&](double part) {
    if (samples.empty()) return 0.0;
    const auto place = static_cast<std::size_t>(part * static_cast<double>(samples.size() - 1));
    return std::max(counter_step_ns, tick_ns() * samples[place]);
  };
  state.counters["p50_ns"] = at(0.5);
  state.counters["p99_99_ns"] = at(0.9999);
  state.counters["max_ns"] = at(1);
}

void block_by_block(benchmark::State& state, std::pmr::memory_resource& memory) {
  time_each(state, memory, [&](auto const& allocate, auto& made, auto const& sizes) {
    for (std::size_t k = 0; k < blocks_of_a_step; ++k) allocate(k);
    for (std::size_t k = 0; k < blocks_of_a_step; ++k) memory.deallocate(made[k], sizes[k]);
  });
}

void of_arena(benchmark::State& state) {
  arena memory;
  time_each(state, memory, [&](auto const& allocate, auto&, auto const&) {
    arena::scope scope{memory};
    for (std::size_t k = 0; k < blocks_of_a_step; ++k) allocate(k);
  });
}

void of_planned_arena(benchmark::State& state) {
  pool fallback;
  planned_arena memory{{.fallback = &fallback}};
  time_each(state, memory, [&](auto const& allocate, auto& made, auto const& sizes) {
    planned_arena::step step{memory};
    for (std::size_t k = 0; k < blocks_of_a_step; ++k) allocate(k);
    for (std::size_t k = 0; k < blocks_of_a_step; ++k) memory.deallocate(made[k], sizes[k]);
  });
}

template <class Pool>
void of_pool(benchmark::State& state) {
  Pool memory;
  block_by_block(state, memory);
}

const bool registered = [] {
  benchmark::RegisterBenchmark("arena/latency", of_arena);
  benchmark::RegisterBenchmark("planned_arena/latency", of_planned_arena);
  benchmark::RegisterBenchmark("pool/latency", of_pool<pool>);
  benchmark::RegisterBenchmark("synchronized_pool/latency", of_pool<synchronized_pool>);
  for (bench::peer const& peer : bench::peers()) {
    benchmark::RegisterBenchmark((peer.name + "/latency").c_str(),
                                 [&peer](benchmark::State& state) { block_by_block(state, *peer.make()); });
  }
  return true;
}();

}  // namespace
