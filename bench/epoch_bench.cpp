// SPDX-License-Identifier: Apache-2.0
// Topic epoch: blocks of 64 bytes that a step allocates and drops, and recorded steps of real programs. An
// item is one block, allocated and reclaimed. The upstream "bump" does almost nothing, so the time is that of
// the epoch. "bump/N" is the upstream alone, with N blocks allocated and returned.
#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tidemark/tidemark.hpp>

#include "loop.hpp"
#include "training_loop.hpp"

namespace {

using namespace tidemark;
using bench::hidden;
using bench::keep;
using tidemark::bench::training_loop;

constexpr std::size_t max_blocks = 4096;
constexpr std::size_t block_bytes = 64;

/// Bumps through a buffer that holds the largest step and its chunks of slabs, and restarts on `rewind`.
class bump_resource final : public std::pmr::memory_resource {
 public:
  void rewind() noexcept { used_ = 0; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t) override {
    void* const block = buffer_.get() + used_;
    used_ += (bytes + block_bytes - 1) / block_bytes * block_bytes;
    return block;
  }
  void do_deallocate(void*, std::size_t, std::size_t) override {}
  bool do_is_equal(memory_resource const& other) const noexcept override { return this == &other; }

  std::unique_ptr<std::byte[]> buffer_ = std::make_unique<std::byte[]>(4 * max_blocks * block_bytes);
  std::size_t used_ = 0;
};

/// Calls `step(n)` repeatedly, with the benchmark's first argument.
void run_steps(benchmark::State& state, auto step) {
  const auto n = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) step(n);
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void allocate_all(std::pmr::memory_resource* resource, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) keep(resource->allocate(block_bytes));
}

// ---- cost of an epoch over its upstream -------------------------------------------------------------------

void bump(benchmark::State& state) {
  bump_resource upstream;
  std::pmr::memory_resource* const alone = hidden(&upstream);
  static std::array<void*, max_blocks> blocks;
  run_steps(state, [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) keep(blocks[i] = alone->allocate(block_bytes));
    for (std::size_t i = 0; i < n; ++i) alone->deallocate(blocks[i], block_bytes);
    upstream.rewind();
  });
}

void epoch_over_bump(benchmark::State& state) {
  bump_resource upstream;
  epoch_resource memory{hidden(&upstream)};
  std::pmr::memory_resource* const through_vtable = hidden(&memory);
  run_steps(state, [&](std::size_t n) {
    {
      epoch e{memory};
      allocate_all(through_vtable, n);
    }
    upstream.rewind();
  });
}

/// The blocks have handles, which are destroyed after the epoch.
void epoch_of_buffers(benchmark::State& state) {
  bump_resource upstream;
  epoch_resource memory{hidden(&upstream)};
  std::vector<buffer<std::byte>> handles;
  handles.reserve(max_blocks);
  run_steps(state, [&](std::size_t n) {
    {
      epoch e{memory};
      for (std::size_t i = 0; i < n; ++i) keep(&handles.emplace_back(memory, block_bytes));
    }
    handles.clear();
    upstream.rewind();
  });
}

/// An empty epoch, and a block of the upstream alone. The comparison shows the cost of a block even for a
/// single block.
void empty_epoch_and_bump(benchmark::State& state) {
  bump_resource upstream;
  std::pmr::memory_resource* const alone = hidden(&upstream);
  epoch_resource memory{alone};
  run_steps(state, [&](std::size_t n) {
    {
      epoch e{memory};
      for (std::size_t i = 0; i < n; ++i) {
        void* const block = alone->allocate(block_bytes);
        keep(block);
        alone->deallocate(block, block_bytes);
      }
    }
    upstream.rewind();
  });
}

BENCHMARK(bump)->Name("epoch/bump")->Arg(1)->Arg(16)->Arg(256)->Arg(4096);
BENCHMARK(epoch_over_bump)->Name("epoch/tracked")->Arg(1)->Arg(16)->Arg(256)->Arg(4096);
BENCHMARK(epoch_of_buffers)->Name("epoch/buffers")->Arg(1)->Arg(16)->Arg(256)->Arg(4096);
BENCHMARK(empty_epoch_and_bump)->Name("epoch/empty_and_bump")->Arg(1);

// ---- without an open epoch --------------------------------------------------------------------------------

/// A pair of allocate and deallocate, in batches of 100.
void pairs(benchmark::State& state, bump_resource& upstream, auto& resource) {
  constexpr std::size_t batch = 100;
  std::array<void*, batch> blocks;
  for (auto _ : state) {
    for (void*& block : blocks) keep(block = resource.allocate(block_bytes));
    for (void* block : blocks) resource.deallocate(block, block_bytes);
    upstream.rewind();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(batch));
}

void no_resource(benchmark::State& state) {
  bump_resource upstream;
  pairs(state, upstream, *hidden(&upstream));
}

/// @param tracked number of these addresses that an epoch once allocated
void between_epochs(benchmark::State& state, std::size_t tracked, bool by_vtable) {
  bump_resource upstream;
  epoch_resource memory{hidden(&upstream)};
  if (tracked != 0) {
    epoch e{memory};
    allocate_all(&memory, tracked);
  }
  upstream.rewind();
  by_vtable ? pairs(state, upstream, *hidden(&memory)) : pairs(state, upstream, memory);
}

BENCHMARK(no_resource)->Name("epoch/pair/upstream");
BENCHMARK_CAPTURE(between_epochs, before_any, 0, false)->Name("epoch/pair/before_any");
BENCHMARK_CAPTURE(between_epochs, before_any_virtual, 0, true)->Name("epoch/pair/before_any_virtual");
BENCHMARK_CAPTURE(between_epochs, between, 256, false)->Name("epoch/pair/between");
BENCHMARK_CAPTURE(between_epochs, between_virtual, 256, true)->Name("epoch/pair/between_virtual");

// ---- other ways to drop the blocks of a step --------------------------------------------------------------

void epoch_over_pool(benchmark::State& state) {
  pool upstream;
  epoch_resource memory{hidden(&upstream)};
  std::pmr::memory_resource* const through_vtable = hidden(&memory);
  run_steps(state, [&](std::size_t n) {
    epoch e{memory};
    allocate_all(through_vtable, n);
  });
}

void unique_ptrs(benchmark::State& state) {
  std::vector<std::unique_ptr<std::byte[]>> owners;
  run_steps(state, [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      keep(owners.emplace_back(std::make_unique_for_overwrite<std::byte[]>(block_bytes)).get());
    }
    owners.clear();
  });
}

void std_pool_released(benchmark::State& state) {
  std::pmr::unsynchronized_pool_resource resource;
  std::pmr::memory_resource* const through_vtable = hidden(&resource);
  run_steps(state, [&](std::size_t n) {
    allocate_all(through_vtable, n);
    resource.release();
  });
}

BENCHMARK(epoch_over_pool)->Name("epoch/over_pool")->Arg(16)->Arg(256)->Arg(4096);
BENCHMARK(unique_ptrs)->Name("epoch/unique_ptrs")->Arg(16)->Arg(256)->Arg(4096);
BENCHMARK(std_pool_released)->Name("epoch/std_pool_released")->Arg(16)->Arg(256)->Arg(4096);

// ---- a document -------------------------------------------------------------------------------------------

/// An element as parsers of JSON or XML make it: a name, and children in a growing vector.
struct element {
  using allocator_type = std::pmr::polymorphic_allocator<>;
  explicit element(std::string_view text, allocator_type where = {}) : name{text, where}, children{where} {}
  element(element&&) noexcept = default;
  element(element&& other, allocator_type where)
      : name{std::move(other.name), where}, children{std::move(other.children), where} {}

  std::pmr::string name;
  std::pmr::vector<element> children;
};

void add_children(element& parent, int levels, std::minstd_rand& random) {
  if (levels == 0) return;
  for (std::size_t left = 4 + random() % 6; left > 0; --left) {
    parent.children.emplace_back(
        std::string_view{"a name, most often too long for the string itself"}.substr(0, 10 + random() % 40));
    add_children(parent.children.back(), levels - 1, random);
  }
}

/// A document of some 100,000 blocks, many of which are freed as vectors grow. An item is a block.
/// @param drop true if its destructors run; otherwise only the end of the epoch frees it
void documents(benchmark::State& state, std::pmr::memory_resource& resource, epoch_resource* memory,
               bool drop) {
  constexpr int levels = 6;
  const auto make = [&](std::pmr::memory_resource& where, bool destroy) {
    std::minstd_rand random;
    std::pmr::polymorphic_allocator<> allocator{&where};
    auto* const root = allocator.new_object<element>("document");
    add_children(*root, levels, random);
    keep(root);
    if (destroy) allocator.delete_object(root);
  };
  statistics_resource counted;
  make(counted, true);
  for (auto _ : state) {
    std::optional<epoch> e;
    if (memory != nullptr) e.emplace(*memory);
    make(resource, drop);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(counted.stats().allocations));
}

void documents_on_malloc(benchmark::State& state) {
  documents(state, *hidden(std::pmr::new_delete_resource()), nullptr, true);
}
void documents_on_pool(benchmark::State& state) {
  pool blocks;
  documents(state, *hidden(&blocks), nullptr, true);
}
void documents_in_epochs(benchmark::State& state, bool drop) {
  pool blocks;
  epoch_resource memory{&blocks};
  documents(state, *hidden(&memory), &memory, drop);
}
void documents_in_epochs_over_malloc(benchmark::State& state) {
  epoch_resource memory{std::pmr::new_delete_resource()};
  documents(state, *hidden(&memory), &memory, true);
}

BENCHMARK(documents_on_malloc)->Name("epoch/document/malloc");
BENCHMARK(documents_on_pool)->Name("epoch/document/pool");
BENCHMARK_CAPTURE(documents_in_epochs, dropped, true)->Name("epoch/document/epoch_dropped");
BENCHMARK_CAPTURE(documents_in_epochs, reclaimed, false)->Name("epoch/document/epoch_reclaimed");
BENCHMARK(documents_in_epochs_over_malloc)->Name("epoch/document/epoch_over_malloc");

// ---- recorded steps ---------------------------------------------------------------------------------------

/// Plays a step as an epoch. Keeps blocks that outlive the step, and frees no others.
void play_as_epoch(training_loop& loop, epoch_resource& memory, std::pmr::memory_resource& resource,
                   tools::trace_step step) {
  epoch e{memory, "step"};
  for (; loop.next <= step.last_event; ++loop.next) {
    tools::trace_event const& event = loop.trace.events[loop.next];
    const bool dies = loop.dies_within_step[loop.next];
    if (event.allocates || !dies) loop.play(resource, event);
    if (event.allocates && !dies) e.keep(loop.blocks[event.block]);
  }
}

/// Plays the whole trace, which consists almost entirely of steps. One pass warms the pool, which keeps its
/// memory, so that the time excludes the operating system.
void train(benchmark::State& state, std::string const& name, bool in_epochs) {
  training_loop loop = training_loop::recorded(name);
  size_histogram sizes;
  for (tools::trace_event const& event : loop.trace.events) {
    if (event.allocates) sizes.record(event.bytes);
  }
  pool upstream{{.max_cached_bytes = 1 * GiB, .size_classes = sizes.suggest_size_classes(64, 1 * GiB)}};
  epoch_resource memory{&upstream};
  std::pmr::memory_resource& resource = *hidden(in_epochs ? &memory : hidden(&upstream));
  const auto pass = [&] {
    loop.next = 0;
    for (tools::trace_step const& step : loop.steps) {
      loop.play_all(resource, step.first_event);
      if (in_epochs) play_as_epoch(loop, memory, resource, step);
      else loop.play_all(resource, step.last_event + 1);
    }
    loop.play_all(resource, loop.trace.events.size());
    for (tools::trace_event const& event : loop.trace.left) loop.play(resource, event);
  };
  pass();
  for (auto _ : state) pass();
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(loop.trace.blocks));
}

BENCHMARK_CAPTURE(train, gpt_in_epochs, "torch_gpt", true)->Name("epoch/steps/torch_gpt");
BENCHMARK_CAPTURE(train, mlp_in_epochs, "torch_mlp", true)->Name("epoch/steps/torch_mlp");
BENCHMARK_CAPTURE(train, gpt_freeing, "torch_gpt", false)->Name("epoch/steps_freeing/torch_gpt");
BENCHMARK_CAPTURE(train, mlp_freeing, "torch_mlp", false)->Name("epoch/steps_freeing/torch_mlp");

}  // namespace
