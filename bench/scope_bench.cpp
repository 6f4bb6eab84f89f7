// SPDX-License-Identifier: Apache-2.0
// Topic scope: opens a scope, allocates four blocks and closes it, as a small function does for its
// temporaries. An item is one such call.
#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory_resource>

#include <tidemark/tidemark.hpp>

#include "loop.hpp"

namespace {

using namespace tidemark;
using bench::use;

constexpr std::array<std::size_t, 4> sizes{24, 64, 200, 512};

void arena_scope_of_four(benchmark::State& state) {
  arena step;
  for (auto _ : state) {
    arena::scope scope{step};
    for (std::size_t bytes : sizes) use(scope.allocate(bytes));
  }
}

/// One of `OneIn` scopes is trapped.
template <std::uint32_t OneIn>
void trapped_scope_of_four(benchmark::State& state) {
  arena step{{.trap = {.one_in = OneIn}}};
  for (auto _ : state) {
    arena::scope scope{step};
    for (std::size_t bytes : sizes) use(scope.allocate(bytes));
  }
}

void scratch_of_four(benchmark::State& state) {
  arena out;
  for (auto _ : state) {
    arena::scope scope = scratch(out);
    for (std::size_t bytes : sizes) use(scope.allocate(bytes));
  }
}

void mark_and_rewind_of_four(benchmark::State& state) {
  arena step;
  for (auto _ : state) {
    const arena_mark mark = step.mark();
    for (std::size_t bytes : sizes) use(step.allocate(bytes));
    step.rewind(mark);
  }
}

void monotonic_on_a_stack_buffer_of_four(benchmark::State& state) {
  for (auto _ : state) {
    std::array<std::byte, 2048> buffer;
    std::pmr::monotonic_buffer_resource step{buffer.data(), buffer.size()};
    for (std::size_t bytes : sizes) use(step.allocate(bytes));
  }
}

void malloc_of_four(benchmark::State& state) {
  for (auto _ : state) {
    std::array<void*, sizes.size()> blocks;
    for (std::size_t i = 0; i < sizes.size(); ++i) use(blocks[i] = std::malloc(sizes[i]));
    for (void* block : blocks) std::free(block);
  }
}

BENCHMARK(arena_scope_of_four)->Name("arena/scope");
BENCHMARK(trapped_scope_of_four<1000>)->Name("arena/scope_trapped_1_in_1000");
BENCHMARK(trapped_scope_of_four<1>)->Name("arena/scope_trapped");
BENCHMARK(scratch_of_four)->Name("arena/scratch");
BENCHMARK(mark_and_rewind_of_four)->Name("arena/mark_rewind");
BENCHMARK(monotonic_on_a_stack_buffer_of_four)->Name("monotonic/stack_buffer");
BENCHMARK(malloc_of_four)->Name("malloc/scope");

}  // namespace
