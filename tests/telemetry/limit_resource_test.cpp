// SPDX-License-Identifier: Apache-2.0
// Strategy: requests just below, at and above the limit; every failure compared with the state before it;
// threads that contend for the limit over an upstream that watches it.
#include <tidemark/telemetry/limit_resource.hpp>

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include <tidemark/telemetry/statistics_resource.hpp>

#include "calling_upstream.hpp"
#include "caught.hpp"
#include "recording_supply.hpp"
#include "telemetry_subjects.hpp"
#include "thread_storm.hpp"

namespace tidemark {
namespace {

using test::recording_resource;

struct limit : ::testing::Test {
  recording_resource upstream;
  limit_resource resource{&upstream, 100, "budget"};
};

// T.3
TEST_F(limit, serves_up_to_the_limit_to_the_byte) {
  void* a = resource.allocate(60);
  EXPECT_THROW((void)resource.allocate(41), out_of_memory);
  void* b = resource.allocate(40);
  EXPECT_THROW((void)resource.allocate(1), out_of_memory);
  resource.deallocate(a, 60);
  resource.deallocate(b, 40);
  resource.deallocate(resource.allocate(100), 100);
}

TEST_F(limit, refusal_never_calls_the_upstream_and_changes_only_refused) {
  void* block = resource.allocate(60);
  const auto before = test::visible(resource.stats());
  const std::size_t calls = upstream.calls;
  EXPECT_THROW((void)resource.allocate(41), out_of_memory);
  EXPECT_EQ(resource.stats().refused, 1u);
  EXPECT_EQ(test::visible(resource.stats()), before);
  EXPECT_EQ(upstream.calls, calls);
  resource.deallocate(block, 60);
}

TEST_F(limit, a_failure_has_all_the_numbers) {
  void* block = resource.allocate(60);
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)resource.allocate(41, 32); });
  EXPECT_STREQ(error.report().resource, "budget");
  EXPECT_EQ(error.report().requested_bytes, 41u);
  EXPECT_EQ(error.report().alignment, 32u);
  EXPECT_EQ(error.report().used_bytes, 60u);
  EXPECT_EQ(error.report().committed_bytes, 100u);
  EXPECT_EQ(error.report().reserved_bytes, 100u);
  EXPECT_EQ(error.report().largest_bytes, 40u);
  resource.deallocate(block, 60);
}

TEST_F(limit, a_failing_upstream_leaves_the_budget_unchanged) {
  upstream.fail_from = upstream.calls;
  EXPECT_THROW((void)resource.allocate(100), std::bad_alloc);
  EXPECT_EQ(resource.stats().refused, 1u);
  EXPECT_EQ(test::visible(resource.stats()), std::vector<std::size_t>(7, 0));
  resource.deallocate(resource.allocate(100), 100);
}

TEST_F(limit, sizes_near_size_max_do_not_wrap) {
  void* block = resource.allocate(60);
  constexpr std::size_t max_size = std::numeric_limits<std::size_t>::max();
  for (std::size_t less : {0u, 1u, 59u, 60u, 61u}) {
    EXPECT_THROW((void)static_cast<std::pmr::memory_resource&>(resource).allocate(max_size - less),
                 out_of_memory);
  }
  EXPECT_EQ(resource.stats().used_bytes, 60u);
  resource.deallocate(block, 60);
}

TEST_F(limit, blocks_of_0_bytes_cost_nothing) {
  void* all = resource.allocate(100);
  void* nothing = resource.allocate(0);
  EXPECT_NE(nothing, nullptr);
  resource.deallocate(nothing, 0);
  resource.deallocate(all, 100);
}

TEST_F(limit, a_raised_limit_serves_more) {
  EXPECT_EQ(resource.limit_bytes(), 100u);
  resource.set_limit(200);
  EXPECT_EQ(resource.limit_bytes(), 200u);
  resource.deallocate(resource.allocate(200), 200);
}

TEST_F(limit, limit_below_used_bytes_rejects_requests_until_enough_is_freed) {
  void* a = resource.allocate(60);
  void* b = resource.allocate(40);
  resource.set_limit(50);
  EXPECT_EQ(resource.stats().used_bytes, 100u);
  const out_of_memory error = test::caught<out_of_memory>([&] { (void)resource.allocate(1); });
  EXPECT_EQ(error.report().largest_bytes, 0u);
  resource.deallocate(a, 60);
  resource.deallocate(resource.allocate(10), 10);
  EXPECT_THROW((void)resource.allocate(11), out_of_memory);
  resource.deallocate(b, 40);
}

TEST(limit_resource, has_a_name_without_an_upstream) {
  limit_resource budget{8, "tape"};
  EXPECT_STREQ(budget.name(), "tape");
  EXPECT_EQ(budget.upstream_resource(), std::pmr::get_default_resource());
  EXPECT_STREQ((limit_resource{8, nullptr}.name()), "limit_resource");
  EXPECT_STREQ(statistics_resource{"counted"}.name(), "counted");
}

// T.3
TEST(limit_resource, threads_never_exceed_the_limit_and_lose_no_part_of_it) {
  statistics_resource counted{std::pmr::new_delete_resource()};
  test::calling_upstream upstream{&counted};
  upstream.on_deallocate = [] { std::this_thread::yield(); };
  limit_resource resource{&upstream, 10 * 24 + 7};
  const std::size_t refused = test::storm(resource);
  EXPECT_GT(refused, 0u);
  EXPECT_LE(counted.stats().peak_bytes, 10 * 24 + 7u);
  const resource_stats stats = resource.stats();
  EXPECT_EQ(stats.refused, refused);
  EXPECT_EQ(stats.allocations + refused, test::storm_threads * test::storm_rounds);
  EXPECT_EQ(stats.used_bytes, 0u);
  EXPECT_LE(stats.peak_bytes, 10 * 24u);
  resource.deallocate(resource.allocate(10 * 24 + 7), 10 * 24 + 7);
}

}  // namespace
}  // namespace tidemark
