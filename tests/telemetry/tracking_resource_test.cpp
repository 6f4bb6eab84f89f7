// SPDX-License-Identifier: Apache-2.0
// Strategy: the records after each call, and the source of a site. Each wrong call is reported and harmless.
#include <tidemark/telemetry/tracking_resource.hpp>

#include <gtest/gtest.h>

#include <source_location>
#include <string>
#include <vector>

#include <tidemark/core/allocation_site.hpp>

#include "contains.hpp"
#include "recording_supply.hpp"
#include "telemetry_subjects.hpp"
#include "thread_storm.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

struct tracking : ::testing::Test {
  violation_recorder recorder;
  recording_resource upstream;
  tracking_resource resource{&upstream, "weights"};

  std::pmr::memory_resource& as_pmr() { return resource; }
  std::string last() const { return recorder.reports().empty() ? "" : recorder.reports().back().message; }
};

std::string line_number(unsigned line) { return ":" + std::to_string(line); }

// ---- records ----

TEST_F(tracking, a_live_block_is_recorded_until_it_is_deallocated) {
  void* a = resource.allocate(100, 32);
  ASSERT_EQ(resource.leaks().size(), 1u);
  const live_block block = resource.leaks()[0];
  EXPECT_EQ(block.address, a);
  EXPECT_EQ(block.bytes, 100u);
  EXPECT_EQ(block.align, 32u);
  EXPECT_EQ(block.number, 1u);
  resource.deallocate(a, 100, 32);
  EXPECT_TRUE(resource.leaks().empty());
  EXPECT_TRUE(recorder.reports().empty());
}

TEST_F(tracking, leaks_are_listed_oldest_first) {
  std::vector<void*> blocks;
  for (std::size_t i = 0; i < 50; ++i) blocks.push_back(resource.allocate(50 - i));
  const std::vector<live_block> leaks = resource.leaks();
  ASSERT_EQ(leaks.size(), 50u);
  for (std::size_t i = 0; i < 50; ++i) {
    EXPECT_EQ(leaks[i].address, blocks[i]);
    EXPECT_EQ(leaks[i].number, i + 1);
    resource.deallocate(blocks[i], 50 - i);
  }
}

TEST_F(tracking, a_failing_upstream_leaves_no_record) {
  upstream.fail_from = upstream.calls;
  EXPECT_THROW((void)resource.allocate(64), std::bad_alloc);
  EXPECT_TRUE(resource.leaks().empty());
}

// ---- sites ----

TEST_F(tracking, a_direct_call_is_its_own_site) {
  const unsigned line = std::source_location::current().line() + 1;
  void* block = resource.allocate(64);
  EXPECT_EQ(resource.leaks()[0].site.line(), line);
  EXPECT_PRED2(test::contains, resource.leaks()[0].site.file_name(), "tracking_resource_test.cpp");
  EXPECT_STREQ(resource.leaks()[0].label, "");
  resource.deallocate(block, 64);
}

TEST_F(tracking, through_std_pmr_the_site_is_unknown) {
  void* block = as_pmr().allocate(64);
  EXPECT_EQ(resource.leaks()[0].site.line(), 0u);
  as_pmr().deallocate(block, 64);
}

// T.2
TEST_F(tracking, through_std_pmr_an_allocation_site_names_it) {
  const unsigned line = std::source_location::current().line() + 1;
  const allocation_site here{"loading weights"};
  const std::pmr::vector<float> weights(10, &resource);
  ASSERT_EQ(resource.leaks().size(), 1u);
  EXPECT_EQ(resource.leaks()[0].site.line(), line);
  EXPECT_STREQ(resource.leaks()[0].label, "loading weights");
}

TEST_F(tracking, a_direct_call_keeps_its_place_and_takes_the_label) {
  const allocation_site here{"loading weights"};
  const unsigned line = std::source_location::current().line() + 1;
  void* block = resource.allocate(64);
  EXPECT_EQ(resource.leaks()[0].site.line(), line);
  EXPECT_STREQ(resource.leaks()[0].label, "loading weights");
  resource.deallocate(block, 64);
}

TEST_F(tracking, inner_allocation_site_applies_until_it_ends) {
  const allocation_site outer{"outer"};
  {
    const allocation_site inner{"inner"};
    EXPECT_EQ(allocation_site::innermost(), &inner);
  }
  EXPECT_EQ(allocation_site::innermost(), &outer);
}

TEST_F(tracking, allocation_sites_may_end_in_any_order) {
  auto* first = new allocation_site{"first"};
  auto* second = new allocation_site{"second"};
  delete first;
  EXPECT_EQ(allocation_site::innermost(), second);
  delete second;
  EXPECT_EQ(allocation_site::innermost(), nullptr);
}

TEST_F(tracking, an_allocation_site_is_its_threads_own) {
  const allocation_site here{"this thread"};
  std::thread{[] { EXPECT_EQ(allocation_site::innermost(), nullptr); }}.join();
}

// ---- reports ----

struct tracking_leak : ::testing::Test {
  violation_recorder recorder;
  std::pmr::monotonic_buffer_resource upstream;  // has its memory back in the end, whatever leaks above it
};

// T.2
TEST_F(tracking_leak, blocks_are_reported_at_destruction_with_count_bytes_and_sites) {
  unsigned line = 0;
  {
    tracking_resource resource{&upstream, "weights"};
    line = std::source_location::current().line() + 1;
    (void)resource.allocate(64);
    const allocation_site here{"here"};
    (void)resource.allocate(36);
  }
  const std::string message = recorder.only(violation_kind::leak);
  EXPECT_PRED2(test::begins_with, message,
               "tracking_resource 'weights': leak: 2 blocks of 100 bytes were not deallocated: 64 bytes");
  EXPECT_PRED2(test::contains, message, line_number(line));
}

TEST_F(tracking_leak, names_the_oldest_blocks_and_counts_the_others) {
  {
    tracking_resource resource{&upstream, "w"};
    for (int i = 0; i < 100; ++i) (void)static_cast<std::pmr::memory_resource&>(resource).allocate(8, 8);
  }
  ASSERT_EQ(recorder.reports().size(), 1u);
  std::string const& message = recorder.reports()[0].message;
  EXPECT_PRED2(test::contains, message, "leak: 100 blocks of 800 bytes were not deallocated");
  EXPECT_LT(message.find("request 1,"), message.find("request 2,")) << message;
  EXPECT_PRED2(test::contains, message, "request 4, from an unknown place; and 96 more");
}

TEST_F(tracking_leak, a_very_long_file_name_does_not_overrun_the_message) {
  {
    tracking_resource resource{&upstream, "w"};
    static const std::string label(2000, 'x');
    const allocation_site here{label.c_str()};
    for (int i = 0; i < 3; ++i) (void)resource.allocate(8, 8);
  }
  ASSERT_EQ(recorder.reports().size(), 1u);
  EXPECT_LE(recorder.reports()[0].message.size(), 511u);
  EXPECT_PRED2(test::contains, recorder.reports()[0].message, "; and 2 more");
}

TEST_F(tracking, a_double_free_is_reported_and_does_nothing) {
  void* block = resource.allocate(64);
  resource.deallocate(block, 64);
  const auto before = test::visible(resource.stats());
  resource.deallocate(block, 64);
  EXPECT_PRED2(test::contains, last(), "tracking_resource 'weights': double free");
  EXPECT_EQ(violation_recorder::count(violation_kind::bad_deallocate), 1u);
  EXPECT_EQ(test::visible(resource.stats()), before);
}

tracking_resource* read_by_handler = nullptr;
std::size_t seen_by_handler = 0;
void read_leaks(violation const&) { seen_by_handler = read_by_handler->leaks().size(); }

TEST(tracking_resource, a_handler_may_read_the_resource) {
  tracking_resource resource{std::pmr::new_delete_resource()};
  void* block = resource.allocate(64);
  read_by_handler = &resource;
  const violation_handler before = set_violation_handler(read_leaks);
  resource.deallocate(block, 1);
  set_violation_handler(before);
  EXPECT_EQ(seen_by_handler, 1u);
  resource.deallocate(block, 64);
}

TEST(tracking_resource, counts_calls_of_all_threads_exactly) {
  tracking_resource resource{std::pmr::new_delete_resource()};
  test::storm(resource);
  EXPECT_EQ(resource.stats().allocations, test::storm_threads * test::storm_rounds);
  EXPECT_EQ(resource.stats().used_bytes, 0u);
  EXPECT_TRUE(resource.leaks().empty());
}

}  // namespace
}  // namespace tidemark::test
