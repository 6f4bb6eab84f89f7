// SPDX-License-Identifier: Apache-2.0
// Topic graph: the time of an allocation and of a deallocation of a graph arena by the number of blocks in
// use. They are measured separately, in FIFO, LIFO and random order. An item is one call on a block of 256
// bytes. A run uses several arenas with 8192 blocks in total, so that the clock is read equally often for 64
// and for 8192 blocks.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <memory_resource>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <tidemark/tidemark.hpp>

#include "loop.hpp"

namespace {

using namespace tidemark;
using bench::keep;

constexpr std::size_t items = 8192;
constexpr std::size_t block_bytes = 256;

enum class order { first_in_first_out, last_in_first_out, any };

/// Returns the order of deallocations.
std::vector<std::size_t> in_order(std::size_t n, order wanted) {
  std::vector<std::size_t> indices(n);
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  if (wanted == order::last_in_first_out) std::reverse(indices.begin(), indices.end());
  if (wanted == order::any) std::shuffle(indices.begin(), indices.end(), std::minstd_rand{1});
  return indices;
}

/// A graph arena over addresses that are not mapped.
class made_up_arena {
 public:
  explicit made_up_arena(std::size_t live) : arena_{byte_range{0x1'0000'0000, live * block_bytes}} {}
  void* allocate() { return arena_.allocate(block_bytes); }
  void deallocate(void* block) { arena_.deallocate(block, block_bytes); }
  void begin_anew() { arena_.reset(); }

 private:
  graph_arena arena_;
};

/// The same through std::pmr::memory_resource.
class made_up_arena_by_pmr {
 public:
  explicit made_up_arena_by_pmr(std::size_t live) : arena_{byte_range{0x1'0000'0000, live * block_bytes}} {
    benchmark::DoNotOptimize(through_vtable_);
  }
  void* allocate() { return through_vtable_->allocate(block_bytes, block_bytes); }
  void deallocate(void* block) { through_vtable_->deallocate(block, block_bytes, block_bytes); }
  void begin_anew() { arena_.reset(); }

 private:
  graph_arena arena_;
  std::pmr::memory_resource* through_vtable_ = &arena_;
};

/// std's bump allocation on a sufficiently large buffer.
class monotonic_buffer {
 public:
  explicit monotonic_buffer(std::size_t live)
      : bytes_{(live + 1) * block_bytes}, buffer_{std::make_unique_for_overwrite<std::byte[]>(bytes_)} {
    benchmark::DoNotOptimize(through_vtable_);
  }
  void* allocate() { return through_vtable_->allocate(block_bytes, block_bytes); }
  void deallocate(void* block) { through_vtable_->deallocate(block, block_bytes, block_bytes); }
  void begin_anew() { resource_.release(); }

 private:
  std::size_t bytes_;
  std::unique_ptr<std::byte[]> buffer_;
  std::pmr::monotonic_buffer_resource resource_{buffer_.get(), bytes_, std::pmr::null_memory_resource()};
  std::pmr::memory_resource* through_vtable_ = &resource_;
};

/// A bump allocator with its blocks in a list that is searched from the beginning, like numr's CudaArena.
class listed_bump {
 public:
  explicit listed_bump(std::size_t live) { blocks_.reserve(live); }
  void* allocate() {
    const std::uintptr_t block = std::exchange(next_, next_ + block_bytes);
    blocks_.emplace_back(block, block_bytes);
    return reinterpret_cast<void*>(block);
  }
  void deallocate(void* block) {
    const auto found = std::find_if(blocks_.begin(), blocks_.end(), [&](auto const& one) {
      return one.first == reinterpret_cast<std::uintptr_t>(block);
    });
    if (found != blocks_.end()) blocks_.erase(found);
  }
  void begin_anew() { next_ = base; }

 private:
  static constexpr std::uintptr_t base = 0x1'0000'0000;
  std::uintptr_t next_ = base;
  std::vector<std::pair<std::uintptr_t, std::size_t>> blocks_;
};

/// Several arenas of a kind with `live` blocks each and `items` blocks in total.
template <class Arena>
class many {
 public:
  many(std::size_t live, order wanted) : live_{live}, order_{in_order(live, wanted)} {
    for (std::size_t i = 0; i < items / live; ++i) arenas_.emplace_back(live);
  }
  void allocate_all() {
    void** next = blocks_.data();
    for (Arena& arena : arenas_) {
      for (std::size_t i = 0; i < live_; ++i) keep(*next++ = arena.allocate());
    }
  }
  void deallocate_all() {
    void* const* first = blocks_.data();
    for (Arena& arena : arenas_) {
      for (const std::size_t i : order_) {
        arena.deallocate(first[i]);
        keep(nullptr);
      }
      first += live_;
    }
  }
  void begin_anew() {
    for (Arena& arena : arenas_) arena.begin_anew();
  }

 private:
  std::size_t live_;
  std::vector<std::size_t> order_;
  std::deque<Arena> arenas_;
  std::array<void*, items> blocks_{};
};

template <class Arena>
void allocations(benchmark::State& state) {
  const auto arenas =
      std::make_unique<many<Arena>>(static_cast<std::size_t>(state.range(0)), order::first_in_first_out);
  for (auto _ : state) {
    arenas->allocate_all();
    state.PauseTiming();
    arenas->deallocate_all();
    arenas->begin_anew();
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(items));
}

template <class Arena, order Order>
void deallocations(benchmark::State& state) {
  const auto arenas = std::make_unique<many<Arena>>(static_cast<std::size_t>(state.range(0)), Order);
  for (auto _ : state) {
    state.PauseTiming();
    arenas->begin_anew();
    arenas->allocate_all();
    state.ResumeTiming();
    arenas->deallocate_all();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(items));
}

void sizes(benchmark::internal::Benchmark* of) { of->Arg(64)->Arg(1024)->Arg(8192); }

BENCHMARK(allocations<made_up_arena>)->Name("graph/allocate")->Apply(sizes);
BENCHMARK(allocations<made_up_arena_by_pmr>)->Name("graph/allocate_by_pmr")->Apply(sizes);
BENCHMARK(allocations<monotonic_buffer>)->Name("monotonic/graph_allocate")->Apply(sizes);
BENCHMARK(deallocations<made_up_arena, order::first_in_first_out>)->Name("graph/free_fifo")->Apply(sizes);
BENCHMARK(deallocations<made_up_arena, order::last_in_first_out>)->Name("graph/free_lifo")->Apply(sizes);
BENCHMARK(deallocations<made_up_arena, order::any>)->Name("graph/free_random")->Apply(sizes);
BENCHMARK(deallocations<made_up_arena_by_pmr, order::any>)->Name("graph/free_random_by_pmr")->Apply(sizes);
BENCHMARK(deallocations<listed_bump, order::first_in_first_out>)->Name("listed_bump/free_fifo")->Apply(sizes);
BENCHMARK(deallocations<listed_bump, order::last_in_first_out>)->Name("listed_bump/free_lifo")->Apply(sizes);
BENCHMARK(deallocations<listed_bump, order::any>)->Name("listed_bump/free_random")->Apply(sizes);

}  // namespace
