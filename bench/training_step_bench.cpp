// SPDX-License-Identifier: Apache-2.0
// Topic training step: the steps of three networks, two of them recorded, on resources with and without
// plans. Each run begins with a fresh resource and is measured from the third step on, so it includes
// planning for steps unlike earlier ones. Each page of each block is written, like in a real program. An item
// is an operation. Counters: `footprint`, the maximum taken from the system in bytes; `over_peak`, the
// footprint over the program's maximum live bytes; `over_bound`, the footprint over the lower bound of a
// plan; `heap_calls`, the number of blocks from the heap; `usual_ns`, the time of an operation in the median
// step, for which plans and memory exist.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <memory_resource>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <tidemark/tidemark.hpp>

#include "peers.hpp"
#include "training_loop.hpp"

namespace {

using namespace tidemark;
using tidemark::bench::training_loop;

/// malloc that counts its live bytes.
class counted_heap final : public std::pmr::memory_resource {
 public:
  std::size_t requested_bytes = 0;  ///< of live blocks
  std::size_t taken_bytes = 0;      ///< with malloc's rounding and header word
  std::size_t calls = 0;            ///< number of allocations

 private:
  static std::size_t taken(void* block) { return malloc_usable_size(block) + sizeof(std::size_t); }

  void* do_allocate(std::size_t bytes, std::size_t) override {
    void* const block = std::malloc(bytes);
    if (block == nullptr) throw std::bad_alloc{};
    ++calls;
    requested_bytes += bytes;
    taken_bytes += taken(block);
    return block;
  }
  void do_deallocate(void* block, std::size_t bytes, std::size_t) override {
    requested_bytes -= bytes;
    taken_bytes -= taken(block);
    std::free(block);
  }
  bool do_is_equal(memory_resource const& other) const noexcept override { return this == &other; }
};

// ---- subjects ---------------------------------------------------------------------------------------------

/// Requests outside of steps come from the fallback, which is the heap.
struct planned {
  explicit planned(std::pmr::memory_resource& heap) : memory{&heap} {}
  void begin_step() { step.emplace(memory); }
  void end_step() { step.reset(); }
  std::pmr::memory_resource& resource(bool) { return memory; }
  [[nodiscard]] std::size_t footprint(counted_heap const& heap) const {
    return memory.stats().committed_bytes + heap.requested_bytes;
  }

  planned_arena memory;
  std::optional<planned_arena::step> step;
};

/// An arena rewound at the end of each step. Blocks that outlive a step or belong to none must come from the
/// heap. An arena cannot know these in advance, so the replay names them.
struct rewound_arena {
  explicit rewound_arena(std::pmr::memory_resource& upstream) : heap{&upstream} {}
  void begin_step() { step.emplace(memory); }
  void end_step() { step.reset(); }
  std::pmr::memory_resource& resource(bool dies_within_step) { return dies_within_step ? memory : *heap; }
  [[nodiscard]] std::size_t footprint(counted_heap const& counted) const {
    return memory.stats().used_bytes + counted.requested_bytes;
  }

  arena memory;
  std::pmr::memory_resource* heap;
  std::optional<arena::scope> step;
};

struct pooled {
  explicit pooled(std::pmr::memory_resource& heap) : pooled{{.upstream = &heap}} {}
  explicit pooled(pool_options const& options) : memory{options} {}
  void begin_step() {}
  void end_step() {}
  std::pmr::memory_resource& resource(bool) { return memory; }
  [[nodiscard]] std::size_t footprint(counted_heap const&) const { return memory.stats().held_bytes; }

  pool memory;
};

/// Keeps everything that a step frees.
struct pooled_whole final : pooled {
  explicit pooled_whole(std::pmr::memory_resource& heap)
      : pooled{{.max_cached_bytes = 1 * GiB, .upstream = &heap}} {}
};

struct heap_alone {
  explicit heap_alone(std::pmr::memory_resource& upstream) : heap{&upstream} {}
  void begin_step() {}
  void end_step() {}
  std::pmr::memory_resource& resource(bool) { return *heap; }
  [[nodiscard]] static std::size_t footprint(counted_heap const& counted) { return counted.taken_bytes; }

  std::pmr::memory_resource* heap;
};

// ---- the replay -------------------------------------------------------------------------------------------

constexpr std::size_t first_step = 2;  // the first measured step: the third

/// The operations of the program, in order.
template <class Subject>
struct player {
  /// Plays the steps up to `end`, and the operations before them. Calls `look()` after each operation of a
  /// step.
  template <class Look>
  void play_steps(std::size_t end, Look look) {
    for (; step < end; ++step) {
      play_outside(loop.steps[step].first_event);
      subject.begin_step();
      for (; loop.next <= loop.steps[step].last_event; ++loop.next) {
        play(loop.dies_within_step[loop.next]);
        look();
      }
      subject.end_step();
    }
  }
  void play_steps(std::size_t end) {
    play_steps(end, [] {});
  }
  void play_outside(std::size_t end) {
    for (; loop.next < end; ++loop.next) play(false);
  }
  void play(bool dies_within_step) {
    loop.play(subject.resource(dies_within_step), loop.trace.events[loop.next]);
  }
  /// Plays the operations after the last step.
  void play_rest() {
    play_outside(loop.trace.events.size());
    for (tools::trace_event const& event : loop.trace.left) loop.play(subject.resource(false), event);
    loop.next = 0;
  }

  training_loop& loop;
  Subject& subject;
  std::size_t step = 0;
};

/// Returns a lower bound in bytes of every plan from the third step on. It sums the live bytes outside of
/// steps; for each size, the maximum live blocks that outlive their step; and the maximum live bytes of all
/// other blocks.
std::size_t min_bytes(training_loop const& loop) {
  struct amount {
    void add(std::size_t bytes) { most = std::max(most, sum += bytes); }
    std::size_t sum = 0, most = 0;
  };
  amount of_no_step, within;
  std::map<std::size_t, amount> outliving;  // by size
  const std::size_t alignment = default_plan_alignment;
  std::vector<amount*> kinds(loop.trace.blocks, &of_no_step);
  const auto count = [&](tools::trace_event const& event) {
    amount& of = *kinds[event.block];
    const std::size_t places = std::max<std::size_t>((event.bytes + alignment - 1) / alignment, 1);
    const std::size_t bytes = &of == &of_no_step ? event.bytes : places * alignment;
    event.allocates ? of.add(bytes) : of.add(std::size_t{0} - bytes);
  };
  std::size_t next = 0;
  for (std::size_t step = 0; step < loop.steps.size(); ++step) {
    for (; next < loop.steps[step].first_event; ++next) count(loop.trace.events[next]);
    if (step == first_step) {
      for (amount* one : {&of_no_step, &within}) one->most = one->sum;
      for (auto& [bytes, one] : outliving) one.most = one.sum;
    }
    for (; next <= loop.steps[step].last_event; ++next) {
      tools::trace_event const& event = loop.trace.events[next];
      if (event.allocates)
        kinds[event.block] = loop.dies_within_step[next] ? &within : &outliving[event.bytes];
      count(event);
    }
  }
  std::size_t all = of_no_step.most + within.most;
  for (auto const& [bytes, one] : outliving) all += one.most;
  return all;
}

/// A run that reads the footprint after each operation.
template <class Subject>
void count_footprint(benchmark::State& state, training_loop& loop) {
  counted_heap heap;
  Subject subject{heap};
  player<Subject> program{loop, subject};
  program.play_steps(first_step);
  const std::size_t calls_before = heap.calls;
  std::size_t most = 0;
  program.play_steps(loop.steps.size(), [&] { most = std::max(most, subject.footprint(heap)); });
  const std::size_t calls = heap.calls - calls_before;
  program.play_rest();
  const auto footprint = static_cast<double>(most);
  state.counters["footprint"] = footprint;
  state.counters["over_peak"] = footprint / static_cast<double>(loop.trace.peak_live_bytes);
  state.counters["over_bound"] = footprint / static_cast<double>(min_bytes(loop));
  state.counters["heap_calls"] = static_cast<double>(calls);
  if constexpr (requires { subject.memory.stats().height_bytes; }) {
    const planned_arena_stats stats = subject.memory.stats();
    state.counters["height_over_bound"] =
        static_cast<double>(stats.height_bytes) / static_cast<double>(stats.lower_bound_bytes);
    state.counters["pages"] = static_cast<double>(stats.committed_bytes - stats.height_bytes);
  }
}

/// Replays on a subject over a heap that `make` makes for each run, or that exists once per process. The
/// footprint is counted if only the subject and malloc take memory.
template <class Subject>
void replay(benchmark::State& state, std::string const& name,
            std::shared_ptr<std::pmr::memory_resource> (*make)(), bool counts_footprint = true) {
  training_loop loop =
      name == "unet" ? training_loop{tools::generate_steps(name, 8)} : training_loop::recorded(name);
  if (counts_footprint) count_footprint<Subject>(state, loop);
  std::size_t operations = 0;
  std::vector<double> of_steps;  // nanoseconds per operation
  for (auto _ : state) {
    const auto heap = make();
    Subject subject{*heap};
    player<Subject> program{loop, subject};
    program.play_steps(first_step);
    std::chrono::duration<double> all{0};
    for (std::size_t step = first_step; step < loop.steps.size(); ++step) {
      const auto begin = std::chrono::steady_clock::now();
      program.play_steps(step + 1);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
      const auto [first, last] = loop.steps[step];
      operations += last + 1 - first;
      of_steps.push_back(elapsed.count() * 1e9 / static_cast<double>(last + 1 - first));
      all += elapsed;
    }
    state.SetIterationTime(all.count());
    program.play_rest();
  }
  const auto median = of_steps.begin() + static_cast<std::ptrdiff_t>(of_steps.size() / 2);
  std::ranges::nth_element(of_steps, median);
  state.counters["usual_ns"] = *median;
  state.SetItemsProcessed(static_cast<std::int64_t>(operations));
}

const bool registered = [] {
  for (std::string const name : {"torch_gpt", "torch_mlp", "unet"}) {
    const auto add = [&](std::string const& who, auto replayed) {
      benchmark::RegisterBenchmark((who + "/replay/" + name).c_str(), replayed)->UseManualTime();
    };
    const auto add_ours = [&]<class Subject>(std::string const& who, std::type_identity<Subject>) {
      add(who,
          [=](benchmark::State& state) { replay<Subject>(state, name, bench::find_peer("malloc")->make); });
    };
    add_ours("planned", std::type_identity<planned>{});
    add_ours("pool", std::type_identity<pooled>{});
    add_ours("pool_whole", std::type_identity<pooled_whole>{});
    add_ours("arena", std::type_identity<rewound_arena>{});
    for (bench::peer const& peer : bench::peers()) {
      add(peer.name, [=, &peer](benchmark::State& state) {
        replay<heap_alone>(state, name, peer.make, peer.name == "malloc");
      });
    }
  }
  return true;
}();

}  // namespace
