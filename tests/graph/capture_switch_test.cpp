// SPDX-License-Identifier: Apache-2.0
// Strategy: a switch over a resource that records the return of each block: at once, at the end of a capture,
// or never. Every call at the wrong time runs, with the state before and after. Threads run beside a capture,
// with exact counts.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <latch>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/core.hpp>
#include <tidemark/graph.hpp>
#include <tidemark/pool.hpp>
#include <tidemark/telemetry/test_resource.hpp>

#include "caught.hpp"
#include "contains.hpp"
#include "graph_subjects.hpp"
#include "made_up_addresses.hpp"
#include "made_up_memory.hpp"
#include "recording_supply.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

/// All that a user can see of a switch, but for `refused`.
std::vector<std::size_t> state(capture_switch const& memory) {
  std::vector<std::size_t> all = state_of(memory);
  all.insert(all.end(), {memory.is_frozen(), memory.has_arena()});
  return all;
}

struct capture_switches : ::testing::Test {
  violation_recorder violations;
  recording_resource upstream;
  capture_switch memory{capture_switch_options{.name = "program", .upstream = &upstream}};
  graph_arena arena{byte_range{base, 64 * KiB}, {.name = "step"}};

  static void expect_no_report() {
    EXPECT_TRUE(violation_recorder::reports().empty()) << violation_recorder::reports().front().message;
  }
  void expect_sound() const {
    const std::size_t before = violation_recorder::reports().size();
    memory.check_invariants();
    arena.check_invariants();
    ASSERT_EQ(violation_recorder::reports().size(), before) << violation_recorder::reports().back().message;
  }
  void freeze_with_arena() {
    memory.install_arena(arena);
    memory.freeze();
  }
  /// Ends a capture whose blocks no graph uses.
  void thaw() {
    memory.clear_arena();
    memory.unfreeze().release();
  }
};

// ---- outside of captures ----------------------------------------------------------------------------------

TEST_F(capture_switches, without_an_upstream_use_the_default_resource) {
  std::pmr::memory_resource* const before = std::pmr::set_default_resource(&upstream);
  capture_switch other;
  EXPECT_EQ(other.upstream_resource(), &upstream);
  EXPECT_STREQ(other.name(), "capture_switch");
  EXPECT_STREQ((capture_switch{capture_switch_options{.name = nullptr}}.name()), "capture_switch");
  std::pmr::set_default_resource(before);
}

// S1.32
TEST_F(capture_switches, count_each_kind_of_call_and_keep_peaks_after_frees) {
  void* const a = memory.allocate(100);
  void* const b = memory.allocate(28);
  memory.deallocate(a, 100);
  upstream.fail_from = upstream.calls;
  EXPECT_THROW((void)memory.allocate(1), std::bad_alloc);
  void* const c = memory.allocate(10);
  memory.deallocate(b, 28);
  memory.deallocate(c, 10);
  EXPECT_STREQ(memory.stats().name, "program");
  EXPECT_EQ(memory.stats().refused, 1u);
  EXPECT_EQ(state(memory), (std::vector<std::size_t>{3, 3, 0, 2, 0, 128, 138, 0, 0, 0, 0}));
}

// S1.33
TEST_F(capture_switches, reset_their_counts_only_without_blocks_in_use) {
  void* const block = memory.allocate(100);
  void* const second = memory.allocate(100);
  memory.freeze();
  const std::vector<std::size_t> before = state(memory);
  const allocator_busy error = test::caught<allocator_busy>([&] { memory.reset(); });
  EXPECT_EQ(error.blocks(), 2u);
  EXPECT_STREQ(error.what(), "capture_switch 'program': reset while 2 blocks are in use");
  EXPECT_EQ(state(memory), before);
  memory.unfreeze().release();
  memory.deallocate(block, 100);
  memory.deallocate(second, 100);
  upstream.fail_from = upstream.calls;
  EXPECT_THROW((void)memory.allocate(1), std::bad_alloc);
  memory.freeze();
  memory.reset();
  EXPECT_EQ(memory.stats().refused, 0u);
  EXPECT_EQ(state(memory), (std::vector<std::size_t>{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0}))
      << "the switch is still frozen";
  memory.unfreeze().release();
  EXPECT_FALSE(memory.is_frozen());
}

// ---- frozen or not, with an arena or without --------------------------------------------------------------

// S1.10
TEST_F(capture_switches, allocate_from_the_arena_while_frozen) {
  memory.install_arena(arena);
  EXPECT_TRUE(memory.has_arena());
  void* const before = memory.allocate(100);
  EXPECT_TRUE(upstream.holds(before)) << "not yet frozen";
  memory.freeze();
  void* const inside = memory.allocate(100, 1024);
  EXPECT_EQ(address_of(inside), base);
  EXPECT_EQ(arena.layout().alignment, 1024u);
  EXPECT_EQ(upstream.calls, 1u);
  memory.unfreeze().release();
  void* const after = memory.allocate(100);
  EXPECT_TRUE(upstream.holds(after)) << "frozen no more, though the arena is installed";
  EXPECT_TRUE(memory.has_arena());
  memory.freeze();
  EXPECT_EQ(address_of(memory.allocate(100)), base + 256) << "frozen again";
  expect_sound();
  memory.deallocate(inside, 100, 1024);
  thaw();
  memory.deallocate(before, 100);
  memory.deallocate(after, 100);
  expect_no_report();
}

// S1.9
TEST_F(capture_switches, accept_one_arena_per_thread) {
  graph_arena other{byte_range{2 * base, 4 * KiB}, {.name = "other"}};
  memory.install_arena(arena);
  const std::vector<std::size_t> before = state(memory);
  EXPECT_STREQ(
      caught<std::logic_error>([&] { memory.install_arena(other); }).what(),
      "capture_switch 'program': cannot install graph_arena 'other': 'step' is installed on this thread");
  EXPECT_EQ(state(memory), before);
  EXPECT_EQ(memory.clear_arena(), &arena);
  memory.install_arena(other);
  EXPECT_EQ(memory.clear_arena(), &other);
}

// S1.9
TEST_F(capture_switches, reject_an_arena_of_another_switch) {
  capture_switch first{capture_switch_options{.name = "first", .upstream = &upstream}};
  first.install_arena(arena);
  first.clear_arena();
  const std::logic_error error = test::caught<std::logic_error>([&] { memory.install_arena(arena); });
  EXPECT_STREQ(
      error.what(),
      "capture_switch 'program': cannot install graph_arena 'step': it is known to capture_switch 'first'");
  EXPECT_FALSE(memory.has_arena());
  expect_sound();
}

// S1.11
TEST_F(capture_switches, refuse_allocations_while_frozen_without_an_arena_by_policy) {
  capture_switch tracked{{.without_arena = frozen_policy::refuse, .name = "tracked", .upstream = &upstream}};
  void* const before = tracked.allocate(100);
  tracked.freeze();
  const std::vector<std::size_t> frozen = state(tracked);
  EXPECT_STREQ(test::caught<allocator_frozen>([&] { (void)tracked.allocate(1000); }).what(),
               "capture_switch 'tracked': frozen for a capture, and no graph arena is installed: cannot "
               "allocate 1000 bytes");
  EXPECT_EQ(state(tracked), frozen);
  EXPECT_EQ(tracked.stats().refused, 1u);
  EXPECT_EQ(upstream.calls, 1u) << "the upstream was not asked";
  tracked.install_arena(arena);
  EXPECT_EQ(address_of(tracked.allocate(1000)), base) << "an arena may be asked";
  tracked.clear_arena();
  tracked.unfreeze().release();
  void* const after = tracked.allocate(1000);
  EXPECT_TRUE(upstream.holds(after)) << "unfreezing restores it";
  tracked.deallocate(after, 1000);
  tracked.deallocate(before, 100);
}

TEST_F(capture_switches, pass_on_out_of_memory_of_an_exhausted_arena_unchanged) {
  graph_arena small{byte_range{2 * base, 1024}};
  memory.install_arena(small);
  memory.freeze();
  (void)memory.allocate(512);
  const std::vector<std::size_t> before = state(memory);
  EXPECT_THROW((void)memory.allocate(513), out_of_memory);
  EXPECT_EQ(state(memory), before);
  EXPECT_EQ(memory.stats().refused, 1u);
  EXPECT_EQ(upstream.calls, 0u) << "an arena that is too small is no reason to take memory elsewhere";
  thaw();
}

// ---- blocks from before -----------------------------------------------------------------------------------

// S1.14
TEST_F(capture_switches, return_earlier_blocks_when_the_capture_ends) {
  void* const first = memory.allocate(100, 64);
  void* const second = memory.allocate(200, 128);
  freeze_with_arena();
  memory.deallocate(first, 100, 64);
  memory.deallocate(second, 200, 128);
  EXPECT_TRUE(upstream.holds(first)) << "a device cannot free it now";
  EXPECT_TRUE(upstream.holds(second));
  EXPECT_EQ(memory.stats().deferred_blocks, 2u);
  EXPECT_EQ(memory.stats().used_blocks, 0u) << "for its user it is gone";
  expect_sound();
  memory.clear_arena();
  EXPECT_TRUE(upstream.holds(first)) << "still frozen";
  memory.unfreeze().release();
  EXPECT_EQ(upstream.outstanding, 0u);
  EXPECT_EQ(memory.stats().deferred_blocks, 0u);
  expect_no_report();
}

TEST_F(capture_switches, report_a_double_deallocation_in_a_capture_and_after_it) {
  void* const before = memory.allocate(100);
  memory.freeze();
  void* const baked = memory.allocate(100);
  const auto deallocate_twice = [&](void* block) {
    memory.deallocate(block, 100);
    const std::vector<std::size_t> once = state(memory);
    memory.deallocate(block, 100);
    EXPECT_EQ(state(memory), once);
    EXPECT_EQ(violation_recorder::reports().back().kind, violation_kind::bad_deallocate);
    EXPECT_TRUE(
        violation_recorder::reports().back().message.starts_with("capture_switch 'program': 100 bytes at "));
  };
  deallocate_twice(before);
  const baked_blocks graph = memory.unfreeze();
  deallocate_twice(baked);
  EXPECT_EQ(violation_recorder::reports().size(), 2u);
}  // the upstream gets each once

// ---- blocks of an arena -----------------------------------------------------------------------------------

TEST_F(capture_switches, can_be_the_upstream_of_their_installed_arena) {
  {
    graph_arena own{4 * KiB, &memory};
    EXPECT_EQ(upstream.outstanding, 4 * KiB);
    memory.install_arena(own);
    memory.freeze();
    EXPECT_TRUE(own.owns(memory.allocate(100)));
    thaw();
  }  // the range begins at the address of a block, but is not a block
  EXPECT_EQ(upstream.outstanding, 0u);
  EXPECT_EQ(memory.stats().used_blocks, 0u);
  expect_no_report();
}

// ---- blocks that are baked into a graph -------------------------------------------------------------------

// S1.12
TEST_F(capture_switches, never_reuse_a_baked_block_while_the_graph_lives) {
  // The upstream would reuse the block, because it caches blocks by size.
  reuse_cache cache{&upstream};
  capture_switch cached{&cache};
  cached.freeze();
  void* const baked = cached.allocate(1000, 256);
  cached.deallocate(baked, 1000, 256);
  std::vector<void*> others;
  for (int i = 0; i < 10; ++i) others.push_back(cached.allocate(1000, 256));
  for (void* const block : others) cached.deallocate(block, 1000, 256);
  baked_blocks graph = cached.unfreeze();
  EXPECT_EQ(graph.size(), 11u);
  EXPECT_EQ(cache.stats().cached_bytes, 0u) << "no block is in the free list";
  void* const after = cached.allocate(1000, 256);
  EXPECT_NE(after, baked);
  for (void* const block : others) EXPECT_NE(after, block);
  graph.release();
  EXPECT_EQ(cache.stats().cached_bytes, 11'000u) << "all blocks are in the free list now";
  cached.deallocate(after, 1000, 256);
}

// S1.12
TEST_F(capture_switches, report_a_kept_block_that_the_upstream_allocates_at_level_2) {
  if (check_level < 2) GTEST_SKIP() << "check level " << check_level << " does not look";
  test::made_up_memory device;
  capture_switch cached{capture_switch_options{.name = "cached", .upstream = &device}};
  void* const before = cached.allocate(2000, 256);
  cached.freeze();
  void* const baked = cached.allocate(1000, 256);
  const baked_blocks graph = cached.unfreeze();
  device.deallocate(baked, 1000, 256);  // past the switch
  EXPECT_EQ(cached.allocate(1000, 256), baked);
  ASSERT_EQ(violation_recorder::count(violation_kind::bad_deallocate), 1u);
  EXPECT_PRED2(contains, violation_recorder::reports()[0].message,
               "capture_switch 'cached': the upstream allocated 0x");
  cached.freeze();
  cached.deallocate(before, 2000, 256);
  device.deallocate(before, 2000, 256);  // and here
  EXPECT_EQ(cached.allocate(2000, 256), before);
  EXPECT_EQ(violation_recorder::count(violation_kind::bad_deallocate), 2u);
  cached.unfreeze().release();
}

TEST_F(capture_switches, return_each_baked_block_to_one_holder) {
  memory.freeze();
  memory.deallocate(memory.allocate(100), 100);
  baked_blocks first = memory.unfreeze();
  memory.freeze();
  memory.deallocate(memory.allocate(200), 200);
  memory.deallocate(memory.allocate(300), 300);
  baked_blocks second = memory.unfreeze();
  EXPECT_EQ(upstream.outstanding, 600u);
  baked_blocks moved = std::move(first);
  EXPECT_EQ(first.size(), 0u);
  EXPECT_EQ(moved.size(), 1u);
  first.release();
  EXPECT_EQ(upstream.outstanding, 600u) << "the moved-from object holds no block";
  baked_blocks& same = moved;
  moved = std::move(same);
  EXPECT_EQ(moved.size(), 1u);
  moved = std::move(second);
  EXPECT_EQ(upstream.outstanding, 500u) << "its own first";
  EXPECT_EQ(moved.size(), 2u);
  moved.release();
  EXPECT_EQ(upstream.outstanding, 0u);
  EXPECT_EQ(moved.size(), 0u);
  moved.release();
  EXPECT_EQ(baked_blocks{}.size(), 0u);
  expect_sound();
}

// ---- at the end -------------------------------------------------------------------------------------------

TEST_F(capture_switches, report_destruction_in_a_capture_or_before_a_graph_and_return_all_blocks) {
  alignas(baked_blocks) std::array<std::byte, sizeof(baked_blocks)> storage;
  for (const bool is_frozen : {true, false}) {
    violation_recorder::reports().clear();
    {
      capture_switch ending{capture_switch_options{.name = "ending", .upstream = &upstream}};
      void* const before = ending.allocate(100);
      ending.freeze();
      ending.deallocate(before, 100);
      ending.deallocate(ending.allocate(200), 200);
      EXPECT_EQ(upstream.outstanding, 300u);
      // Its destructor is not called: it would use a switch that is gone.
      if (!is_frozen) ::new (static_cast<void*>(storage.data())) baked_blocks{ending.unfreeze()};
    }
    EXPECT_EQ(upstream.outstanding, 0u);
    EXPECT_EQ(violation_recorder::only(violation_kind::scope_outlived),
              is_frozen ? "capture_switch 'ending' is destroyed while a thread has frozen it"
                        : "capture_switch 'ending' is destroyed while graphs hold 2 blocks of it");
  }
}

// ---- while an exception or a report passes ----------------------------------------------------------------

// S1.38
TEST_F(capture_switches, stay_usable_after_an_upstream_exception_in_every_state) {
  // As a lock that an exception passed by would be poisoned, or held for ever.
  const auto fails = [&] {
    upstream.fail_from = upstream.calls;
    EXPECT_THROW((void)memory.allocate(100), std::bad_alloc);
  };
  fails();
  memory.install_arena(arena);
  fails();
  memory.freeze();
  memory.clear_arena();
  fails();
  graph_arena full{byte_range{}};
  memory.install_arena(full);
  EXPECT_THROW((void)memory.allocate(1), out_of_memory);
  std::thread{[&] {
    EXPECT_FALSE(memory.is_frozen());
    fails();
    memory.deallocate(memory.allocate(10), 10);
  }}.join();
  thaw();
  fails();
  memory.deallocate(memory.allocate(10), 10);
  EXPECT_EQ(memory.stats().refused, 6u);
  EXPECT_EQ(memory.stats().allocations, 2u);
  expect_sound();
}

capture_switch* seen_by_handler = nullptr;
std::vector<std::size_t> seen_used_blocks;

// S1.38
TEST_F(capture_switches, can_be_queried_by_a_violation_handler) {
  seen_by_handler = &memory;
  seen_used_blocks.clear();
  const violation_handler before = set_violation_handler([](violation const&) {
    seen_used_blocks.push_back(seen_by_handler->stats().used_blocks);
    (void)seen_by_handler->is_frozen();
    seen_by_handler->check_invariants();
  });
  freeze_with_arena();
  void* const block = memory.allocate(100);
  (void)memory.allocate(100);
  memory.deallocate(block, 100);
  memory.deallocate(block, 100);  // the arena reports, while the switch is locked
  set_violation_handler(before);
  EXPECT_EQ(seen_used_blocks, std::vector<std::size_t>{1});
  thaw();
}

// ---- threads ----------------------------------------------------------------------------------------------

// S1.15
TEST_F(capture_switches, serve_other_threads_normally_while_one_thread_has_frozen) {
  freeze_with_arena();
  (void)memory.allocate(100);
  std::thread{[&] {
    EXPECT_FALSE(memory.is_frozen());
    EXPECT_FALSE(memory.has_arena());
    EXPECT_EQ(memory.clear_arena(), nullptr);
    memory.unfreeze().release();
    void* const block = memory.allocate(1000);
    EXPECT_TRUE(upstream.holds(block));
    memory.deallocate(block, 1000);
    EXPECT_FALSE(upstream.holds(block)) << "at once, because this thread captures nothing";
  }}.join();
  EXPECT_TRUE(memory.is_frozen());
  EXPECT_TRUE(memory.has_arena());
  EXPECT_EQ(memory.stats().frozen_threads, 1u);
  EXPECT_EQ(arena.stats().allocations, 1u);
  thaw();
  expect_sound();
}

// S1.15
TEST_F(capture_switches, serve_two_concurrent_captures_with_separate_arenas) {
  graph_arena other{byte_range{2 * base, 64 * KiB}, {.name = "other"}};
  std::latch both_frozen{2}, both_done{2};
  const auto capture_on = [&](graph_arena& own, std::uintptr_t begin) {
    memory.install_arena(own);
    memory.freeze();
    both_frozen.arrive_and_wait();
    EXPECT_EQ(memory.stats().frozen_threads, 2u);
    for (std::uintptr_t i = 0; i < 100; ++i) {
      void* const block = memory.allocate(200);
      EXPECT_EQ(address_of(block), begin + i * 256) << "as without other threads";
      memory.deallocate(block, 200);
    }
    both_done.arrive_and_wait();
    memory.clear_arena();
    memory.unfreeze().release();
  };
  std::thread second{[&] { capture_on(other, 2 * base); }};
  capture_on(arena, base);
  second.join();
  EXPECT_EQ(arena.stats().allocations, 100u);
  EXPECT_EQ(other.stats().allocations, 100u);
  EXPECT_EQ(memory.stats().frozen_threads, 0u);
  EXPECT_EQ(memory.stats().used_blocks, 0u);
  expect_sound();
  expect_no_report();
}

}  // namespace
}  // namespace tidemark::test
