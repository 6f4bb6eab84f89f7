// SPDX-License-Identifier: Apache-2.0
// Strategy: counts calls of operator new and malloc for operations of a graph arena and a capture switch that
// promise to make none. operator new also fails at each of its calls in turn, and a failed capture must
// leave no block and no record.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <new>
#include <utility>

#include <tidemark/core.hpp>
#include <tidemark/graph.hpp>

#include "made_up_addresses.hpp"
#include "no_heap.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

/// Calls of the heap so far, of both kinds.
struct heap_calls {
  std::size_t of_new = news, of_malloc = mallocs;
  friend bool operator==(heap_calls const&, heap_calls const&) = default;
};

using upstream_blocks = few_blocks<256, 8>;

// S1.8
TEST(graph_heap, an_arena_allocates_nothing_from_its_construction_to_its_destruction) {
  auto arena = std::make_unique<graph_arena>(byte_range{base, 64 * MiB});
  std::array<void*, 1000> blocks{};
  const heap_calls before;
  for (int round = 0; round < 100; ++round) {
    for (void*& block : blocks) block = arena->allocate(300, round % 2 == 0 ? 64 : 512);
    for (void* const block : blocks) arena->deallocate(block, 300);
    const violation_handler handler = set_violation_handler([](violation const&) {});
    arena->deallocate(blocks[0], 300);  // twice
    (void)set_violation_handler(handler);
    (void)arena->stats();
    (void)arena->layout();
    arena->reset();
  }
  try {
    (void)arena->allocate(65 * MiB);
  } catch (std::bad_alloc const&) {
  }
  arena->check_invariants();
  const heap_calls after;
  EXPECT_EQ(after.of_new, before.of_new);
  // The exception's own memory is the C++ runtime's.
  EXPECT_LE(after.of_malloc, before.of_malloc + 1);
}

TEST(graph_heap, switch_adds_no_allocation_to_a_capture_with_an_arena) {
  upstream_blocks upstream;
  capture_switch memory{&upstream};
  graph_arena arena{byte_range{base, 1 * MiB}};
  memory.install_arena(arena);
  memory.freeze();
  const heap_calls before;
  for (int i = 0; i < 1000; ++i) memory.deallocate(memory.allocate(100), 100);
  const heap_calls after;
  EXPECT_EQ(before, after);
  memory.clear_arena();
  memory.unfreeze().release();
  const heap_calls later;
  for (int i = 0; i < 1000; ++i) memory.deallocate(memory.allocate(100), 100);
  EXPECT_EQ(later, heap_calls{}) << "nor afterwards, while it knows the arena";
}

TEST(graph_heap, reports_and_leaks_a_block_whose_wait_cannot_be_recorded) {
  upstream_blocks upstream;
  const violation_recorder violations;
  violation_recorder::reports().reserve(8);
  {
    capture_switch memory{capture_switch_options{.name = "program", .upstream = &upstream}};
    void* const block = memory.allocate(100);
    memory.freeze();
    // A handler that needs memory has none.
    static std::size_t reports;
    static violation_kind kind;
    reports = 0;
    const violation_handler recording = set_violation_handler([](violation const& report) {
      ++reports;
      kind = report.kind;
    });
    {
      const no_memory here;
      memory.deallocate(block, 100);
    }
    set_violation_handler(recording);
    EXPECT_EQ(reports, 1u);
    EXPECT_EQ(kind, violation_kind::exhausted);
    EXPECT_EQ(memory.stats().used_blocks, 0u);
    EXPECT_EQ(memory.stats().deferred_blocks, 0u);
    memory.unfreeze().release();
    EXPECT_EQ(upstream.outstanding, 1u) << "lost, as it was said to be";
    memory.check_invariants();
  }
  EXPECT_TRUE(violation_recorder::reports().empty());
}

// S1.38
TEST(graph_heap, frozen_switch_throws_and_keeps_no_block_that_it_cannot_record) {
  upstream_blocks upstream;
  capture_switch memory{&upstream};
  memory.freeze();
  void* block = nullptr;
  const std::size_t refused = fail_each_new([&] { block = memory.allocate(100); },
                                            [&, before = std::uint64_t{0}](bool failed) mutable {
                                              if (!failed) return;
                                              EXPECT_EQ(upstream.outstanding, 0u);
                                              EXPECT_EQ(memory.stats().refused, ++before);
                                              EXPECT_EQ(memory.stats().allocations, 0u);
                                              memory.check_invariants();
                                            });
  EXPECT_GE(refused, 2u) << "for the record of the block, and for the list of them";
  memory.deallocate(block, 100);
  memory.unfreeze().release();
  EXPECT_EQ(upstream.outstanding, 0u);
}

TEST(graph_heap, switch_without_memory_to_record_a_capture_stays_unchanged) {
  upstream_blocks upstream;
  capture_switch memory{&upstream};
  graph_arena arena{byte_range{base, 4 * KiB}};
  const auto survives = [&](auto call) {
    const std::size_t failures = fail_each_new(call, [&](bool failed) {
      EXPECT_FALSE(failed && (memory.is_frozen() || memory.has_arena()));
      memory.check_invariants();
    });
    EXPECT_GE(failures, 1u);
  };
  survives([&] { memory.install_arena(arena); });
  EXPECT_EQ(memory.clear_arena(), &arena);
  survives([&] { memory.freeze(); });
  memory.unfreeze().release();
  memory.check_invariants();
}

/// A capture on the host through a switch, whose body has a block of the upstream and one of the arena.
struct captures_without_memory : ::testing::Test {
  upstream_blocks upstream;
  capture_switch memory{&upstream};
  host_backend host;
  std::unique_ptr<graph_arena> arena = std::make_unique<graph_arena>(byte_range{base, 4 * KiB});

  auto body(std::size_t bytes) {
    return [this, bytes](std::pmr::memory_resource& given, auto&, auto&) {
      graph_arena* const installed = memory.clear_arena();
      const unique_block baked{&memory, 100};  // must be noted
      memory.install_arena(*installed);
      given.deallocate(given.allocate(bytes), bytes);
    };
  }
  void expect_nothing_left() {
    EXPECT_FALSE(memory.is_frozen());
    EXPECT_FALSE(memory.has_arena());
    EXPECT_EQ(memory.stats().used_blocks, 0u);
    memory.check_invariants();
  }
};

// S1.16 S1.17
TEST_F(captures_without_memory, leak_nothing) {
  unique_block in{arena.get(), 10}, out{arena.get(), 10};  // of the arena, which must not end before
  const std::size_t failures = fail_each_new(
      [&] { (void)capture(host, memory, std::move(arena), std::move(in), std::move(out), body(100)); },
      [&](bool) {
        expect_nothing_left();
        EXPECT_EQ(upstream.outstanding, 0u);
        arena = std::make_unique<graph_arena>(byte_range{base, 4 * KiB});
        in = unique_block{arena.get(), 10}, out = unique_block{arena.get(), 10};
      });
  EXPECT_GE(failures, 5u) << "for the graph, its arena's record, the freeze, a baked block and its list";
}

TEST_F(captures_without_memory, leave_an_updated_graph_unchanged) {
  auto graph = capture(
      host, memory, std::move(arena), 0, 0,
      [&](std::pmr::memory_resource& given, int&, int&) { given.deallocate(given.allocate(100), 100); });
  const graph_layout layout = graph.arena().layout();
  const std::size_t failures = fail_each_new([&] { (void)graph.update(body(1000)); },
                                             [&](bool failed) {
                                               if (failed) EXPECT_EQ(graph.arena().layout(), layout);
                                               if (failed) EXPECT_EQ(upstream.outstanding, 0u);
                                               expect_nothing_left();
                                               graph.arena().check_invariants();
                                             });
  EXPECT_GE(failures, 4u) << "for the freeze, the arena's record, a baked block and the graph";
  EXPECT_EQ(graph.arena().high_water_bytes(), 1024u);
}

TEST(graph_heap, rehearsal_returns_a_block_that_it_cannot_record) {
  upstream_blocks upstream;
  rehearsal stage{&upstream};
  std::pmr::memory_resource& memory = stage;
  void* const first = memory.allocate(100);
  const graph_layout before = stage.layout();
  {
    const no_memory here;
    EXPECT_THROW((void)memory.allocate(100), std::bad_alloc);
  }
  EXPECT_EQ(upstream.outstanding, 1u);
  EXPECT_EQ(stage.layout(), before);
  memory.deallocate(first, 100);
}

}  // namespace
}  // namespace tidemark::test
