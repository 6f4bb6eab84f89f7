// SPDX-License-Identifier: Apache-2.0
// Strategy: a cache over an upstream that compares returned blocks and whose addresses fault when touched;
// events that the test completes by hand, in any order; upstreams that run out, that call back, and that
// threads use.
#include <tidemark/pool/reuse_cache.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/telemetry/limit_resource.hpp>

#include "calling_owner.hpp"
#include "caught.hpp"
#include "recording_supply.hpp"
#include "reuse_subjects.hpp"
#include "thread_storm.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

struct reuse : test::reuse_test {};

// ---- fences -----------------------------------------------------------------------------------------------

// S3.30
TEST_F(reuse, a_block_is_reused_only_when_its_fence_is_done) {
  event done;
  reuse_cache cache{&upstream};
  void* const block = cache.allocate(4096, 256);
  cache.deallocate_after(block, 4096, 256, done.fence());
  void* const other = cache.allocate(4096, 256);
  EXPECT_NE(other, block);
  done.complete();
  EXPECT_EQ(cache.allocate(4096, 256), block);
  EXPECT_EQ(done.waits, 0);
  deallocate_blocks(cache, {block, other}, 4096);
}

TEST_F(reuse, prefers_a_ready_block_and_then_polls_no_fence) {
  event done;
  reuse_cache cache{&upstream};
  done.complete();
  const std::vector<void*> blocks = allocate_blocks(cache, 2, 512);
  cache.deallocate(blocks[0], 512, 256);
  cache.deallocate_after(blocks[1], 512, 256, done.fence());
  EXPECT_EQ(cache.allocate(512, 256), blocks[0]);
  EXPECT_EQ(done.asked, 0);
  EXPECT_EQ(cache.allocate(512, 256), blocks[1]);
  deallocate_blocks(cache, blocks, 512);
}

TEST_F(reuse, request_polls_at_most_32_fences_in_rotation) {
  std::vector<event> events(100);
  reuse_cache cache{&upstream};
  std::vector<void*> blocks = allocate_blocks(cache, 100, 512);
  for (std::size_t i = 0; i < 100; ++i) cache.deallocate_after(blocks[i], 512, 256, events[i].fence());
  events[99].complete();
  std::size_t requests = 0, asked = 0;
  void* block = nullptr;
  do {
    block = cache.allocate(512, 256);
    blocks.push_back(block);
    ++requests;
    std::size_t queries_now = 0;
    for (event const& done : events) queries_now += static_cast<std::size_t>(done.asked);
    EXPECT_LE(queries_now - asked, 32u);
    asked = queries_now;
  } while (block != blocks[99] && requests < 100);
  EXPECT_EQ(requests, 4u);  // 32, 64, 96, 100
  for (event& done : events) done.complete();
  (void)cache.collect();
  deallocate_blocks(cache, {blocks.begin() + 100, blocks.end()}, 512);
}

// ---- fences with an order ---------------------------------------------------------------------------------

/// Events in one order, or in several that take turns, and a block of 512 bytes behind each.
struct ordered_fences : test::reuse_test {
  static constexpr int orders = 40;
  char order[orders] = {};
  std::vector<event> events = std::vector<event>(100);
  reuse_cache cache{&upstream};
  std::vector<void*> blocks = allocate_blocks(cache, 100, 512);
  std::vector<void*> taken;

  void deallocate_in_orders(std::size_t of) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      events[i].order = &order[i % of];
      cache.deallocate_after(blocks[i], 512, 256, events[i].fence());
    }
    cache.check_invariants();
  }
  void* request() { return taken.emplace_back(cache.allocate(512, 256)); }
  [[nodiscard]] std::size_t asked() const {
    std::size_t sum = 0;
    for (event const& each : events) sum += static_cast<std::size_t>(each.asked);
    return sum;
  }
  void TearDown() override {
    cache.check_invariants();
    for (event& each : events) each.complete();
    deallocate_blocks(cache, taken, 512);
    (void)cache.collect();
    EXPECT_EQ(cache.stats().held_bytes, 0u);
  }
};

TEST_F(ordered_fences, each_block_of_one_order_is_reused_after_one_query) {
  deallocate_in_orders(1);
  for (std::size_t i = 0; i < 3; ++i) events[i].complete();
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(request(), blocks[i]);
  EXPECT_EQ(asked(), 3u);
  EXPECT_EQ(std::ranges::count(blocks, request()), 0);
  EXPECT_EQ(asked(), 4u);
}

TEST_F(ordered_fences, request_queries_the_first_fence_of_each_order) {
  deallocate_in_orders(3);
  events[2].complete();
  EXPECT_EQ(request(), blocks[2]);
  const std::size_t before = asked();
  EXPECT_EQ(std::ranges::count(blocks, request()), 0);
  EXPECT_EQ(asked(), before + 3);
}

TEST_F(ordered_fences, request_queries_32_orders_and_the_next_request_the_others) {
  deallocate_in_orders(orders);
  (void)request();
  EXPECT_EQ(asked(), 32u);
  (void)request();
  EXPECT_EQ(asked(), 64u);
  for (int i = 0; i < orders; ++i) EXPECT_GE(events[static_cast<std::size_t>(i)].asked, 1) << i;
}

TEST_F(ordered_fences, request_queries_other_sizes_until_its_block_is_ready) {
  void* const other = cache.allocate(64, 256);
  event last;
  last.order = &order[0];
  deallocate_in_orders(1);
  cache.deallocate_after(other, 64, 256, last.fence());
  for (event& each : events) each.complete();
  last.complete();
  EXPECT_EQ(cache.allocate(64, 256), other);
  EXPECT_EQ(asked(), 100u);
  EXPECT_EQ(cache.stats().cached_bytes, 100 * 512u);
  cache.deallocate(other, 64, 256);
}

TEST_F(ordered_fences, a_request_of_a_size_without_pending_blocks_queries_nothing) {
  deallocate_in_orders(2);
  cache.deallocate(cache.allocate(64, 256), 64, 256);
  EXPECT_EQ(asked(), 0u);
}

TEST_F(ordered_fences, pending_fence_does_not_block_other_orders) {
  events[1].complete();
  for (std::size_t i = 0; i < 3; ++i) {  // 0 and 2 in one order, 1 in none
    events[i].order = i == 1 ? nullptr : &order[0];
    cache.deallocate_after(blocks[i], 512, 256, events[i].fence());
  }
  EXPECT_EQ(request(), blocks[1]);
  deallocate_blocks(cache, {blocks.begin() + 3, blocks.end()}, 512);
}

TEST_F(ordered_fences, collect_stops_at_the_first_pending_fence_of_each_order) {
  deallocate_in_orders(2);
  for (std::size_t i : {0u, 1u, 2u, 4u}) events[i].complete();  // three of one order, one of the other
  EXPECT_EQ(cache.collect(), 4 * 512u);
  EXPECT_EQ(asked(), 6u);
  EXPECT_EQ(cache.stats().pending_bytes, 96 * 512u);
}

TEST_F(ordered_fences, collect_with_force_takes_all_without_a_query) {
  deallocate_in_orders(7);
  EXPECT_EQ(cache.collect(true), 100 * 512u);
  EXPECT_EQ(asked(), 0u);
  for (event const& each : events) EXPECT_EQ(each.waits, 1);
}

TEST_F(ordered_fences, wrong_order_delays_a_block_and_frees_no_block_early) {
  deallocate_in_orders(1);
  events[1].complete();
  EXPECT_EQ(std::ranges::count(blocks, request()), 0);
  events[0].complete();
  EXPECT_EQ(request(), blocks[0]);
  EXPECT_EQ(request(), blocks[1]);
  EXPECT_EQ(std::ranges::count(blocks, request()), 0);
}

TEST_F(reuse, deallocations_query_fences_with_an_order_and_without_in_turn) {
  constexpr char orders[4] = {};
  for (const bool is_ordered_done : {false, true}) {
    std::vector<event> events(8);
    reuse_cache cache{{.max_cached_bytes = 1 * KiB, .upstream = &upstream}};
    const std::vector<void*> blocks = allocate_blocks(cache, events.size(), 512);
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (i < 4) events[i].order = &orders[i];
      cache.deallocate_after(blocks[i], 512, 256, events[i].fence());
    }
    for (std::size_t i = 0; i < events.size(); ++i)
      if ((i < 4) == is_ordered_done) events[i].complete();  // the other four never are
    for (int i = 0; i < 8; ++i) cache.deallocate(cache.allocate(8, 256), 8, 256);
    EXPECT_EQ(cache.stats().pending_bytes, 4 * 512u) << is_ordered_done;
    cache.check_invariants();
  }
}

/// Counts its calls; queries nothing while `refuses`.
struct counted_queries : test::calling_owner {
  int calls = 0;
  bool refuses = false;
  counted_queries() {
    around = [this](std::function<void()> const& queries) {
      ++calls;
      if (!refuses) queries();
    };
  }
};

TEST_F(reuse, calls_its_owner_once_per_call_with_pending_blocks) {
  std::array<event, 5> events;
  counted_queries owner;
  reuse_cache cache{{.max_cached_bytes = 512, .upstream = &upstream}, &owner};
  deallocate_blocks(cache, allocate_blocks(cache, 5, 512), 512);
  const std::vector<void*> blocks = allocate_blocks(cache, 5, 512);
  (void)cache.collect();
  EXPECT_EQ(owner.calls, 0);
  for (std::size_t i = 0; i < 5; ++i) cache.deallocate_after(blocks[i], 512, 256, events[i].fence());
  EXPECT_EQ(owner.calls, 4) << "the first found nothing pending";
  void* const block = cache.allocate(512, 256);
  EXPECT_EQ(owner.calls, 5);
  (void)cache.collect();
  EXPECT_EQ(owner.calls, 6);
  (void)cache.collect(true);
  EXPECT_EQ(owner.calls, 6) << "it queries nothing";
  cache.deallocate(block, 512, 256);
}

TEST_F(reuse, queries_no_fence_if_its_owner_refuses) {
  event done;
  done.complete();
  counted_queries owner;
  owner.refuses = true;
  reuse_cache cache{{.max_cached_bytes = 1 * MiB, .upstream = &upstream}, &owner};
  const std::vector<void*> blocks = allocate_blocks(cache, 2, 512);
  cache.deallocate_after(blocks[0], 512, 256, done.fence());
  cache.deallocate(blocks[1], 512, 256);
  EXPECT_EQ(cache.allocate(512, 256), blocks[1]);
  void* const other = cache.allocate(512, 256);
  EXPECT_NE(other, blocks[0]);
  EXPECT_EQ(cache.collect(), 0u);
  EXPECT_EQ(done.asked, 0);
  owner.refuses = false;
  EXPECT_EQ(cache.allocate(512, 256), blocks[0]);
  deallocate_blocks(cache, {blocks[0], blocks[1], other}, 512);
}

// ---- the end of fences ------------------------------------------------------------------------------------

TEST_F(reuse, destruction_waits_for_fences_and_frees_all_blocks) {
  event ready, late;
  {
    reuse_cache cache{&upstream};
    ready.complete();
    cache.deallocate_after(cache.allocate(100, 256), 100, 256, ready.fence());
    cache.deallocate_after(cache.allocate(200, 256), 200, 256, late.fence());
    cache.deallocate(cache.allocate(300, 256), 300, 256);
  }
  EXPECT_TRUE(late.completed());
  EXPECT_EQ(upstream.outstanding, 0u);
}

// ---- limits -----------------------------------------------------------------------------------------------

// S3.31
TEST_F(reuse, limit_of_1_MiB_keeps_1_MiB_to_within_a_block) {
  constexpr std::size_t block_bytes = 48 * KiB;  // which does not divide the limit
  reuse_cache cache{{.max_cached_bytes = 1 * MiB, .upstream = &upstream}};
  const std::vector<void*> blocks = allocate_blocks(cache, 8 * MiB / block_bytes, block_bytes);
  deallocate_blocks(cache, blocks, block_bytes);
  EXPECT_LE(cache.stats().cached_bytes, 1 * MiB);
  EXPECT_GT(cache.stats().cached_bytes, 1 * MiB - block_bytes);
  EXPECT_EQ(upstream.outstanding, cache.stats().cached_bytes);
}

TEST_F(reuse, without_a_limit_all_of_8_MiB_is_kept) {
  reuse_cache cache{{.max_cached_bytes = 0, .upstream = &upstream}};
  deallocate_blocks(cache, allocate_blocks(cache, 128, 64 * KiB), 64 * KiB);
  EXPECT_EQ(cache.stats().cached_bytes, 8 * MiB);
  EXPECT_EQ(upstream.outstanding, 8 * MiB);
}

// S1.27 S3.31
TEST_F(reuse, evicts_the_largest_blocks_over_the_limit) {
  reuse_cache cache{{.max_cached_bytes = 1000, .upstream = &upstream}};
  const std::vector<void*> small = allocate_blocks(cache, 2, 300);
  void* const large = cache.allocate(400, 256);
  void* const larger = cache.allocate(500, 256);
  cache.deallocate(larger, 500, 256);
  cache.deallocate(large, 400, 256);
  deallocate_blocks(cache, small, 300);
  EXPECT_FALSE(upstream.holds(larger));
  for (void* kept : {small[0], small[1], large}) EXPECT_TRUE(upstream.holds(kept));
  EXPECT_EQ(cache.stats().cached_bytes, 1000u) << "the limit is reached to the byte";
}

TEST_F(reuse, block_larger_than_the_limit_evicts_no_other_block) {
  reuse_cache cache{{.max_cached_bytes = 1000, .upstream = &upstream}};
  void* const small = cache.allocate(900, 256);
  void* const large = cache.allocate(1001, 256);
  cache.deallocate(small, 900, 256);
  cache.deallocate(large, 1001, 256);
  EXPECT_TRUE(upstream.holds(small));
  EXPECT_FALSE(upstream.holds(large));
}

TEST_F(reuse, fenced_block_counts_against_the_limit_once_its_fence_is_done) {
  std::array<event, 5> events;
  reuse_cache cache{{.max_cached_bytes = 1000, .upstream = &upstream}};
  const std::vector<void*> blocks = allocate_blocks(cache, 5, 400);
  for (std::size_t i = 0; i < 5; ++i) cache.deallocate_after(blocks[i], 400, 256, events[i].fence());
  EXPECT_EQ(cache.stats().pending_bytes, 2000u);
  EXPECT_EQ(cache.stats().cached_bytes, 0u);
  for (event& done : events) done.complete();
  cache.deallocate(cache.allocate(8, 256), 8, 256);
  EXPECT_EQ(cache.stats().pending_bytes, 0u);
  EXPECT_EQ(cache.stats().cached_bytes, 808u);
}

TEST_F(reuse, pending_blocks_of_a_cache_with_a_limit_stay_few_in_a_long_run) {
  std::vector<std::unique_ptr<event>> events;
  reuse_cache cache{{.max_cached_bytes = 10'000, .upstream = &upstream}};
  for (std::size_t i = 0; i < 5000; ++i) {
    // Each block has its own size, which is not requested again. The device is 10 blocks behind, and never
    // completes the first two.
    events.push_back(std::make_unique<event>());
    cache.deallocate_after(cache.allocate(1000 + i, 256), 1000 + i, 256, events[i]->fence());
    if (i >= 12) events[i - 10]->complete();
  }
  EXPECT_LT(cache.stats().pending_bytes, 300'000u);
}

// ---- statistics -------------------------------------------------------------------------------------------

// S3.33
TEST_F(reuse, counts_cached_pending_and_live_bytes_apart) {
  event done;
  reuse_cache cache{{.name = "tensors", .upstream = &upstream}};
  const std::vector<void*> blocks = allocate_blocks(cache, 6, 100);
  deallocate_blocks(cache, {blocks[0], blocks[1]}, 100);
  cache.deallocate_after(blocks[2], 100, 256, done.fence());
  const reuse_cache_stats stats = cache.stats();
  EXPECT_STREQ(stats.name, "tensors");
  EXPECT_EQ(stats.used_blocks, 3u);
  EXPECT_EQ(stats.used_bytes, 300u);
  EXPECT_EQ(stats.cached_bytes, 200u);
  EXPECT_EQ(stats.pending_bytes, 100u);
  EXPECT_EQ(stats.held_bytes, 600u);
  deallocate_blocks(cache, {blocks[3], blocks[4], blocks[5]}, 100);
}

// S3.35
TEST_F(reuse, counts_calls_hits_and_peaks) {
  reuse_cache cache{&upstream};
  const std::vector<void*> blocks = allocate_blocks(cache, 3, 100);
  deallocate_blocks(cache, blocks, 100);
  deallocate_blocks(cache, allocate_blocks(cache, 2, 100), 100);
  const reuse_cache_stats stats = cache.stats();
  EXPECT_EQ(stats.allocations, 5u);
  EXPECT_EQ(stats.deallocations, 5u);
  EXPECT_EQ(stats.hits, 2u);
  EXPECT_EQ(stats.misses, 3u);
  EXPECT_EQ(stats.refused, 0u);
  EXPECT_EQ(stats.used_blocks, 0u);
  EXPECT_EQ(stats.used_bytes, 0u);
  EXPECT_EQ(stats.peak_blocks, 3u);
  EXPECT_EQ(stats.peak_bytes, 300u);
  EXPECT_EQ(stats.peak_cached_bytes, 300u);
}

// ---- collect and running out ------------------------------------------------------------------------------

// S3.34
TEST_F(reuse, collect_frees_ready_blocks_and_with_force_waits_for_pending_ones) {
  std::array<event, 2> events;
  reuse_cache cache{&upstream};
  const std::vector<void*> blocks = allocate_blocks(cache, 3, 100);
  cache.deallocate(blocks[0], 100, 256);
  cache.deallocate_after(blocks[1], 100, 256, events[0].fence());
  cache.deallocate_after(blocks[2], 100, 256, events[1].fence());
  events[1].complete();
  EXPECT_EQ(cache.collect(), 200u);
  EXPECT_TRUE(upstream.holds(blocks[1]));
  EXPECT_EQ(upstream.outstanding, 100u);
  EXPECT_EQ(events[0].waits, 0);
  EXPECT_EQ(cache.collect(true), 100u);
  EXPECT_EQ(events[0].waits, 1);
  EXPECT_EQ(upstream.outstanding, 0u);
  EXPECT_EQ(cache.collect(true), 0u);
  cache.check_invariants();
}

// S3.34
TEST_F(reuse, returns_ready_blocks_to_an_exhausted_upstream_and_tries_again) {
  limit_resource budget{&upstream, 1000};
  event done;
  reuse_cache cache{&budget};
  deallocate_blocks(cache, allocate_blocks(cache, 6, 100), 100);
  cache.deallocate_after(cache.allocate(400, 256), 400, 256, done.fence());
  void* const block = cache.allocate(600, 256);
  EXPECT_EQ(done.waits, 0) << "nothing is waited for if there is no need";
  EXPECT_EQ(cache.stats().refused, 0u);
  EXPECT_EQ(cache.stats().pending_bytes, 400u);
  cache.deallocate(block, 600, 256);
}

// S3.34
TEST_F(reuse, waits_for_pending_blocks_if_the_upstream_lacks_memory) {
  limit_resource budget{&upstream, 1000};
  event done;
  reuse_cache cache{&budget};
  deallocate_blocks(cache, allocate_blocks(cache, 6, 100), 100);
  cache.deallocate_after(cache.allocate(400, 256), 400, 256, done.fence());
  void* const block = cache.allocate(601, 256);
  EXPECT_EQ(done.waits, 1);
  EXPECT_EQ(cache.stats().held_bytes, 601u);
  cache.deallocate(block, 601, 256);
}

TEST_F(reuse, request_that_cannot_be_served_throws_the_upstream_exception) {
  limit_resource budget{&upstream, 1000, "device"};
  event done;
  reuse_cache cache{&budget};
  void* const held = cache.allocate(500, 256);
  cache.deallocate_after(cache.allocate(400, 256), 400, 256, done.fence());
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)cache.allocate(501, 256); });
  EXPECT_STREQ(error.report().resource, "device");
  EXPECT_EQ(cache.stats().refused, 1u);
  EXPECT_EQ(cache.stats().allocations, 2u);
  EXPECT_EQ(cache.stats().held_bytes, 500u);
  cache.check_invariants();
  cache.deallocate(cache.allocate(500, 256), 500, 256);
  cache.deallocate(held, 500, 256);
}

TEST_F(reuse, block_without_memory_for_a_record_returns_to_the_upstream) {
  recording_resource bookkeeping;
  event done;
  reuse_cache cache{{.upstream = &upstream, .bookkeeping = &bookkeeping}};
  const std::vector<void*> blocks = allocate_blocks(cache, 2, 512);
  bookkeeping.fail_from = bookkeeping.calls;
  bookkeeping.fail_count = test::supply::never;
  cache.deallocate(blocks[0], 512, 256);
  EXPECT_FALSE(upstream.holds(blocks[0]));
  cache.deallocate_after(blocks[1], 512, 256, done.fence());
  EXPECT_FALSE(upstream.holds(blocks[1]));
  EXPECT_EQ(done.waits, 1);
  EXPECT_EQ(done.destroyed, 1);
  EXPECT_EQ(cache.stats().held_bytes, 0u);
  cache.check_invariants();
  bookkeeping.fail_from = test::supply::never;
  deallocate_blocks(cache, allocate_blocks(cache, 2, 512), 512);
  EXPECT_EQ(cache.stats().cached_bytes, 1024u);
}

// ---- how it is made ---------------------------------------------------------------------------------------

TEST_F(reuse, ignores_null_and_destroys_its_fence) {
  reuse_cache cache;
  int destroyed = 0;
  static constexpr reuse_fence::functions calls{
      .done = [](void*) noexcept { return false; },
      .wait = [](void*) noexcept {},
      .destroy = [](void* count) noexcept { ++*static_cast<int*>(count); }};
  cache.deallocate(nullptr, 64);
  cache.deallocate_after(nullptr, 64, 16, reuse_fence{calls, &destroyed});
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(cache.stats().deallocations, 0u);
  EXPECT_EQ(cache.stats().pending_bytes, 0u);
  cache.check_invariants();
}

TEST_F(reuse, uses_the_default_resource_for_null) {
  recording_resource by_default;
  std::pmr::memory_resource* const before = std::pmr::set_default_resource(&by_default);
  {
    reuse_cache plain;
    reuse_cache of_null{static_cast<std::pmr::memory_resource*>(nullptr)};
    EXPECT_EQ(plain.upstream_resource(), &by_default);
    EXPECT_EQ(of_null.upstream_resource(), &by_default);
    EXPECT_EQ(plain.options().bookkeeping, std::pmr::new_delete_resource());
    EXPECT_STREQ(plain.name(), "reuse_cache");
    plain.deallocate(plain.allocate(10), 10);
    EXPECT_EQ(by_default.outstanding, 10u) << "records come from elsewhere";
  }
  std::pmr::set_default_resource(before);
}

// ---- misuse -----------------------------------------------------------------------------------------------

TEST_F(reuse, level_2_reports_an_invalid_deallocation_and_ignores_it) {
  if (check_level < 2) GTEST_SKIP() << "found at level 2";
  event done;
  reuse_cache cache{&upstream};
  void* const block = cache.allocate(512, 256);
  const test::violation_recorder recorder;
  cache.deallocate(block, 511, 256);
  cache.deallocate(static_cast<char*>(block) + 16, 496, 16);
  EXPECT_EQ(recorder.count(violation_kind::bad_deallocate), 2u);
  EXPECT_EQ(cache.stats().used_blocks, 1u);
  cache.deallocate(block, 512, 256);
  cache.deallocate_after(block, 512, 256, done.fence());
  EXPECT_EQ(recorder.count(violation_kind::bad_deallocate), 3u);
  EXPECT_EQ(done.destroyed, 1);
  EXPECT_EQ(cache.stats().cached_bytes, 512u);
}

TEST_F(reuse, level_2_reports_blocks_that_outlive_the_cache) {
  if (check_level < 2) GTEST_SKIP() << "found at level 2";
  const test::violation_recorder recorder;
  void* block = nullptr;
  {
    reuse_cache cache{&upstream};
    block = cache.allocate(512, 256);
  }
  EXPECT_EQ(recorder.count(violation_kind::leak), 1u);
  EXPECT_TRUE(upstream.holds(block));
  upstream.deallocate(block, 512, 256);
}

// ---- threads ----------------------------------------------------------------------------------------------

TEST(reuse_cache, serves_other_threads_while_one_thread_waits) {
  event late;
  reuse_cache cache;
  late.wait_completes = false;
  cache.deallocate_after(cache.allocate(512, 256), 512, 256, late.fence());
  std::thread waiting{[&] { EXPECT_EQ(cache.collect(true), 512u); }};
  while (late.waits == 0) std::this_thread::yield();
  cache.deallocate(cache.allocate(64, 256), 64, 256);
  void* const block = cache.allocate(64, 256);
  EXPECT_EQ(cache.stats().hits, 1u);
  late.complete();
  waiting.join();
  cache.deallocate(block, 64, 256);
}

TEST(reuse_cache, threads_lose_nothing) {
  reuse_cache cache{{.max_cached_bytes = std::size_t{10} * 24}};
  EXPECT_EQ(test::storm(cache), 0u);
  const reuse_cache_stats stats = cache.stats();
  EXPECT_EQ(stats.allocations, test::storm_threads * test::storm_rounds);
  EXPECT_EQ(stats.deallocations, stats.allocations);
  EXPECT_EQ(stats.used_bytes, 0u);
  EXPECT_LE(stats.peak_cached_bytes, 10 * 24u);
  cache.check_invariants();
}

// S3.30
/// Blocks that a device writes after they were deallocated: threads take and give, and complete each other's
/// work.
TEST(reuse_cache, threads_never_get_a_block_that_is_still_written) {
  constexpr std::size_t bytes = 64;
  struct work {
    unsigned char* block;
    std::unique_ptr<event> done;
  };
  std::mutex queue_mutex;
  std::vector<work> queue;
  std::vector<std::unique_ptr<event>> ended;  // an event may go when its fence was destroyed
  {
    reuse_cache cache{{.max_cached_bytes = 100 * bytes}};
    const auto work_off = [&](std::size_t left) {
      const std::scoped_lock lock{queue_mutex};
      while (queue.size() > left) {
        std::swap(queue[queue.size() / 2], queue.back());  // in no order
        std::memset(queue.back().block, 0xDE, bytes);
        queue.back().done->complete();
        ended.push_back(std::move(queue.back().done));
        queue.pop_back();
      }
    };
    test::on_threads([&](std::size_t thread) {
      for (std::size_t i = 0; i < test::storm_rounds / 4; ++i) {
        auto* const block = static_cast<unsigned char*>(cache.allocate(bytes, 16));
        std::memset(block, static_cast<int>(thread), bytes);
        if (i % 64 == 0) (void)cache.collect();
        EXPECT_TRUE(std::all_of(block, block + bytes, [&](unsigned char byte) { return byte == thread; }));
        auto done = std::make_unique<event>();
        done->wait_completes = false;
        {
          // Before the block is deallocated: a thread that then sees the work is not ahead of it.
          const std::scoped_lock lock{queue_mutex};
          cache.deallocate_after(block, bytes, 16, done->fence());
          queue.push_back({block, std::move(done)});
        }
        work_off(20);
      }
    });
    work_off(0);
    cache.check_invariants();
    EXPECT_GT(cache.stats().hits, 0u);
    EXPECT_GT(cache.stats().misses, 0u);
  }
  for (std::unique_ptr<event> const& done : ended) EXPECT_EQ(done->destroyed, 1);
}

TEST(reuse_cache, threads_may_collect_with_force_while_others_run_out) {
  limit_resource budget{50};
  std::atomic<std::size_t> refused{0};
  reuse_cache cache{&budget};
  // Five sizes; two fit at once. Even a thread that runs alone needs the bytes of its earlier blocks.
  test::on_threads([&](std::size_t thread) {
    for (std::size_t i = 0; i < 1000; ++i) {
      const std::size_t bytes = 20 + (thread + i) % 5;
      try {
        void* const block = cache.allocate(bytes, 16);
        cache.deallocate(block, bytes, 16);
      } catch (std::bad_alloc const&) {
        refused.fetch_add(1);  // other threads' live blocks may leave too little memory
      }
      if (i % 100 == 0) (void)cache.collect(true);
      (void)cache.stats();
    }
  });
  cache.check_invariants();
  EXPECT_GT(budget.stats().refused, 3 * refused) << "some requests were served when asked again";
  (void)cache.collect(true);
  EXPECT_EQ(cache.stats().held_bytes, 0u);
  EXPECT_EQ(budget.stats().used_bytes, 0u);
}

}  // namespace
}  // namespace tidemark::test
