// SPDX-License-Identifier: Apache-2.0
// Topic threads: blocks of one size and of many sizes. Each thread has its own blocks, on one thread and on
// two, which shows the cost of a second thread. In other cases one thread frees the blocks of the other. An
// item is a pair of allocate and deallocate; times are by the clock, over all threads.
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <iterator>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
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

// ---- a producer and a consumer ----------------------------------------------------------------------------

/// A bounded queue of batches: at most 16 batches of 64 blocks of 16 to 512 bytes, 264 KB, are live in it.
class batch_queue {
 public:
  static constexpr std::size_t batches_max = 16, per_batch = 64;
  using blocks = std::vector<void*>;

  static std::size_t bytes_of(std::size_t i) { return 16 + i % 32 * 16; }

  void push(blocks pushed) {
    {
      std::unique_lock lock{mutex_};
      changed_.wait(lock, [&] { return batches_.size() < batches_max; });
      batches_.push_back(std::move(pushed));
    }
    changed_.notify_all();
  }
  blocks pop() {
    blocks popped;
    {
      std::unique_lock lock{mutex_};
      changed_.wait(lock, [&] { return !batches_.empty(); });
      popped = std::move(batches_.back());
      batches_.pop_back();
    }
    changed_.notify_all();
    return popped;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<blocks> batches_;
};

/// Two new threads: one allocates and writes the blocks of all batches, the other one frees them.
void produce_and_consume(std::pmr::memory_resource& resource, std::size_t batches) {
  batch_queue queue;
  std::jthread consumer{[&] {
    for (std::size_t k = 0; k < batches; ++k) {
      const batch_queue::blocks blocks = queue.pop();
      for (std::size_t i = 0; i < blocks.size(); ++i)
        resource.deallocate(blocks[i], batch_queue::bytes_of(i));
    }
  }};
  std::jthread producer{[&] {
    for (std::size_t k = 0; k < batches; ++k) {
      batch_queue::blocks blocks(batch_queue::per_batch);
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        blocks[i] = resource.allocate(batch_queue::bytes_of(i));
        std::memset(blocks[i], 1, batch_queue::bytes_of(i));
      }
      queue.push(std::move(blocks));
    }
  }};
}

void handoff(benchmark::State& state, std::pmr::memory_resource* resource) {
  constexpr std::size_t batches = 1000;
  for (auto _ : state) produce_and_consume(*resource, batches);
  bench::count_items(state, batches * batch_queue::per_batch);
}

/// Returns a line of /proc/self/status in KiB.
std::size_t kib_of_process(std::string_view line) {
  std::ifstream status{"/proc/self/status"};
  for (std::string text; std::getline(status, text);) {
    if (text.starts_with(line)) return std::strtoul(text.c_str() + line.size() + 1, nullptr, 10);
  }
  return 0;
}

/// Runs in a new process. Its peak of resident memory, less that of its beginning, is the counter `grown_kib`.
template <class Make>
void handoff_memory(benchmark::State& state, Make const& make) {
  for (auto _ : state) {
    malloc_trim(0);
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) return state.SkipWithError("there is no pipe");
    const pid_t child = fork();
    if (child == 0) {
      std::ofstream{"/proc/self/clear_refs"} << 5;  // the peak is now the present amount
      const std::size_t before = kib_of_process("VmRSS");
      produce_and_consume(*make(), 10'000);
      const std::size_t grown = kib_of_process("VmHWM") - before;
      _exit(write(ends[1], &grown, sizeof grown) == sizeof grown ? 0 : 1);
    }
    std::size_t grown = 0;
    close(ends[1]);
    const bool is_read = read(ends[0], &grown, sizeof grown) == sizeof grown;
    close(ends[0]);
    waitpid(child, nullptr, 0);
    if (!is_read) return state.SkipWithError("the process failed");
    state.counters["grown_kib"] = static_cast<double>(grown);
  }
}

const bool registered = [] {
  const auto add_memory = [](std::string const& name, auto make) {
    benchmark::RegisterBenchmark((name + "/handoff_memory").c_str(), [=](benchmark::State& state) {
      handoff_memory(state, make);
    })->Iterations(1);
  };
  const auto add = [](char const* name, std::pmr::memory_resource* resource) {
    const auto with = [&](char const* what, auto work) {
      return benchmark::RegisterBenchmark((std::string{name} + what).c_str(),
                                          [=](benchmark::State& state) { work(state, resource); })
          ->UseRealTime();
    };
    with("/own", own_blocks)->ArgsProduct({{64, 256, 1024, 8192, 65'536, 262'144}})->ThreadRange(1, 2);
    with("/handed_over", handed_over_blocks)->ArgsProduct({{64, 256, 1024, 8192, 65'536}})->Threads(2);
    with("/mixed", mixed_blocks)->ThreadRange(1, 2);
    with("/handoff", handoff);
  };
  static synchronized_pool ours;
  add("synchronized_pool", &ours);
  add_memory("synchronized_pool", [] { return std::make_shared<synchronized_pool>(); });
  for (bench::peer const& peer : bench::peers()) {
    if (!peer.shared) continue;
    static std::vector<std::shared_ptr<std::pmr::memory_resource>> kept;
    add(peer.name.c_str(), kept.emplace_back(peer.make()).get());
    add_memory(peer.name, peer.make);
  }
  return true;
}();

}  // namespace
