// SPDX-License-Identifier: Apache-2.0
// Strategy: long random sequences, compared with models. The model of a graph arena knows every address
// beforehand, and the invalid deallocations. The model of a switch knows the owner of each block, and thus
// the moment at which the upstream sees it again. Captures begin and end, arenas are installed, cleared and
// destroyed late, blocks cross the borders of captures, graphs keep blocks. No byte that a graph knows may
// change its owner while the graph lives.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <list>
#include <random>
#include <string>

#include <tidemark/core/units.hpp>
#include <tidemark/graph.hpp>

#include "capture_switch_model.hpp"
#include "graph_arena_model.hpp"
#include "graph_subjects.hpp"
#include "resource_model.hpp"
#include "seeds.hpp"
#include "thread_storm.hpp"
#include "threaded_supply.hpp"

namespace tidemark::test {
namespace {

// ---- an arena ---------------------------------------------------------------------------------------------

// S1.1 S1.2 S1.4 S1.6 S1.23 S1.32
TEST(graph_arena_model, predicts_every_address) {
  using model = graph_arena_model;
  run_for_seeds<model>(full_steps, {{"refused requests", &model::refused, in_this_length(1000)},
                                    {"resets", &model::resets, in_this_length(100)},
                                    {"wrong frees", &model::bad_frees, in_this_length(10'000)}});
}

// ---- a switch ---------------------------------------------------------------------------------------------

// S1.9 S1.10 S1.13 S1.14 S1.32
TEST(capture_switch_model, predicts_the_owner_of_each_block) {
  using model = switch_model;
  run_for_seeds<model>(full_steps,
                       {{"captures", &model::captures, in_this_length(5000)},
                        {"baked blocks", &model::baked, in_this_length(5000)},
                        {"deferred blocks", &model::deferred, in_this_length(5000)},
                        {"late frees", &model::late, in_this_length(5000)},
                        {"blocks that outlive their graph", &model::orphans, in_this_length(1000)},
                        {"empty captures", &model::empty_captures, in_this_length(50)},
                        {"graphs that end in a capture", &model::in_capture, in_this_length(1000)},
                        {"blocks of two graphs", &model::in_two, in_this_length(1000)}});
}

// ---- a switch among threads -------------------------------------------------------------------------------

/// Checks that no capturing thread returns a block, and that each block is returned once.
class threaded_device final : public detail::distinct_resource {
 public:
  static inline thread_local bool captures = false;
  explicit threaded_device(std::size_t max_blocks) : once_{max_blocks} {}
  [[nodiscard]] std::size_t outstanding() const noexcept { return once_.outstanding(); }

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override { return once_.allocate(bytes, align); }
  void do_deallocate(void* block, std::size_t bytes, std::size_t align) override {
    EXPECT_FALSE(captures) << "a block goes back in a capture of its thread";
    once_.deallocate(block, bytes, align);
  }

  each_once_memory once_;
};

// S1.15
TEST(capture_switch_model, agrees_for_threads_that_exchange_blocks) {
  const std::uint64_t first_seed = number_from_environment("TIDEMARK_SEED", 1);
  for (std::uint64_t seed = first_seed; seed < first_seed + 5; ++seed) {
    SCOPED_TRACE("repeat with TIDEMARK_SEED=" + std::to_string(seed));
    const std::size_t steps = in_this_length(5000);
    threaded_device device{storm_threads * steps};
    std::atomic<std::uint64_t> allocations{0};
    {
      capture_switch memory{&device};
      std::array<std::atomic<void*>, 128> exchange{};
      std::latch all_done{storm_threads}, all_deallocated{storm_threads};
      on_threads([&](std::size_t thread) {
        std::mt19937_64 random{seed * storm_threads + thread};
        graph_arena own{byte_range{(thread + 1) << 40, 16 * MiB}};
        std::list<baked_blocks> graphs;
        const auto exchange_block = [&](std::size_t i, void* block) {
          if (void* const other = exchange[i].exchange(block)) memory.deallocate(other, 24);
        };
        for (std::size_t i = 0; i < steps; ++i) {
          const std::uint64_t what = random() % 100;
          if (what < 80) {
            exchange_block(random() % exchange.size(),
                           random() % 3 == 0 ? nullptr : (allocations.fetch_add(1), memory.allocate(24)));
          } else if (what < 86) {
            if (!memory.has_arena()) memory.install_arena(own);
            else memory.clear_arena();
          } else if (what < 92) {
            if (!memory.is_frozen()) memory.freeze(), device.captures = true;
          } else if (what < 98) {
            device.captures = false;
            graphs.push_back(memory.unfreeze());
          } else if (!device.captures && graphs.size() > 4) {
            graphs.pop_front();
          }
        }
        device.captures = false;
        memory.clear_arena();
        graphs.push_back(memory.unfreeze());
        all_done.arrive_and_wait();
        for (std::size_t i = thread; i < exchange.size(); i += storm_threads) exchange_block(i, nullptr);
        all_deallocated.arrive_and_wait();
        EXPECT_EQ(own.stats().used_blocks, 0u);
        own.check_invariants();
      });
      memory.check_invariants();
      const capture_switch_stats stats = memory.stats();
      EXPECT_EQ(stats.allocations, allocations.load());
      EXPECT_EQ(stats.used_blocks, 0u);
      EXPECT_EQ(stats.used_bytes, 0u);
      EXPECT_EQ(stats.deferred_blocks, 0u);
      EXPECT_EQ(stats.frozen_threads, 0u);
    }
    EXPECT_EQ(device.outstanding(), 0u);
  }
}

// ---- as any resource --------------------------------------------------------------------------------------

TEST(resource_model, agrees_with_the_graph_arena) { run_resource_model<graph_arena_subject>(); }
TEST(resource_model, agrees_with_the_switch_outside_captures) {
  run_resource_model<capture_switch_subject>();
}
TEST(resource_model, agrees_with_the_frozen_switch) { run_resource_model<frozen_switch_subject>(); }
TEST(resource_model, agrees_with_the_rehearsal) { run_resource_model<rehearsal_subject>(); }

}  // namespace
}  // namespace tidemark::test
