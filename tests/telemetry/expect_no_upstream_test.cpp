// SPDX-License-Identifier: Apache-2.0
// Strategy: allocations inside and outside of quiet periods, with a handler that returns.
#include <tidemark/telemetry/expect_no_upstream.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <memory_resource>
#include <vector>

#include "recording_supply.hpp"
#include "telemetry_subjects.hpp"
#include "thread_storm.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

struct no_upstream : ::testing::Test {
  violation_recorder recorder;
  recording_resource upstream;
  expect_no_upstream resource{&upstream, "below the pool"};

  void use_once() { resource.deallocate(resource.allocate(64), 64); }
};

// T.4
TEST_F(no_upstream, an_allocation_in_a_period_is_reported_with_name_size_and_alignment) {
  const auto period = resource.expect_none();
  void* block = resource.allocate(48, 32);
  EXPECT_EQ(recorder.only(violation_kind::upstream_use),
            "expect_no_upstream 'below the pool': 48 bytes aligned to 32 are allocated from the "
            "upstream in a quiet period");
  resource.deallocate(block, 48, 32);
}

TEST_F(no_upstream, if_the_handler_returns_the_allocation_is_served_and_counted) {
  const auto period = resource.expect_none();
  std::pmr::vector<int> v(10, 7, &resource);
  EXPECT_EQ(v[9], 7);
  EXPECT_EQ(resource.unexpected(), 1u);
  EXPECT_EQ(resource.stats().used_bytes, 10 * sizeof(int));
}

TEST_F(no_upstream, deallocation_in_a_period_is_allowed) {
  void* block = resource.allocate(64);
  const auto period = resource.expect_none();
  resource.deallocate(block, 64);
  EXPECT_TRUE(recorder.reports().empty());
  EXPECT_EQ(period.unexpected(), 0u);
  EXPECT_EQ(resource.stats().deallocations, 1u);
}

TEST_F(no_upstream, periods_nest) {
  const auto outer = resource.expect_none();
  use_once();
  {
    const auto inner = resource.expect_none();
    use_once();
    EXPECT_EQ(inner.unexpected(), 1u);
  }
  use_once();
  EXPECT_EQ(outer.unexpected(), 3u);
  EXPECT_EQ(resource.unexpected(), 3u);
}

TEST_F(no_upstream, periods_may_end_in_any_order) {
  auto first = std::unique_ptr<expect_no_upstream::quiet_period>{
      new expect_no_upstream::quiet_period{resource.expect_none()}};
  const auto second = resource.expect_none();
  first.reset();
  use_once();
  EXPECT_EQ(second.unexpected(), 1u);
}

TEST_F(no_upstream, a_refused_allocation_in_a_period_counts_too) {
  const auto period = resource.expect_none();
  upstream.fail_from = upstream.calls;
  EXPECT_THROW((void)resource.allocate(64), std::bad_alloc);
  EXPECT_EQ(period.unexpected(), 1u);
  EXPECT_EQ(resource.stats().refused, 1u);
  EXPECT_EQ(test::visible(resource.stats()), std::vector<std::size_t>(7, 0));
}

// T.4
TEST_F(no_upstream, shows_that_a_warm_pool_allocates_nothing) {
  std::pmr::unsynchronized_pool_resource pool{&resource};
  pool.deallocate(pool.allocate(64), 64);
  const auto period = resource.expect_none();
  pool.deallocate(pool.allocate(64), 64);
  EXPECT_EQ(period.unexpected(), 0u);
}

void ignore(violation const&) {}

TEST(expect_no_upstream, counts_allocations_of_other_threads) {
  const violation_handler before = set_violation_handler(ignore);
  expect_no_upstream resource{std::pmr::new_delete_resource()};
  test::storm(resource);
  EXPECT_EQ(resource.unexpected(), 0u);
  {
    const auto period = resource.expect_none();
    test::storm(resource);
    EXPECT_EQ(period.unexpected(), test::storm_threads * test::storm_rounds);
  }
  EXPECT_EQ(resource.stats().allocations, 2 * test::storm_threads * test::storm_rounds);
  EXPECT_EQ(resource.stats().used_blocks, 0u);
  set_violation_handler(before);
}

}  // namespace
}  // namespace tidemark::test
