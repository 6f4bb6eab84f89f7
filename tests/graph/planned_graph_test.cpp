// SPDX-License-Identifier: Apache-2.0
// Strategy: a body is rehearsed, planned, and captured in an arena made of the plan. A shadow sees each block
// in use. Bodies that deviate from their rehearsal continue in the tail.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include <tidemark/core.hpp>
#include <tidemark/graph.hpp>

#include "shadow.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

/// Three blocks of 1 KiB, of which two are live at once.
void chain(std::pmr::memory_resource& memory) {
  void* const a = memory.allocate(1024);
  void* const b = memory.allocate(1024);
  memory.deallocate(a, 1024);
  void* const c = memory.allocate(1024);
  memory.deallocate(b, 1024);
  memory.deallocate(c, 1024);
}

/// Allocates and deallocates like a random program. Checks a block's contents when it is deallocated. @return
/// the addresses
std::vector<std::uintptr_t> random_body(std::pmr::memory_resource& memory, std::uint32_t seed) {
  struct held_block {
    void* first;
    std::size_t bytes, align;
  };
  std::minstd_rand random{seed};
  std::vector<held_block> held;
  std::vector<std::uintptr_t> addresses;
  shadow blocks;
  for (int i = 0; i < 400; ++i) {
    if (held.empty() || random() % 5 < 3) {
      const std::size_t bytes = random() % 3000, align = std::size_t{1} << random() % 12;
      void* const block = memory.allocate(bytes, align);
      blocks.add(block, bytes, align);
      held.push_back({block, bytes, align});
      addresses.push_back(reinterpret_cast<std::uintptr_t>(block));
    } else {
      std::swap(held[random() % held.size()], held.back());
      blocks.remove(held.back().first);
      memory.deallocate(held.back().first, held.back().bytes, held.back().align);
      held.pop_back();
    }
  }
  blocks.check_all();
  return addresses;
}

// P.26
TEST(planned_graph, needs_only_the_peak_live_bytes) {
  EXPECT_EQ(rehearse(chain).bytes, 3 * 1024u);
  step_plan const plan = rehearse_plan(chain);
  EXPECT_EQ(plan.height, 2 * 1024u);
  graph_arena arena{plan, 0, nullptr};
  EXPECT_EQ(arena.range().size, 2 * 1024u);
  chain(arena);
  EXPECT_EQ(arena.layout(), *arena.expected());
  EXPECT_EQ(arena.high_water_bytes(), 2 * 1024u);
  EXPECT_EQ(arena.stats().used_blocks, 0u);
  arena.check_invariants();
}

TEST(planned_graph, block_that_outlives_the_body_shares_no_bytes) {
  const auto body = [](std::pmr::memory_resource& memory) {
    memory.deallocate(memory.allocate(1024), 1024);
    (void)memory.allocate(1024);  // the value of the last replay stays valid until this replay writes it
    memory.deallocate(memory.allocate(1024), 1024);
  };
  EXPECT_EQ(rehearse_plan(body).height, 2 * 1024u);
}

// P.26
TEST(planned_graph, never_overlaps_blocks_in_use) {
  for (std::uint32_t seed = 0; seed < 30; ++seed) {
    const auto body = [seed](std::pmr::memory_resource& memory) { (void)random_body(memory, seed); };
    step_plan const plan = rehearse_plan(body, std::pmr::new_delete_resource());
    graph_arena arena{plan, 0, nullptr};
    body(arena);
    EXPECT_EQ(arena.layout(), *arena.expected());
    EXPECT_LT(plan.height, rehearse(body, std::pmr::new_delete_resource()).bytes);
    arena.check_invariants();
  }
}

TEST(planned_graph, has_its_full_tail_above_a_plan_of_unaligned_height) {
  // A plan of another's make, which ends with its last block.
  const step_plan plan{
      .blocks = {{.request = 0,
                  .life = {.lower = 0, .upper = 1, .size = 100, .alignment = 256, .offset = 0}}},
      .requests = 1,
      .alignment = 256,
      .height = 100,
      .lower_bound = 100};
  const test::violation_recorder violations;
  graph_arena arena{plan, 256, nullptr};
  EXPECT_EQ(arena.range().size, 512u);
  arena.check_invariants();
  EXPECT_EQ(test::violation_recorder::reports().size(), 0u);
  void* const planned = arena.allocate(100);
  void* const in_tail = arena.allocate(256);
  EXPECT_EQ(static_cast<std::byte*>(in_tail) - static_cast<std::byte*>(planned), 256);
  arena.check_invariants();
  EXPECT_EQ(test::violation_recorder::reports().size(), 0u);
  arena.deallocate(planned, 100);
  arena.deallocate(in_tail, 256);
}

// P.26
TEST(planned_graph, differing_requests_are_served_from_the_tail) {
  step_plan const plan = rehearse_plan(chain);
  graph_arena arena{plan, 1 * MiB, nullptr};
  const std::uintptr_t tail = arena.range().begin + plan.height;
  const auto address = [](void* block) { return reinterpret_cast<std::uintptr_t>(block); };
  shadow blocks;
  void* const a = arena.allocate(1024);
  blocks.add(a, 1024, 256);
  EXPECT_LT(address(a), tail);
  void* const larger = arena.allocate(5000);  // than the block at its turn
  blocks.add(larger, 5000, 256);
  EXPECT_GE(address(larger), tail);
  void* const b = arena.allocate(1000);  // the next turn is still there; it need not be filled
  blocks.add(b, 1000, 256);
  EXPECT_LT(address(b), tail);
  void* const c = arena.allocate(1024);  // its place is still a's, which was deallocated here by the plan
  blocks.add(c, 1024, 256);
  EXPECT_GE(address(c), tail);
  void* const more = arena.allocate(1024);  // than there were
  blocks.add(more, 1024, 256);
  EXPECT_GE(address(more), tail);
  blocks.check_all();
  EXPECT_NE(arena.layout().hash, arena.expected()->hash);
  arena.check_invariants();
  for (void* block : {a, b, c, more}) arena.deallocate(block, block == b ? 1000 : 1024);
  arena.deallocate(larger, 5000);
  EXPECT_EQ(arena.stats().used_blocks, 0u);
}

TEST(planned_graph, deviating_bodies_never_get_overlapping_blocks) {
  for (std::uint32_t seed = 0; seed < 30; ++seed) {
    const auto body = [seed](std::pmr::memory_resource& memory) { (void)random_body(memory, seed); };
    graph_arena arena{rehearse_plan(body, std::pmr::new_delete_resource()), 4 * MiB, nullptr};
    (void)random_body(arena, seed + 1);
    arena.check_invariants();
  }
}

TEST(planned_graph, rejects_malformed_plans_and_alignments) {
  step_plan plan = rehearse_plan(chain);
  *plan.blocks[0].life.offset = *plan.blocks[1].life.offset;
  EXPECT_THROW((graph_arena{plan, 0, nullptr}), std::invalid_argument);
  EXPECT_THROW((void)rehearse_plan(chain, nullptr, 64), std::invalid_argument);
  EXPECT_THROW((graph_arena{rehearse_plan(chain), std::size_t(-1), nullptr}), out_of_memory);
}

TEST(planned_graph, update_reuses_planned_addresses_and_keeps_earlier_blocks) {
  const step_plan plan = rehearse_plan(chain, nullptr);
  auto arena = std::make_unique<graph_arena>(plan, 1 * MiB, nullptr);
  graph_arena& in_graph = *arena;
  host_backend host;
  std::vector<void*> first, second;
  const auto noting = [](std::vector<void*>& addresses) {
    return [&addresses](std::pmr::memory_resource& memory, int&, int&) {
      for (int i = 0; i < 3; ++i) {
        addresses.push_back(memory.allocate(1024));
        memory.deallocate(addresses.back(), 1024);
      }
    };
  };
  void* const before = in_graph.allocate(100);  // the plan's first request
  auto graph = capture(host, std::move(arena), 0, 0, noting(first));
  EXPECT_THROW((void)graph.update([&](std::pmr::memory_resource& memory, int&, int&) {
    noting(second)(memory, graph.inputs(), graph.outputs());
    throw 42;
  }),
               int);
  EXPECT_EQ(second, first);
  EXPECT_THROW((void)graph.update([](std::pmr::memory_resource&, int&, int&) { throw 42; }), int);
  void* const behind = in_graph.allocate(1024);
  EXPECT_GE(static_cast<std::byte*>(behind), static_cast<std::byte*>(in_graph.range().data()) + plan.height)
      << "the plan's memory is the graph's";
  EXPECT_THROW((void)graph.update(noting(second)), allocator_busy);
  in_graph.deallocate(behind, 1024);
  second.clear();
  EXPECT_FALSE(graph.update(noting(second)));
  EXPECT_EQ(second, first);
  EXPECT_EQ(in_graph.stats().used_blocks, 1u);
  in_graph.deallocate(before, 100);
  in_graph.check_invariants();
}

TEST(planned_graph, update_never_overlaps_blocks_kept_longer_than_planned) {
  const auto one_by_one = [](std::pmr::memory_resource& memory, int&, int&) {
    for (int i = 0; i < 3; ++i) memory.deallocate(memory.allocate(1024), 1024);
  };
  int nothing = 0;
  const step_plan plan =
      rehearse_plan([&](std::pmr::memory_resource& memory) { one_by_one(memory, nothing, nothing); });
  EXPECT_EQ(plan.height, 1024u);
  host_backend host;
  auto graph = capture(host, std::make_unique<graph_arena>(plan, 64 * KiB, nullptr), 0, 0, one_by_one);
  EXPECT_FALSE(graph.update([](std::pmr::memory_resource& memory, int&, int&) {
    std::vector<void*> live;
    for (int i = 0; i < 3; ++i) live.push_back(memory.allocate(1024));
    EXPECT_NE(live[1], live[0]);
    EXPECT_NE(live[2], live[0]);
    EXPECT_NE(live[2], live[1]);
    for (void* block : live) memory.deallocate(block, 1024);
  }));
  EXPECT_FALSE(graph.update(one_by_one));
  EXPECT_EQ(graph.arena().layout().allocations, 3u);
}

}  // namespace
}  // namespace tidemark::test
