// SPDX-License-Identifier: Apache-2.0
// Random programs on the memory of one device: heaps of several streams, plans, captures and their graphs,
// events of other streams, limits of the budget, and an arena that is suspended and resumed. The fake device
// fails the test if work touches missing memory, or if accesses to the same bytes are not ordered.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda.hpp>

#include "captures.hpp"
#include "choices.hpp"
#include "fake_device.hpp"
#include "fake_units.hpp"

namespace tidemark::test {

/// Runs programs, one after another, each on its own device.
class device_memory_model {
 public:
  explicit device_memory_model(choices random) : random_{std::move(random)} { begin_program(); }
  device_memory_model(device_memory_model const&) = delete;
  device_memory_model& operator=(device_memory_model const&) = delete;
  ~device_memory_model() = default;

  void step() {
    if (++operations_ % 1000 == 0) begin_program();
    const std::size_t what = below(100);
    try {
      if (what < 30) allocate();
      else if (what < 42) share();
      else if (what < 65) free_any();
      else if (what < 72) push();
      else if (what < 75) suspend_or_resume();
      else if (what < 79) begin_or_end_step();
      else if (what < 83) capture();
      else if (what < 88) launch();
      else if (what < 90) set_limit();
      else if (what < 92) trim();
      else run_->device.run(run_->streams[below(2)]);
    } catch (std::bad_alloc const&) {
      ++refused;
    }
  }
  void check_contents() {
    run_->pools.check_invariants();
    run_->heap.check_invariants();
    run_->arena.check_invariants();
    const device_pools_stats now = run_->pools.stats();
    EXPECT_EQ(now.held_bytes, now.used_bytes + now.cached_bytes + now.stranded_bytes);
    EXPECT_EQ(now.held_bytes + run_->heap.stats().held_bytes + run_->arena.stats().committed_bytes,
              run_->device.physical_bytes());
  }

  std::size_t refused = 0, planned_steps = 0, launches = 0, resumes = 0, waits_of_blocks = 0,
              released_graphs = 0;

 private:
  struct block {
    void* first;
    std::size_t bytes;
    std::size_t on;   // index of the stream
    bool is_of_heap;  // of `heap`, else of `pools`
    bool is_shared;   // by work of the other stream
  };

  /// A device and its resources.
  struct program {
    program(bool plans, bool keeps_little)
        : pools{{.max_cached_bytes = keeps_little ? 4 * unit : device_pools_options{}.max_cached_bytes,
                 .plans = plans},
                device} {}
    program(program const&) = delete;
    program& operator=(program const&) = delete;
    ~program() {
      pools.end_step();
      for (block const& each : live) free_block(each);
      arena.reset();
      release_graphs();
      pools.check_invariants();
      EXPECT_EQ(pools.stats().used_blocks, 0u);
    }

    void free_block(block const& gone) {
      if (!gone.is_of_heap) {
        pools.deallocate(gone.first, gone.bytes, 256);
      } else if (gone.is_shared) {
        const gpu::event done{streams[1 - gone.on], device};
        heap.deallocate_after(gone.first, gone.bytes, 256, done);
      } else {
        heap.deallocate(gone.first, gone.bytes, 256);
      }
    }
    void release_graphs() {
      EXPECT_EQ(device.synchronize(), gpu::status::success);
      for (gpu::executable_handle each : graphs)
        EXPECT_EQ(device.destroy_executable(each), gpu::status::success);
      graphs.clear();
      EXPECT_TRUE(pools.release_graphs(1));
    }

    fake_device device{in_units()};
    gpu::stream one{device}, two{device};
    std::array<gpu::stream_handle, 2> const streams{one.get(), two.get()};
    device_pools pools;
    device_pool heap{{.stream = one}, device};
    device_arena arena{{.reserve = 16 * unit, .name = "step"}, two, device};
    std::vector<block> live;
    std::vector<gpu::executable_handle> graphs;
  };

  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }

  void begin_program() {
    if (run_) planned_steps += run_->pools.step_stats().planned_steps;
    run_.reset();
    run_.emplace(below(2) == 0, below(4) == 0);
  }
  // Most blocks are small, some have several units.
  std::size_t any_size() { return below(6) == 0 ? 1 + below(6 * unit) : std::size_t{1} << below(16); }

  void allocate() {
    if (run_->live.size() >= 30) return free_any();
    block made{nullptr, any_size(), below(2), below(3) == 0, false};
    if (made.is_of_heap) made.on = 0;
    made.first = made.is_of_heap ? run_->heap.allocate(made.bytes, 256)
                                 : run_->pools.allocate(made.bytes, 256, run_->streams[made.on]);
    run_->device.write(run_->streams[made.on], made.first, made.bytes);
    run_->live.push_back(made);
  }
  // The other stream uses a block of the pools between two works of the block's own stream, and a block of the
  // heap after the last of them.
  void share() {
    if (run_->live.empty()) return;
    block& shared = run_->live[below(run_->live.size())];
    gpu::stream_handle const own = run_->streams[shared.on], other = run_->streams[1 - shared.on];
    EXPECT_EQ(gpu::put_behind(run_->device, other, own), gpu::status::success);
    run_->device.write(other, shared.first, shared.bytes, "other stream");
    shared.is_shared = true;
    if (shared.is_of_heap) return;
    EXPECT_TRUE(run_->pools.record_use(shared.first, other));
    if (below(2) == 0) EXPECT_EQ(gpu::put_behind(run_->device, own, other), gpu::status::success);
  }
  void free_any() {
    if (run_->live.empty()) return;
    const std::size_t i = below(run_->live.size());
    waits_of_blocks += run_->live[i].is_shared ? 1 : 0;
    run_->free_block(std::exchange(run_->live[i], run_->live.back()));
    run_->live.pop_back();
  }

  void push() {
    if (run_->arena.is_suspended()) return;
    if (below(4) == 0) return run_->arena.reset();
    const std::size_t bytes = any_size();
    run_->device.write(run_->two, run_->arena.allocate(bytes), bytes, "arena");
  }
  void suspend_or_resume() {
    if (!run_->arena.is_suspended()) return run_->arena.suspend();
    run_->arena.resume();
    ++resumes;
  }

  void begin_or_end_step() {
    if (below(5) == 0) run_->pools.end_step();
    else run_->pools.begin_step(below(2));
  }
  void trim() {
    (void)run_->pools.trim();
    (void)run_->heap.trim(below(4) * unit);
  }
  void set_limit() {
    run_->device.budget(0).set_limit(below(3) == 0 ? gpu::device_budget::unlimited : (8 + below(56)) * unit);
  }

  // A graph of some temporaries in the memory of pool 1.
  void capture() {
    if (run_->graphs.size() >= 5) {
      run_->release_graphs();
      ++released_graphs;
      return;
    }
    gpu::stream_handle const on = run_->streams[below(2)];
    const gpu::graph_handle graph = captured(run_->device, on, gpu::capture_mode::thread_local_, [&] {
      std::vector<std::pair<void*, std::size_t>> temporaries;
      for (std::size_t i = 0; i < 6; ++i) {
        const std::size_t bytes = any_size();
        try {
          temporaries.emplace_back(run_->pools.allocate(bytes, 256, on, 1), bytes);
          run_->device.write(on, temporaries.back().first, bytes, "captured");
        } catch (std::bad_alloc const&) {
          ++refused;
        }
        if (temporaries.empty() || below(2) == 0) continue;
        std::swap(temporaries[below(temporaries.size())], temporaries.back());
        run_->pools.deallocate(temporaries.back().first, temporaries.back().second, 256);
        temporaries.pop_back();
      }
      for (auto const& [temporary, bytes] : temporaries) run_->pools.deallocate(temporary, bytes, 256);
    });
    run_->pools.end_capture(1);
    run_->graphs.push_back(instantiated(run_->device, graph));
    EXPECT_EQ(run_->device.destroy_graph(graph), gpu::status::success);
  }
  // Graphs of one pool never run at the same time.
  void launch() {
    if (run_->graphs.empty()) return;
    EXPECT_EQ(run_->device.launch(run_->graphs[below(run_->graphs.size())], run_->one), gpu::status::success);
    ++launches;
  }

  choices random_;
  std::uint64_t operations_ = 0;
  std::optional<program> run_;
};

}  // namespace tidemark::test
