// SPDX-License-Identifier: Apache-2.0
// Strategy: the record of one chunk by itself, with a tool that knows the rules. Addresses are small
// numbers, because they are never touched: heaps at 1000, 2000, …, blocks in them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tidemark/diagnose/detail/device_marks.hpp>

#include "strict_tool.hpp"

namespace {

using namespace tidemark::detail;
using tidemark::test::strict_tool;
using calls_type = std::vector<std::string>;
using regions_type = strict_tool::regions_type;

class device_marks_of_a_chunk : public ::testing::Test {
 protected:
  void come(std::uintptr_t first, std::uintptr_t last) {
    ASSERT_TRUE(marks.reserve());
    marks.on_commit(first, last, "step");
  }
  void on_allocate(std::uintptr_t block, std::size_t bytes) {
    ASSERT_TRUE(marks.reserve());
    marks.on_allocate(block, bytes);
  }
  void TearDown() override {
    marks.on_free(0);
    marks.on_decommit(0);
  }

  strict_tool tool;
  device_marks marks;
};

TEST_F(device_marks_of_a_chunk, memory_that_came_in_steps_is_a_heap_for_each) {
  come(1000, 2000);
  come(2000, 5000);
  EXPECT_EQ(tool.heaps(), (std::vector<strict_tool::heap>{{1000, 1000, "step"}, {2000, 3000, "step"}}));
}

TEST_F(device_marks_of_a_chunk, a_block_in_several_heaps_is_a_region_of_each) {
  come(1000, 2000);
  come(2000, 3000);
  come(3000, 4000);
  on_allocate(1900, 1200);
  EXPECT_EQ(tool.regions(), (regions_type{{1900, 100}, {2000, 1000}, {3000, 100}}));
}

TEST_F(device_marks_of_a_chunk, a_block_of_no_bytes_does_not_count) {
  come(1000, 2000);
  on_allocate(1000, 0);
  EXPECT_TRUE(tool.regions().empty());
  marks.on_free(1000);
}

TEST_F(device_marks_of_a_chunk, taking_back_closes_the_regions_at_the_cursor_and_above) {
  come(1000, 2000);
  for (std::uintptr_t block = 1000; block < 1500; block += 100) on_allocate(block, 50);
  tool.calls.clear();
  marks.on_free(1200);
  EXPECT_EQ(tool.regions(), (regions_type{{1000, 50}, {1100, 50}}));
  EXPECT_EQ(tool.calls, (calls_type{"close_regions 3"}));
}

TEST_F(device_marks_of_a_chunk, taking_back_all_resets_the_heap_in_one_call) {
  come(1000, 2000);
  for (std::uintptr_t block = 1000; block < 2000; block += 10) on_allocate(block, 5);
  tool.calls.clear();
  marks.on_free(1000);
  EXPECT_TRUE(tool.regions().empty());
  EXPECT_EQ(tool.calls, (calls_type{"reset_heap"}));
}

TEST_F(device_marks_of_a_chunk,
       taking_back_resets_heaps_that_are_left_and_closes_regions_of_the_one_that_is_not) {
  come(1000, 2000);
  come(2000, 3000);
  come(3000, 4000);
  for (std::uintptr_t block = 1000; block < 4000; block += 250) on_allocate(block, 100);
  tool.calls.clear();
  marks.on_free(1500);
  EXPECT_EQ(tool.regions(), (regions_type{{1000, 100}, {1250, 100}}));
  EXPECT_EQ(tool.calls, (calls_type{"close_regions 2", "reset_heap", "reset_heap"}));
}

TEST_F(device_marks_of_a_chunk, taking_back_resets_a_heap_that_begins_where_the_last_kept_block_ends) {
  come(1000, 2000);
  come(2000, 3000);
  on_allocate(1000, 1000);
  on_allocate(2000, 10);
  on_allocate(2100, 10);
  tool.calls.clear();
  marks.on_free(2000);
  EXPECT_EQ(tool.regions(), (regions_type{{1000, 1000}}));
  EXPECT_EQ(tool.calls, (calls_type{"reset_heap"}));
}

TEST_F(device_marks_of_a_chunk, taking_back_skips_heaps_without_allocations) {
  come(1000, 2000);
  come(2000, 3000);
  on_allocate(1000, 100);
  tool.calls.clear();
  marks.on_free(1000);
  EXPECT_EQ(tool.calls, (calls_type{"reset_heap"}));
}

TEST_F(device_marks_of_a_chunk, taking_back_more_regions_than_fit_in_a_call_takes_several) {
  come(1000, 2000);
  for (std::uintptr_t block = 1000; block < 2000; block += 5) on_allocate(block, 5);
  tool.calls.clear();
  marks.on_free(1005);
  EXPECT_EQ(tool.regions(), (regions_type{{1000, 5}}));
  EXPECT_EQ(tool.calls,
            (calls_type{"close_regions 64", "close_regions 64", "close_regions 64", "close_regions 7"}));
}

TEST_F(device_marks_of_a_chunk, a_block_of_which_a_part_is_taken_back_is_shorter) {
  come(1000, 2000);
  come(2000, 3000);
  on_allocate(1900, 500);
  on_allocate(2500, 100);
  marks.on_free(2100);
  EXPECT_EQ(tool.regions(), (regions_type{{1900, 100}, {2000, 100}}));
  marks.on_free(1950);
  EXPECT_EQ(tool.regions(), (regions_type{{1900, 50}}));
}

TEST_F(device_marks_of_a_chunk, a_block_that_grows_keeps_its_region_which_is_larger_then) {
  come(1000, 2000);
  on_allocate(1000, 10);
  tool.calls.clear();
  marks.on_resize(1000, 300);
  EXPECT_EQ(tool.regions(), (regions_type{{1000, 300}}));
  EXPECT_EQ(tool.calls, (calls_type{"resize_region"}));
}

TEST_F(device_marks_of_a_chunk, a_block_that_grows_into_another_heap_gets_a_region_there) {
  come(1000, 2000);
  come(2000, 3000);
  on_allocate(1500, 100);
  marks.on_resize(1500, 700);
  EXPECT_EQ(tool.regions(), (regions_type{{1500, 500}, {2000, 200}}));
  marks.on_resize(1500, 20);
  EXPECT_EQ(tool.regions(), (regions_type{{1500, 20}}));
}

TEST_F(device_marks_of_a_chunk, a_block_may_grow_from_nothing_and_shrink_to_nothing) {
  come(1000, 2000);
  on_allocate(1000, 0);
  marks.on_resize(1000, 8);
  EXPECT_EQ(tool.regions(), (regions_type{{1000, 8}}));
  marks.on_resize(1000, 0);
  EXPECT_TRUE(tool.regions().empty());
  on_allocate(1256, 8);
  EXPECT_EQ(tool.regions(), (regions_type{{1256, 8}}));
}

TEST_F(device_marks_of_a_chunk, a_block_that_has_shrunk_to_nothing_is_not_taken_back_again) {
  come(1000, 2000);
  on_allocate(1000, 8);
  on_allocate(1256, 8);
  marks.on_resize(1256, 0);
  marks.on_free(1256);
  on_allocate(1256, 8);
  tool.calls.clear();
  marks.on_free(1256);
  EXPECT_EQ(tool.calls, (calls_type{"close_regions 1"}));
}

TEST_F(device_marks_of_a_chunk, does_not_report_a_block_that_keeps_its_size_again) {
  come(1000, 2000);
  on_allocate(1000, 10);
  tool.calls.clear();
  marks.on_resize(1000, 10);
  EXPECT_EQ(tool.calls, calls_type{});
}

TEST_F(device_marks_of_a_chunk, a_heap_that_is_cut_stays_and_covers_the_memory_that_comes_again) {
  come(1000, 2000);
  come(2000, 3000);
  marks.on_decommit(1500);
  EXPECT_EQ(tool.heaps(), (std::vector<strict_tool::heap>{{1000, 1000, "step"}}));
  come(1500, 1800);
  EXPECT_EQ(tool.heaps(), (std::vector<strict_tool::heap>{{1000, 1000, "step"}}));
  come(1800, 2400);
  EXPECT_EQ(tool.heaps(), (std::vector<strict_tool::heap>{{1000, 1000, "step"}, {2000, 400, "step"}}));
  on_allocate(1700, 600);
  EXPECT_EQ(tool.regions(), (regions_type{{1700, 300}, {2000, 300}}));
}

TEST_F(device_marks_of_a_chunk, reports_blocks_again_when_their_memory_comes_back) {
  come(1000, 2000);
  come(2000, 3000);
  on_allocate(1200, 100);
  on_allocate(1900, 200);
  on_allocate(2500, 100);
  const regions_type before = tool.regions();
  marks.on_decommit(1000);
  EXPECT_TRUE(tool.regions().empty());
  come(1000, 2000);
  come(2000, 3000);
  EXPECT_EQ(tool.regions(), before);
  marks.on_free(1900);
  EXPECT_EQ(tool.regions(), (regions_type{{1200, 100}}));
}

TEST_F(device_marks_of_a_chunk, without_a_tool_nothing_is_recorded_or_reported) {
  tool.watches = false;
  come(1000, 2000);
  for (std::uintptr_t block = 1000; block < 2000; ++block) {
    EXPECT_TRUE(marks.has_room());
    marks.on_allocate(block, 1);
  }
  marks.on_resize(1999, 2);
  marks.on_free(1000);
  marks.on_decommit(1000);
  EXPECT_EQ(tool.calls, (calls_type{"open_heap"}));
}

TEST_F(device_marks_of_a_chunk, a_tool_that_rejects_one_heap_learns_of_the_others) {
  come(1000, 2000);
  tool.watches = false;
  come(2000, 3000);
  tool.watches = true;
  come(3000, 4000);
  on_allocate(1900, 1200);
  EXPECT_EQ(tool.regions(), (regions_type{{1900, 100}, {3000, 100}}));
  marks.on_resize(1900, 1150);
  marks.on_free(1900);
  EXPECT_TRUE(tool.regions().empty());
}

}  // namespace
