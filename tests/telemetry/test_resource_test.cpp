// SPDX-License-Identifier: Apache-2.0
// Strategy: every misuse once, hidden from the sanitizers, with a handler that returns. The report must have
// the right kind, place and site, and everything must continue. Failure on demand is tested with counted
// requests.
#include <tidemark/telemetry/test_resource.hpp>

#include <gtest/gtest.h>

#include <limits>
#include <list>
#include <optional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <vector>

#include <tidemark/core/allocation_site.hpp>
#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/telemetry/limit_resource.hpp>

#include "caught.hpp"
#include "contains.hpp"
#include "recording_supply.hpp"
#include "telemetry_subjects.hpp"
#include "thread_storm.hpp"
#include "unseen_write.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

/// A test resource that can be destroyed early, over an upstream that compares returned blocks.
struct tested : ::testing::Test {
  violation_recorder recorder;
  recording_resource upstream;
  std::optional<test_resource> whole{std::in_place, &upstream, "t"};
  test_resource& resource = *whole;

  std::string last() const { return recorder.reports().empty() ? "" : recorder.reports().back().message; }
  std::size_t overruns() const { return violation_recorder::count(violation_kind::overrun); }
  std::size_t bad_deallocations() const { return violation_recorder::count(violation_kind::bad_deallocate); }
};
using test_guards = tested;
using test_quarantine = tested;
using test_deallocation = tested;
using test_leak = tested;
using test_failing = tested;
using fail_each = tested;

// ---- right use ----

TEST_F(tested, blocks_are_aligned_with_their_guards_before_them) {
  for (std::size_t align = 1; align <= 4096; align *= 2) {
    void* block = resource.allocate(10, align);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % align, 0u);
    for (std::ptrdiff_t i = 1; i <= 16; ++i) EXPECT_EQ(read_unseen(block, -i), test_resource::guard_fill);
    for (std::ptrdiff_t i = 0; i < 16; ++i) EXPECT_EQ(read_unseen(block, 10 + i), test_resource::guard_fill);
    resource.deallocate(block, 10, align);
  }
}

TEST_F(tested, freed_memory_holds_a_pattern) {
  void* block = resource.allocate(100);
  resource.deallocate(block, 100);
  for (std::ptrdiff_t i = 0; i < 100; ++i) ASSERT_EQ(read_unseen(block, i), 0xDD);
}

TEST_F(tested, an_alignment_that_is_not_a_power_of_two_is_rejected_with_a_sentence) {
  std::pmr::memory_resource& as_pmr = resource;
  for (std::size_t align : {std::size_t{0}, std::size_t{3}, std::size_t{24}}) {
    EXPECT_EQ(test::caught<std::invalid_argument>([&] { (void)as_pmr.allocate(8, align); }).what(),
              "test_resource 't': alignment " + std::to_string(align) + " is not a power of two");
  }
  EXPECT_EQ(resource.stats().refused, 3u);
}

TEST_F(tested, rejects_sizes_that_overflow_with_guards) {
  std::pmr::memory_resource& as_pmr = resource;
  constexpr std::size_t max_size = std::numeric_limits<std::size_t>::max();
  for (std::size_t bytes : {max_size, max_size - 32, max_size / 2, max_size / 2 - 31}) {
    EXPECT_THROW((void)as_pmr.allocate(bytes, 16), out_of_memory) << bytes;
  }
  std::size_t volatile largest_power = max_size / 2 + 1;  // compilers know that it cannot be served
  EXPECT_THROW((void)as_pmr.allocate(1, largest_power), out_of_memory);
  EXPECT_EQ(upstream.calls, 0u);
}

TEST_F(tested, returns_its_options_and_rejects_too_many_guard_bytes) {
  EXPECT_EQ(resource.options().guard_bytes, 16u);
  EXPECT_THROW(test_resource{test_resource_options{.guard_bytes = 4097}}, std::invalid_argument);
}

TEST_F(tested, passes_upstream_blocks_on_without_guards_and_quarantine) {
  test_resource bare{&upstream, {.guard_bytes = 0, .quarantine_bytes = 0}};
  void* block = bare.allocate(100, 8);
  EXPECT_EQ(upstream.outstanding, 100u);
  bare.deallocate(block, 100, 8);
  EXPECT_EQ(upstream.outstanding, 0u);
}

// ---- guards ----

// T.10
TEST_F(test_guards, reports_a_byte_written_past_a_block_at_its_deallocation) {
  const unsigned line = std::source_location::current().line() + 1;
  void* block = resource.allocate(64);
  write_unseen(block, 66, 1);
  resource.deallocate(block, 64);
  ASSERT_EQ(overruns(), 1u);
  EXPECT_PRED2(test::begins_with, last(),
               "test_resource 't': overrun: a byte behind the block was written, at offset 66, now 0x01: "
               "64 bytes aligned to 16 at 0x");
  EXPECT_PRED2(test::contains, last(), "test_resource_test.cpp:" + std::to_string(line));
}

// T.10
TEST_F(test_guards, are_watched_from_the_first_byte_to_the_last_on_both_sides) {
  for (const std::ptrdiff_t offset : {-16, -1, 5, 20}) {
    void* block = resource.allocate(5);
    write_unseen(block, offset, 0);
    const std::size_t before = overruns();
    resource.deallocate(block, 5);
    EXPECT_EQ(overruns(), before + 1) << offset;
    EXPECT_PRED2(test::contains, last(),
                 std::string{"a byte "} + (offset < 0 ? "before" : "behind") +
                     " the block was written, at offset " + std::to_string(offset) + ",");
  }
  void* block = resource.allocate(64);
  write_unseen(block, -1, 1);
  write_unseen(block, 64, 1);
  resource.deallocate(block, 64);
  EXPECT_EQ(overruns(), 6u) << "one on each side";
}

TEST_F(test_guards, are_checked_on_demand_and_reported_once) {
  void* a = resource.allocate(64);
  void* b = resource.allocate(64);
  EXPECT_EQ(resource.check_guards(), 0u);
  write_unseen(a, 64, 1);
  write_unseen(b, 64, 1);
  EXPECT_EQ(resource.check_guards(), 2u);
  EXPECT_EQ(overruns(), 2u);
  EXPECT_EQ(resource.check_guards(), 0u);
  resource.deallocate(a, 64);
  resource.deallocate(b, 64);
  EXPECT_EQ(overruns(), 2u);
}

TEST_F(test_guards, are_checked_at_destruction) {
  void* block = resource.allocate(64);
  write_unseen(block, 64, 1);
  whole.reset();
  EXPECT_EQ(overruns(), 1u);
  EXPECT_EQ(violation_recorder::count(violation_kind::leak), 1u);
}

// ---- quarantine ----

TEST_F(test_quarantine, delays_reuse_of_a_freed_block) {
  void* block = resource.allocate(64);
  resource.deallocate(block, 64);
  void* other = resource.allocate(64);
  EXPECT_NE(other, block);
  EXPECT_EQ(resource.quarantined_bytes(), 64 + 2 * 16u);
  EXPECT_EQ(upstream.outstanding, 2 * (64 + 2 * 16u));
  resource.deallocate(other, 64);
}

TEST_F(test_quarantine, a_write_after_free_is_reported_on_demand) {
  void* block = resource.allocate(64);
  resource.deallocate(block, 64);
  write_unseen(block, 5, 1);
  EXPECT_EQ(resource.check_guards(), 1u);
  ASSERT_EQ(overruns(), 1u);
  EXPECT_PRED2(test::contains, last(),
               "test_resource 't': write after free: a byte was written, at offset 5, now 0x01: 64 bytes");
  EXPECT_EQ(resource.check_guards(), 0u) << "each place is reported once";
}

// T.10
TEST_F(test_quarantine, a_write_after_free_is_reported_when_the_block_leaves) {
  void* block = resource.allocate(64);
  resource.deallocate(block, 64);
  write_unseen(block, 63, 1);
  resource.empty_quarantine();
  EXPECT_EQ(overruns(), 1u);
  EXPECT_EQ(resource.quarantined_bytes(), 0u);
  EXPECT_EQ(upstream.outstanding, 0u);
}

TEST_F(test_quarantine, check_guards_counts_a_block_once_if_a_guard_is_written_after_free) {
  void* block = resource.allocate(64);
  resource.deallocate(block, 64);
  write_unseen(block, 64, 1);
  EXPECT_EQ(resource.check_guards(), 1u);
  EXPECT_EQ(overruns(), 1u);
  write_unseen(block, 5, 1);
  write_unseen(block, -1, 1);
  EXPECT_EQ(resource.check_guards(), 1u);
  EXPECT_EQ(overruns(), 3u);
  EXPECT_EQ(resource.check_guards(), 0u);
}

TEST_F(test_quarantine, is_bounded_and_evicts_the_oldest_first) {
  test_resource small{&upstream, {.guard_bytes = 16, .quarantine_bytes = 200}};
  void* a = small.allocate(32);
  void* b = small.allocate(32);
  void* c = small.allocate(64);
  small.deallocate(a, 32);
  write_unseen(a, 0, 1);
  small.deallocate(b, 32);
  write_unseen(b, 1, 1);
  EXPECT_EQ(small.quarantined_bytes(), 128u);
  EXPECT_EQ(overruns(), 0u);
  small.deallocate(c, 64);
  EXPECT_EQ(small.quarantined_bytes(), 64 + 96u);
  ASSERT_EQ(overruns(), 1u);
  EXPECT_PRED2(test::contains, last(), "at offset 0,");
}

TEST_F(test_quarantine, holds_a_block_of_exactly_its_size) {
  test_resource small{&upstream, {.guard_bytes = 16, .quarantine_bytes = 96}};
  small.deallocate(small.allocate(64), 64);
  EXPECT_EQ(small.quarantined_bytes(), 96u);
}

TEST_F(test_quarantine, a_block_too_large_for_it_displaces_no_other) {
  void* block = resource.allocate(64);
  resource.deallocate(block, 64);
  resource.deallocate(resource.allocate(64 * KiB), 64 * KiB);
  EXPECT_EQ(resource.quarantined_bytes(), 96u);
  EXPECT_EQ(upstream.outstanding, 96u);
}

TEST_F(test_quarantine, holds_no_block_of_0_bytes) {
  for (std::size_t quarantine_bytes : {std::size_t{0}, 64 * KiB}) {
    test_resource bare{&upstream, {.guard_bytes = 0, .quarantine_bytes = quarantine_bytes}};
    void* const block = bare.allocate(0);
    bare.deallocate(block, 0);
    EXPECT_FALSE(upstream.holds(block)) << "with " << quarantine_bytes << " bytes for the quarantine";
  }
}

TEST_F(test_quarantine, is_emptied_when_the_upstream_is_exhausted) {
  limit_resource limited{&upstream, 200};
  test_resource waiting{&limited, {.guard_bytes = 0}};
  waiting.deallocate(waiting.allocate(150), 150);
  EXPECT_EQ(waiting.quarantined_bytes(), 150u);
  waiting.deallocate(waiting.allocate(100), 100);
  EXPECT_EQ(waiting.quarantined_bytes(), 100u);
  EXPECT_EQ(waiting.stats().refused, 0u);
}

// ---- invalid deallocations ----

// T.11
TEST_F(test_deallocation, reports_and_ignores_invalid_arguments) {
  auto* const block = static_cast<std::byte*>(resource.allocate(64, 32));
  auto* const freed = static_cast<std::byte*>(resource.allocate(8));
  resource.deallocate(freed, 8);
  std::byte foreign{};
  struct wrong {
    std::byte* block;
    std::size_t bytes, align;
    char const* text;
  };
  const auto before = test::visible(resource.stats());
  for (wrong const& each :
       {wrong{freed, 8, 16, "test_resource 't': double free"}, wrong{block, 65, 32, "wrong size: 65 bytes"},
        wrong{block, 64, 16, "64 bytes aligned to 16"},
        wrong{block + 16, 48, 16, "lies 16 bytes inside a block of 64 bytes"},
        wrong{&foreign, 1, 1, "foreign pointer"}}) {
    recorder.reports().clear();
    resource.deallocate(each.block, each.bytes, each.align);
    EXPECT_EQ(bad_deallocations(), 1u) << each.text;
    EXPECT_PRED2(test::contains, last(), each.text);
    EXPECT_EQ(test::visible(resource.stats()), before) << each.text;
  }
  resource.deallocate(block, 64, 32);
  EXPECT_EQ(bad_deallocations(), 1u);
}

// ---- leaks ----

// T.12
TEST_F(test_leak, is_reported_with_its_site_and_freed_at_destruction) {
  const unsigned line = std::source_location::current().line() + 1;
  (void)resource.allocate(64);
  EXPECT_EQ(resource.leaks().size(), 1u);
  whole.reset();
  ASSERT_EQ(recorder.reports().size(), 1u);
  EXPECT_EQ(recorder.reports()[0].kind, violation_kind::leak);
  EXPECT_PRED2(test::begins_with, last(),
               "test_resource 't': leak: 1 block of 64 bytes was not deallocated: 64 bytes aligned to 16");
  EXPECT_PRED2(test::contains, last(), "test_resource_test.cpp:" + std::to_string(line));
  EXPECT_EQ(upstream.outstanding, 0u);
}

// T.12
TEST_F(test_leak, through_std_pmr_carries_the_label_of_the_allocation_site) {
  {
    const allocation_site here{"parsing"};
    (void)static_cast<std::pmr::memory_resource&>(resource).allocate(64);
  }
  EXPECT_STREQ(resource.leaks()[0].label, "parsing");
  whole.reset();
  EXPECT_PRED2(test::contains, last(), "(parsing)");
}

TEST_F(test_leak, returns_over_aligned_blocks_to_the_upstream) {
  (void)resource.allocate(10, 1024);
  (void)resource.allocate(0, 1);
  whole.reset();
  EXPECT_EQ(upstream.outstanding, 0u);
}

// ---- failing on demand ----

// T.8
TEST_F(test_failing, fails_only_the_nth_request) {
  resource.deallocate(resource.allocate(8), 8);
  resource.fail_allocation(3);
  for (int i = 1; i <= 5; ++i) {
    if (i == 3) EXPECT_THROW((void)resource.allocate(8), out_of_memory);
    else resource.deallocate(resource.allocate(8), 8);
  }
  EXPECT_EQ(resource.injected_failures(), 1u);
  EXPECT_EQ(resource.stats().refused, 1u);
  EXPECT_EQ(resource.stats().allocations, 5u);
}

TEST_F(test_failing, reports_the_injected_failure) {
  void* const block = resource.allocate(100);
  resource.fail_allocation(2);
  resource.deallocate(resource.allocate(8), 8);
  {
    const out_of_memory error = test::caught<out_of_memory>([&] { (void)resource.allocate(48, 32); });
    EXPECT_STREQ(
        error.what(),
        "t: out of memory: 48 bytes aligned to 32 requested, 100 used of 100 committed and 100 "
        "reserved; the largest that would fit is 0 bytes; the test_resource was configured to fail it");
    EXPECT_EQ(upstream.calls, 2u) << "no call for this block";
  }
  {
    const out_of_memory error = test::caught<out_of_memory>(
        [&] { (void)resource.allocate(std::numeric_limits<std::size_t>::max()); });
    EXPECT_PRED2(test::begins_with, error.what(), "t: out of memory: ");
    EXPECT_STREQ(error.report().because, "");
  }
  resource.deallocate(block, 100);
}

// T.8
TEST_F(test_failing, fails_every_request_from_the_nth_until_stopped) {
  resource.fail_allocations_from(2);
  resource.deallocate(resource.allocate(8), 8);
  for (int i = 0; i < 5; ++i) EXPECT_THROW((void)resource.allocate(8), out_of_memory);
  EXPECT_EQ(resource.injected_failures(), 5u);
  resource.stop_failing();
  resource.deallocate(resource.allocate(8), 8);
}

TEST_F(test_failing, new_call_replaces_the_earlier_call) {
  resource.fail_allocations_from(1);
  resource.fail_allocation(2);
  resource.deallocate(resource.allocate(8), 8);
  EXPECT_THROW((void)resource.allocate(8), out_of_memory);
  resource.deallocate(resource.allocate(8), 8);
}

TEST_F(test_failing, rejects_0_as_the_number_of_a_request) {
  EXPECT_THROW(resource.fail_allocation(0), std::invalid_argument);
  EXPECT_THROW(resource.fail_allocations_from(0), std::invalid_argument);
  resource.deallocate(resource.allocate(8), 8);
  resource.fail_allocations_from(std::numeric_limits<std::uint64_t>::max());
  resource.deallocate(resource.allocate(8), 8);
}

// ---- fail_each_allocation ----

// T.9
TEST_F(fail_each, runs_the_body_once_more_than_it_allocates) {
  int runs = 0, completed = 0;
  const std::size_t failures = fail_each_allocation(resource, [&] {
    ++runs;
    std::pmr::list<int> values{&resource};
    for (int i = 0; i < 5; ++i) values.push_back(i);
    ++completed;
  });
  EXPECT_EQ(failures, 5u);
  EXPECT_EQ(runs, 6);
  EXPECT_EQ(completed, 1);
  EXPECT_TRUE(recorder.reports().empty());
}

// T.9
TEST_F(fail_each, a_leak_in_a_failure_path_is_reported_with_its_run_and_site) {
  unsigned line = 0;
  fail_each_allocation(resource, [&] {
    line = std::source_location::current().line() + 1;
    void* first = resource.allocate(40);
    void* second = resource.allocate(50);  // if this fails, `first` is lost
    resource.deallocate(second, 50);
    resource.deallocate(first, 40);
  });
  ASSERT_EQ(recorder.reports().size(), 1u);
  EXPECT_EQ(recorder.reports()[0].kind, violation_kind::leak);
  EXPECT_PRED2(
      test::begins_with, last(),
      "test_resource 't': fail_each_allocation: run 2, in which that request failed: leak: 1 block of "
      "40 bytes was not deallocated: 40 bytes");
  EXPECT_PRED2(test::contains, last(), "test_resource_test.cpp:" + std::to_string(line));
}

TEST_F(fail_each, a_block_that_takes_the_place_of_another_is_not_a_leak) {
  std::pmr::vector<int> outside(10, 1, &resource);
  fail_each_allocation(resource, [&] {
    outside.clear();
    outside.shrink_to_fit();
    outside.assign(10, 1);
  });
  EXPECT_TRUE(recorder.reports().empty());
}

TEST_F(fail_each, a_leak_is_reported_once_with_the_blocks_of_its_run_that_are_live) {
  const std::pmr::vector<int> untouched(10, 1, &resource);
  std::pmr::vector<int> outside(10, 1, &resource);
  fail_each_allocation(resource, [&] {
    outside.clear();
    outside.shrink_to_fit();
    outside.assign(10, 1);
    void* first = resource.allocate(40);
    void* second = resource.allocate(50);  // if this, the third, fails, `first` is lost
    resource.deallocate(second, 50);
    resource.deallocate(first, 40);
  });
  ASSERT_EQ(recorder.reports().size(), 1u);
  EXPECT_PRED2(test::contains, last(), "run 3, in which that request failed: leak: 2 blocks of 80 bytes");
}

TEST_F(fail_each, other_exceptions_pass_with_failing_switched_off) {
  const auto body = [&] {
    try {
      resource.deallocate(resource.allocate(8), 8);
    } catch (std::bad_alloc const&) {
      throw std::runtime_error{"translated"};
    }
  };
  EXPECT_THROW(fail_each_allocation(resource, body), std::runtime_error);
  resource.deallocate(resource.allocate(8), 8);
}

// T.9
TEST_F(fail_each, rejects_a_body_that_changes_the_failing_request) {
  const auto sentence_of = [&](auto meddle) {
    const auto body = [&] {
      meddle();
      try {
        resource.deallocate(resource.allocate(8), 8);
      } catch (std::bad_alloc const&) {
      }
    };
    return test::message_of<std::logic_error>([&] { fail_each_allocation(resource, body); });
  };
  const std::string sentence =
      "test_resource 't': fail_each_allocation: in run 1 the body has changed which allocation fails; leave "
      "that to the loop";
  EXPECT_EQ(sentence_of([&] { resource.stop_failing(); }), sentence);
  EXPECT_EQ(sentence_of([&] { resource.fail_allocation(2); }), sentence);
  EXPECT_EQ(sentence_of([&] { resource.fail_allocations_from(1); }), sentence);
  EXPECT_EQ(sentence_of([&] { fail_each_allocation(resource, [] {}); }), sentence);
  resource.deallocate(resource.allocate(8), 8);
}

TEST_F(fail_each, a_bad_alloc_that_was_not_injected_passes) {
  EXPECT_THROW(fail_each_allocation(resource, [] { throw std::bad_alloc{}; }), std::bad_alloc);
}

TEST_F(fail_each, the_loop_is_bounded_with_a_clear_error) {
  int runs = 0;
  const auto body = [&] {
    ++runs;
    for (int i = 0; i < 5; ++i) resource.deallocate(resource.allocate(8), 8);
  };
  const std::logic_error error =
      test::caught<std::logic_error>([&] { fail_each_allocation(resource, body, 5); });
  EXPECT_STREQ(error.what(),
               "test_resource 't': fail_each_allocation: an allocation still failed in run 5; pass a "
               "larger max_runs "
               "if the body allocates that often");
  EXPECT_EQ(runs, 5);
  EXPECT_EQ(fail_each_allocation(resource, body, 6), 5u);
}

// ---- threads ----

TEST(test_resource, counts_calls_of_all_threads_exactly) {
  test_resource resource{std::pmr::new_delete_resource()};
  test::storm(resource);
  EXPECT_EQ(resource.stats().allocations, test::storm_threads * test::storm_rounds);
  EXPECT_EQ(resource.stats().used_bytes, 0u);
  EXPECT_TRUE(resource.leaks().empty());
  EXPECT_EQ(resource.check_guards(), 0u);
}

// T.8
TEST(test_resource, one_request_of_all_threads_fails) {
  test_resource resource{std::pmr::new_delete_resource()};
  resource.fail_allocation(test::storm_rounds);
  EXPECT_EQ(test::storm(resource), 1u);
}

}  // namespace
}  // namespace tidemark::test
