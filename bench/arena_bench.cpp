// SPDX-License-Identifier: Apache-2.0
// Topic arena: allocates a batch and releases all of it, repeatedly, warm. An item is an allocation. Each
// block is written, because untouched memory is useless. Every allocator has room for a batch without
// growing.
#include <benchmark/benchmark.h>

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <memory_resource>
#include <random>
#include <utility>

#include <tidemark/tidemark.hpp>

#if defined(TIDEMARK_PEER_LLVM)
#include <llvm/Support/Allocator.h>
#endif
#if defined(TIDEMARK_PEER_PROTOBUF)
#include <google/protobuf/arena.h>
#endif
#if defined(TIDEMARK_PEER_FOONATHAN)
#include <foonathan/memory/memory_stack.hpp>
#endif

#include "loop.hpp"
#include "peers.hpp"

namespace {

using namespace tidemark;
using bench::hidden;
using bench::use;

constexpr std::size_t batch = 1024;
constexpr std::size_t room = 4 * MiB;

// ---- the concrete type, size known at compile time ----

template <std::size_t Bytes>
void arena_inline(benchmark::State& state) {
  arena step{{.reserve = room}};
  for (auto _ : state) {
    for (std::size_t i = 0; i < batch; ++i) use(step.allocate(Bytes));
    step.reset();
  }
  bench::count_items(state, batch);
}

#if defined(TIDEMARK_PEER_LLVM)
template <std::size_t Bytes>
void llvm_bump(benchmark::State& state) {
  // One slab contains a batch. Reset() keeps this slab, so the loop allocates no slab.
  llvm::BumpPtrAllocatorImpl<llvm::MallocAllocator, room, room> step;
  for (auto _ : state) {
    for (std::size_t i = 0; i < batch; ++i) use(step.Allocate(Bytes, llvm::Align(16)));
    step.Reset();
  }
  bench::count_items(state, batch);
}
#endif

#if defined(TIDEMARK_PEER_PROTOBUF)
template <std::size_t Bytes>
void protobuf_arena(benchmark::State& state) {
  const auto buffer = std::make_unique<char[]>(room);
  google::protobuf::Arena step{buffer.get(), room};
  for (auto _ : state) {
    for (std::size_t i = 0; i < batch; ++i) use(google::protobuf::Arena::CreateArray<char>(&step, Bytes));
    step.Reset();
  }
  bench::count_items(state, batch);
}
#endif

#if defined(TIDEMARK_PEER_FOONATHAN)
template <std::size_t Bytes>
void foonathan_stack(benchmark::State& state) {
  foonathan::memory::memory_stack<> step{room};
  for (auto _ : state) {
    const auto begin = step.top();
    for (std::size_t i = 0; i < batch; ++i) use(step.allocate(Bytes, 16));
    step.unwind(begin);
  }
  bench::count_items(state, batch);
}
#endif

template <std::size_t Bytes>
void malloc_and_free(benchmark::State& state) {
  std::array<void*, batch> blocks{};
  for (auto _ : state) {
    for (void*& block : blocks) use(block = std::malloc(Bytes));
    for (void* block : blocks) std::free(block);
  }
  bench::count_items(state, batch);
}

// ---- through std::pmr::memory_resource*, like containers ----

template <std::size_t Bytes>
void arena_virtual(benchmark::State& state) {
  arena step{{.reserve = room}};
  std::pmr::memory_resource* const resource = hidden(&step);
  for (auto _ : state) {
    for (std::size_t i = 0; i < batch; ++i) use(resource->allocate(Bytes));
    step.reset();
  }
  bench::count_items(state, batch);
}

template <std::size_t Bytes>
void monotonic_virtual(benchmark::State& state) {
  const auto buffer = std::make_unique<std::byte[]>(room);
  std::pmr::monotonic_buffer_resource step{buffer.get(), room};
  std::pmr::memory_resource* const resource = hidden(&step);
  for (auto _ : state) {
    for (std::size_t i = 0; i < batch; ++i) use(resource->allocate(Bytes));
    step.release();
  }
  bench::count_items(state, batch);
}

// ---- a batch that crosses chunks: 24 blocks of 256 KiB in chunks of 1 MiB, or within one ----
// These blocks are not written. Their first bytes fall into a few sets of the caches, at distances that
// differ between the two cases, and writing would measure only this.

void large_blocks(benchmark::State& state, std::size_t chunk_bytes) {
  arena step{{.reserve = chunk_bytes}};
  for (auto _ : state) {
    const arena_mark mark = step.mark();
    for (int i = 0; i < 24; ++i) {
      bench::keep(step.allocate(256 * KiB));
    }
    step.rewind(mark);
  }
  state.SetItemsProcessed(state.iterations() * 24);
}
void arena_within_a_chunk(benchmark::State& state) { large_blocks(state, 64 * MiB); }
void arena_across_chunks(benchmark::State& state) { large_blocks(state, 1 * MiB); }

// ---- zeroed memory, fresh: 1 GiB of it costs no memset and no page ----

void arena_push_zeroed_fresh(benchmark::State& state) {
  arena step{{.reserve = 2 * GiB, .commit_step = 1 * GiB}};
  for (auto _ : state) {
    benchmark::DoNotOptimize(step.push_array<std::byte>(1 * GiB).data());
    state.PauseTiming();
    step.reset();
    (void)step.trim();
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations());
}

// ---- random access to a table of 128 MiB, as in a hash join, with huge pages and without ----

double resident_mib() {
  std::size_t pages = 0;
  std::ifstream{"/proc/self/statm"} >> pages >> pages;
  return static_cast<double>(pages) * static_cast<double>(sysconf(_SC_PAGESIZE)) / static_cast<double>(MiB);
}

/// Follows a cycle through all cache lines of the table. An item is a line. `resident_mib` is what the table
/// added to the resident memory of the process.
void arena_random_access(benchmark::State& state, huge_page_policy huge_pages) {
  struct alignas(64) line {
    std::uint32_t next;
  };
  constexpr std::uint32_t lines = 128 * MiB / sizeof(line);
  const double before = resident_mib();
  arena memory{{.reserve = 256 * MiB, .huge_pages = huge_pages}};
  auto* const table = static_cast<line*>(memory.allocate(lines * sizeof(line), alignof(line)));
  for (std::uint32_t i = 0; i < lines; ++i) table[i].next = i;
  std::minstd_rand random;
  for (std::uint32_t i = lines - 1; i > 0; --i)  // Sattolo: a single cycle
    std::swap(table[i].next, table[std::uniform_int_distribution<std::uint32_t>{0, i - 1}(random)].next);
  state.counters["resident_mib"] = resident_mib() - before;
  constexpr std::size_t steps = 500'000;
  std::uint32_t at = 0;
  for (auto _ : state) {
    for (std::size_t i = 0; i < steps; ++i) at = table[at].next;
    benchmark::DoNotOptimize(at);
  }
  bench::count_items(state, steps);
}

BENCHMARK(arena_inline<8>)->Name("arena/inline/8");
BENCHMARK(arena_inline<16>)->Name("arena/inline/16");
BENCHMARK(arena_inline<32>)->Name("arena/inline/32");
BENCHMARK(arena_inline<64>)->Name("arena/inline/64");
#if defined(TIDEMARK_PEER_LLVM)
BENCHMARK(llvm_bump<8>)->Name("llvm_bump/inline/8");
BENCHMARK(llvm_bump<16>)->Name("llvm_bump/inline/16");
BENCHMARK(llvm_bump<32>)->Name("llvm_bump/inline/32");
BENCHMARK(llvm_bump<64>)->Name("llvm_bump/inline/64");
#endif
#if defined(TIDEMARK_PEER_PROTOBUF)
BENCHMARK(protobuf_arena<8>)->Name("protobuf_arena/inline/8");
BENCHMARK(protobuf_arena<64>)->Name("protobuf_arena/inline/64");
#endif
#if defined(TIDEMARK_PEER_FOONATHAN)
BENCHMARK(foonathan_stack<8>)->Name("foonathan_stack/inline/8");
BENCHMARK(foonathan_stack<64>)->Name("foonathan_stack/inline/64");
#endif
BENCHMARK(malloc_and_free<8>)->Name("malloc_and_free/8");
BENCHMARK(malloc_and_free<64>)->Name("malloc_and_free/64");
BENCHMARK(arena_virtual<8>)->Name("arena/virtual/8");
BENCHMARK(arena_virtual<64>)->Name("arena/virtual/64");
BENCHMARK(monotonic_virtual<8>)->Name("monotonic/virtual/8");
BENCHMARK(monotonic_virtual<64>)->Name("monotonic/virtual/64");
BENCHMARK(arena_within_a_chunk)->Name("arena/large/within_a_chunk");
BENCHMARK(arena_across_chunks)->Name("arena/large/across_chunks");
// All checks write into each byte: 1 s an iteration.
BENCHMARK(arena_push_zeroed_fresh)
    ->Name("arena/push_zeroed_fresh/1GiB")
    ->Iterations(TIDEMARK_CHECKS >= 2 ? 1 : 50);
// One iteration, because the table takes longer to build.
BENCHMARK_CAPTURE(arena_random_access, huge_pages, huge_page_policy::automatic)
    ->Name("arena/random_access/huge_pages")
    ->Iterations(1);
BENCHMARK_CAPTURE(arena_random_access, small_pages, huge_page_policy::avoid)
    ->Name("arena/random_access/small_pages")
    ->Iterations(1);

}  // namespace
