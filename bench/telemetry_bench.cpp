// SPDX-License-Identifier: Apache-2.0
// Topic telemetry: the cost of an adaptor over an upstream that costs almost nothing. An item is a pair of
// allocate and deallocate of 64 bytes through the vtable, in batches of 100. "telemetry/none" is the upstream
// alone.
#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <memory_resource>

#include <tidemark/tidemark.hpp>

#include "loop.hpp"

namespace {

using namespace tidemark;
using bench::keep;

constexpr std::size_t batch = 100;
constexpr std::size_t block_bytes = 64;

/// Bumps through a buffer that holds one batch with guards, and restarts when all blocks were deallocated.
class batch_resource final : public std::pmr::memory_resource {
 private:
  void* do_allocate(std::size_t bytes, std::size_t) override {
    void* block = buffer_.data() + used_;
    used_ += (bytes + 15) / 16 * 16;
    ++live_;
    return block;
  }
  void do_deallocate(void*, std::size_t, std::size_t) override {
    if (--live_ == 0) used_ = 0;
  }
  bool do_is_equal(memory_resource const& other) const noexcept override { return this == &other; }

  alignas(64) std::array<std::byte, batch * 128> buffer_;
  std::size_t used_ = 0;
  std::size_t live_ = 0;
};

void allocate_batches(benchmark::State& state, std::pmr::memory_resource* resource) {
  benchmark::DoNotOptimize(resource);  // otherwise the compiler would know the class and call it directly
  std::array<void*, batch> blocks;
  for (auto _ : state) {
    for (void*& block : blocks) keep(block = resource->allocate(block_bytes));
    for (void* block : blocks) resource->deallocate(block, block_bytes);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(batch));
}

void none(benchmark::State& state) {
  batch_resource upstream;
  allocate_batches(state, &upstream);
}

template <class Adaptor>
void adaptor(benchmark::State& state, auto... arguments) {
  batch_resource upstream;
  Adaptor resource{&upstream, arguments...};
  allocate_batches(state, &resource);
}

void limit(benchmark::State& state) { adaptor<limit_resource>(state, batch * block_bytes); }
void test(benchmark::State& state) {
  adaptor<test_resource>(state, test_resource_options{.quarantine_bytes = 0});
}

/// While a graph lives whose arena it knows.
void switch_after_a_capture(benchmark::State& state) {
  batch_resource upstream;
  capture_switch program{&upstream};
  graph_arena arena{byte_range{.begin = 0x1'0000'0000, .size = 1 * MiB}};
  program.install_arena(arena);
  program.clear_arena();
  allocate_batches(state, &program);
}

/// A pair is two events.
void trace_to(benchmark::State& state, trace_log_options const& files) {
  batch_resource upstream;
  trace_log log{files};
  trace_resource traced{&upstream, log};
  allocate_batches(state, &traced);
}

// Writes to /dev/null: measures the record and its text, not the disk.
void trace_csv(benchmark::State& state) { trace_to(state, {.csv = "/dev/null"}); }

void trace_both(benchmark::State& state) {
  trace_to(state, {.csv = "/dev/null", .chrome = "/dev/./null"});  // one name for both is rejected
}

BENCHMARK(none)->Name("telemetry/none");
BENCHMARK(adaptor<statistics_resource>)->Name("telemetry/statistics");
BENCHMARK(limit)->Name("telemetry/limit");
BENCHMARK(adaptor<expect_no_upstream>)->Name("telemetry/expect_no_upstream");
BENCHMARK(adaptor<tracking_resource>)->Name("telemetry/tracking");
BENCHMARK(test)->Name("telemetry/test");
// The cost for a program that currently captures nothing.
BENCHMARK(adaptor<capture_switch>)->Name("telemetry/capture_switch");
BENCHMARK(switch_after_a_capture)->Name("telemetry/capture_switch_after_a_capture");
BENCHMARK(trace_csv)->Name("telemetry/trace_csv");
BENCHMARK(trace_both)->Name("telemetry/trace_both");

}  // namespace
