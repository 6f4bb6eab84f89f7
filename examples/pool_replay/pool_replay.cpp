// SPDX-License-Identifier: Apache-2.0
// pool_replay: replays recorded allocations of real programs (clang, lld, PyTorch) through tidemark's pools,
// the standard's pools and malloc. Prints the time of an operation and the memory of each.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

#include "recorded_trace.hpp"

import tidemark;

namespace {

using tidemark::tools::recorded_trace;
using tidemark::tools::threaded_replay;

constexpr int repetitions = 7;  // the fastest counts, because it is disturbed least

/// malloc as a resource. Also sums the bytes of blocks, including malloc's rounding and header word.
class malloc_resource final : public std::pmr::memory_resource {
 public:
  explicit malloc_resource(bool counts) : counts_{counts} {}
  [[nodiscard]] std::size_t peak_bytes() const { return peak_bytes_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    void* const block = align <= alignof(std::max_align_t)
                            ? std::malloc(bytes)
                            : std::aligned_alloc(align, (bytes + align - 1) / align * align);
    if (block == nullptr && bytes > 0) throw std::bad_alloc{};
    if (counts_) peak_bytes_ = std::max(peak_bytes_, bytes_ += malloc_usable_size(block) + sizeof(void*));
    return block;
  }
  void do_deallocate(void* block, std::size_t, std::size_t) override {
    if (counts_) bytes_ -= malloc_usable_size(block) + sizeof(void*);
    std::free(block);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }

  bool counts_;
  std::size_t bytes_ = 0, peak_bytes_ = 0;
};

using pool_maker =
    std::function<std::unique_ptr<std::pmr::memory_resource>(std::pmr::memory_resource* upstream)>;

template <class Pool, class... Options>
pool_maker makes(Options const&... options) {
  return [=](std::pmr::memory_resource* upstream) { return std::make_unique<Pool>(options..., upstream); };
}

struct contender {
  std::string name;
  pool_maker make;  // null: malloc itself
  bool threads = false;
};

double nanoseconds(std::function<void()> const& work) {
  double fastest = 1e300;
  for (int i = 0; i < repetitions; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
    fastest = std::min(fastest, taken.count());
  }
  return fastest;
}

/// Returns the maximum bytes that malloc provided for a trace. Counting requires a single thread.
std::size_t peak_bytes(recorded_trace const& trace, contender const& who, std::vector<void*>& blocks) {
  malloc_resource counted{true};
  const std::unique_ptr<std::pmr::memory_resource> resource = who.make ? who.make(&counted) : nullptr;
  std::pmr::memory_resource& used = resource ? *resource : counted;
  tidemark::tools::replay(trace, used, blocks);
  return counted.peak_bytes();
}

void show(recorded_trace const& trace, contender const& who) {
  std::vector<void*> blocks(trace.blocks);
  // Time and memory are measured separately, because counting takes time.
  malloc_resource plain{false};
  const std::unique_ptr<std::pmr::memory_resource> resource = who.make ? who.make(&plain) : nullptr;
  std::pmr::memory_resource& used = resource ? *resource : plain;
  std::optional<threaded_replay> by_thread;
  if (who.threads) by_thread.emplace(trace);
  const double taken = nanoseconds([&] {
    if (by_thread) by_thread->run(used);
    else tidemark::tools::replay(trace, used, blocks);
  });
  const std::size_t operations = trace.events.size() + trace.left.size();
  std::printf("  %-44s %8.1f ", who.name.c_str(), taken / static_cast<double>(operations));
  if (who.threads) {
    std::printf("%12s %8s\n", "-", "-");
    return;
  }
  const auto peak = static_cast<double>(peak_bytes(trace, who, blocks));
  std::printf("%12.0f %8.1f\n", peak / 1024, 100.0 * (peak / static_cast<double>(trace.peak_live_bytes) - 1));
}

void show(std::string const& path) {
  const recorded_trace trace = tidemark::tools::read_trace(path);
  std::printf("%s: %zu allocations, %zu frees, %zu %s, peak %.0f KiB live\n",
              path.substr(path.rfind('/') + 1).c_str(), trace.blocks, trace.events.size() - trace.blocks,
              trace.threads, trace.threads == 1 ? "thread" : "threads",
              static_cast<double>(trace.peak_live_bytes) / 1024);
  if (trace.events.empty()) return;
  std::printf("  %-44s %8s %12s %8s\n", "", "ns/op", "peak KiB", "waste %");

  tidemark::size_histogram sizes;
  for (auto const& event : trace.events) {
    if (event.allocates) sizes.record(event.bytes);
  }
  // Classes for large blocks too, and enough cache for them.
  const tidemark::pool_options fitted{.max_cached_bytes = 1 * tidemark::GiB,
                                      .size_classes = sizes.suggest_size_classes(64, 1 * tidemark::GiB)};
  std::vector<contender> contenders{
      {"malloc", nullptr},
      {"std::pmr::unsynchronized_pool_resource", makes<std::pmr::unsynchronized_pool_resource>()},
      {"tidemark::pool", makes<tidemark::pool>()},
      {"tidemark::pool with 64 fitted classes", makes<tidemark::pool>(fitted)},
      {"std::pmr::synchronized_pool_resource", makes<std::pmr::synchronized_pool_resource>()},
      {"tidemark::synchronized_pool", makes<tidemark::synchronized_pool>()}};
  if (trace.threads > threaded_replay::max_threads) {
    std::printf("  played on one thread only: more than %zu are not started\n", threaded_replay::max_threads);
  } else if (trace.threads > 1) {
    const std::string on_threads = ", on " + std::to_string(trace.threads) + " threads";
    contenders.push_back({"malloc" + on_threads, nullptr, true});
    contenders.push_back(
        {"std synchronized pool" + on_threads, makes<std::pmr::synchronized_pool_resource>(), true});
    contenders.push_back(
        {"tidemark synchronized pool" + on_threads, makes<tidemark::synchronized_pool>(), true});
  }
  for (contender const& who : contenders) show(trace, who);
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<std::string> paths(arguments + 1, arguments + count);
  if (std::ranges::find(paths, "--help") != paths.end()) {
    std::puts(
        "usage: pool_replay [TRACE.csv...]\n\nReplays traces on pools and malloc; by default the "
        "four recorded traces.");
    return 0;
  }
  if (paths.empty()) {
    for (char const* name : {"clang_syntax", "lld_link", "torch_gpt", "torch_mlp"}) {
      paths.push_back(std::string{TIDEMARK_TRACES "/"} + name + ".csv");
    }
  }
  try {
    for (std::string const& path : paths) show(path);
  } catch (std::exception const& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "pool_replay: %s\n", error.what());
    return 2;
  }
  if constexpr (tidemark::check_level >= 2) {
    std::puts(
        "This is check level 2: tidemark's pools keep account of every block, and their times say little.");
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
