// SPDX-License-Identifier: Apache-2.0
// Topic threads: blocks of one size and of many sizes. Each thread has its own blocks, on one thread and on
// two, which shows the cost of a second thread. In another case one thread frees the blocks of the other. An
// item is a pair of allocate and deallocate; times are by the clock, over all threads.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <iterator>
#include <memory>
#include <memory_resource>
#include <string>
#include <thread>
#include <vector>

#include <tidemark/tidemark.hpp>

#include "loop.hpp"
#include "peers.hpp"

namespace {

using namespace tidemark;

constexpr std::size_t batch = 1000;

// As many live blocks as a batch, or 2 MiB.
void own_blocks(benchmark::State& state, std::pmr::memory_resource* resource) {
  benchmark::DoNotOptimize(resource);
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<void*> blocks(std::min(batch, 2 * MiB / bytes));
  for (auto _ : state) {
    for (void*& block : blocks) {
      block = resource->allocate(bytes);
      *static_cast<char volatile*>(block) = 1;
    }
    for (void* block : blocks) resource->deallocate(block, bytes);
  }
  state.SetItemsProcessed(state.iterations() * std::ssize(blocks));
}

void mixed_blocks(benchmark::State& state, std::pmr::memory_resource* resource) {
  static constexpr std::array<std::size_t, 8> sizes{16, 100, 700, 64, 3000, 256, 9000, 1500};
  benchmark::DoNotOptimize(resource);
  std::array<void*, batch> blocks;
  for (auto _ : state) {
    for (std::size_t i = 0; i < batch; ++i) {
      blocks[i] = resource->allocate(sizes[i % sizes.size()]);
      *static_cast<char volatile*>(blocks[i]) = 1;
    }
    for (std::size_t i = 0; i < batch; ++i) resource->deallocate(blocks[i], sizes[i % sizes.size()]);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(batch));
}

/// A ring between two threads. Blocks pass through it in batches, as in a message queue. The measured time is
/// then the time of the allocator, not of the ring.
struct ring {
  static constexpr std::size_t places = 8, per_place = 128;
  struct alignas(64) place {
    std::atomic<bool> full{false};
    std::array<void*, per_place> blocks;
  };
  std::array<place, places> all;
};

void handed_over_blocks(benchmark::State& state, std::pmr::memory_resource* resource) {
  static ring between;
  benchmark::DoNotOptimize(resource);
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const bool produces = state.thread_index() == 0;
  std::size_t turn = 0;
  for (auto _ : state) {
    ring::place& place = between.all[turn++ % ring::places];
    while (place.full.load(std::memory_order_acquire) == produces) std::this_thread::yield();
    for (void*& block : place.blocks) {
      if (produces) {
        block = resource->allocate(bytes);
        *static_cast<char volatile*>(block) = 1;
      } else {
        resource->deallocate(block, bytes);
      }
    }
    place.full.store(produces, std::memory_order_release);
  }
  if (produces) state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(ring::per_place));
}

const bool registered = [] {
  const auto add = [](char const* name, std::pmr::memory_resource* resource) {
    const auto with = [&](char const* what, auto work) {
      return benchmark::RegisterBenchmark((std::string{name} + what).c_str(),
                                          [=](benchmark::State& state) { work(state, resource); })
          ->UseRealTime();
    };
    with("/own", own_blocks)->ArgsProduct({{64, 256, 1024, 8192, 65'536, 262'144}})->ThreadRange(1, 2);
    with("/handed_over", handed_over_blocks)->ArgsProduct({{64, 256, 1024, 8192, 65'536}})->Threads(2);
    with("/mixed", mixed_blocks)->ThreadRange(1, 2);
  };
  static synchronized_pool ours;
  add("synchronized_pool", &ours);
  for (bench::peer const& peer : bench::peers()) {
    if (!peer.shared) continue;
    static std::vector<std::shared_ptr<std::pmr::memory_resource>> kept;
    add(peer.name.c_str(), kept.emplace_back(peer.make()).get());
  }
  return true;
}();

}  // namespace
