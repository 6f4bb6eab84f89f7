// SPDX-License-Identifier: Apache-2.0
// Strategy: each count after calls with a known result; frames compared with the calls in them; threads
// compared with sums.
#include <tidemark/telemetry/statistics_resource.hpp>

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "caught.hpp"
#include "recording_supply.hpp"
#include "telemetry_subjects.hpp"
#include "thread_storm.hpp"

namespace tidemark {
namespace {

using test::recording_resource;
using counts = std::vector<std::size_t>;

struct statistics : ::testing::Test {
  recording_resource upstream;
  statistics_resource resource{&upstream, "counted"};
};

// ---- frames ----

TEST_F(statistics, a_frame_counts_only_its_calls) {
  void* before = resource.allocate(1000);
  upstream.fail_from = upstream.calls;
  EXPECT_THROW((void)resource.allocate(1), std::bad_alloc);
  resource.push_counters();
  void* a = resource.allocate(64);
  void* b = resource.allocate(36);
  resource.deallocate(a, 64);
  upstream.fail_from = upstream.calls;
  EXPECT_THROW((void)resource.allocate(1), std::bad_alloc);
  const resource_stats frame = resource.pop_counters();
  EXPECT_EQ(test::visible(frame), (counts{2, 1, 1, 2, 36, 100, 100}));
  EXPECT_EQ(frame.refused, 1u);
  EXPECT_STREQ(frame.name, "counted");
  resource.deallocate(b, 36);
  resource.deallocate(before, 1000);
}

TEST_F(statistics, a_frame_has_no_peak_from_before_it) {
  resource.deallocate(resource.allocate(1000), 1000);
  resource.push_counters();
  resource.deallocate(resource.allocate(10), 10);
  EXPECT_EQ(resource.pop_counters().peak_bytes, 10u);
  EXPECT_EQ(resource.stats().peak_bytes, 1000u);
}

TEST_F(statistics, the_outer_frame_includes_the_inner) {
  resource.push_counters();
  resource.deallocate(resource.allocate(10), 10);
  resource.push_counters();
  resource.deallocate(resource.allocate(500), 500);
  EXPECT_EQ(resource.pop_counters().allocations, 1u);
  resource.deallocate(resource.allocate(20), 20);
  const resource_stats outer = resource.pop_counters();
  EXPECT_EQ(outer.allocations, 3u);
  EXPECT_EQ(outer.peak_bytes, 500u);
  EXPECT_EQ(outer.total_bytes, 530u);
}

TEST_F(statistics, peak_of_the_outer_frame_survives_an_inner_frame) {
  resource.push_counters();
  resource.deallocate(resource.allocate(500), 500);
  resource.push_counters();
  resource.deallocate(resource.allocate(10), 10);
  (void)resource.pop_counters();
  const resource_stats outer = resource.pop_counters();
  EXPECT_EQ(outer.peak_bytes, 500u);
  EXPECT_EQ(outer.peak_blocks, 1u);
}

TEST_F(statistics, stats_cover_the_whole_lifetime_with_open_frames) {
  resource.deallocate(resource.allocate(1000), 1000);
  resource.push_counters();
  resource.push_counters();
  EXPECT_EQ(resource.frames(), 2u);
  void* block = resource.allocate(10);
  EXPECT_EQ(resource.stats().peak_bytes, 1000u);
  EXPECT_EQ(resource.stats().peak_blocks, 1u);
  EXPECT_EQ(resource.stats().allocations, 2u);
  resource.deallocate(block, 10);
}

TEST_F(statistics, frame_uses_0_bytes_if_it_frees_more_than_it_allocates) {
  void* before = resource.allocate(1000);
  resource.push_counters();
  resource.deallocate(before, 1000);
  EXPECT_EQ(test::visible(resource.pop_counters()), (counts{0, 1, 0, 0, 0, 0, 0}));
}

TEST_F(statistics, pop_without_push_is_rejected_with_a_sentence) {
  resource.push_counters();
  (void)resource.pop_counters();
  EXPECT_STREQ(test::caught<std::logic_error>([&] { (void)resource.pop_counters(); }).what(),
               "statistics_resource 'counted': pop_counters without a push_counters before it");
}

// ---- threads ----

// T.1
TEST(statistics_resource, counts_calls_of_all_threads_exactly) {
  statistics_resource resource{std::pmr::new_delete_resource()};
  test::storm(resource);
  const resource_stats stats = resource.stats();
  EXPECT_EQ(stats.allocations, test::storm_threads * test::storm_rounds);
  EXPECT_EQ(stats.deallocations, stats.allocations);
  EXPECT_EQ(stats.used_blocks, 0u);
  EXPECT_EQ(stats.used_bytes, 0u);
  EXPECT_EQ(stats.total_bytes, 24 * stats.allocations);
  EXPECT_GE(stats.peak_blocks, 8u);
  EXPECT_LE(stats.peak_blocks, 8 * test::storm_threads);
  EXPECT_EQ(stats.peak_bytes % 24, 0u);  // of calls at the same time, bytes may see another order than blocks
  EXPECT_GE(stats.peak_bytes, 24 * 8u);
  EXPECT_LE(stats.peak_bytes, 24 * 8 * test::storm_threads);
}

TEST(statistics_resource, the_peak_of_threads_is_exact) {
  statistics_resource resource{std::pmr::new_delete_resource()};
  std::atomic<std::size_t> holding{0};
  test::on_threads([&](std::size_t) {
    void* block = resource.allocate(100);
    holding.fetch_add(1);
    while (holding.load() < test::storm_threads) std::this_thread::yield();  // all hold theirs now
    resource.deallocate(block, 100);
  });
  EXPECT_EQ(resource.stats().peak_blocks, test::storm_threads);
  EXPECT_EQ(resource.stats().peak_bytes, 100 * test::storm_threads);
}

TEST(statistics_resource, snapshots_are_consistent_during_calls) {
  statistics_resource resource{std::pmr::new_delete_resource()};
  std::atomic<bool> done{false};
  std::thread reader{[&] {
    while (!done.load()) {
      test::expect_consistent(resource.stats());
      resource.push_counters();
      EXPECT_LE(resource.pop_counters().peak_bytes, 24 * 8 * test::storm_threads);
    }
  }};
  test::storm(resource);
  done.store(true);
  reader.join();
  EXPECT_LE(resource.stats().peak_blocks, 8 * test::storm_threads);
}

TEST(statistics_resource, records_sizes_from_which_a_pools_classes_can_be_fitted) {
  size_histogram sizes;
  statistics_resource counted;
  counted.deallocate(counted.allocate(5), 5);
  counted.record_sizes(&sizes);
  for (int i = 0; i < 10; ++i) counted.deallocate(counted.allocate(700), 700);
  counted.record_sizes(nullptr);
  counted.deallocate(counted.allocate(40), 40);
  EXPECT_EQ(sizes.requests(), 10u);
  EXPECT_EQ(sizes.suggest_size_classes(), (std::vector<std::size_t>{704}));
}

}  // namespace
}  // namespace tidemark
