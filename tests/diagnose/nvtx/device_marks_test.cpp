// SPDX-License-Identifier: Apache-2.0
// Strategy: the record of one chunk by itself, with a tool that knows the rules. Addresses are small
// numbers, because they are never touched: a heap from 1000 on, and blocks in it.
#include <gtest/gtest.h>

#include <string>
#include <utility>
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
  void on_commit_of(std::uintptr_t first, std::uintptr_t last) {
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

// Expected marks of blocks that are freed at an address and above.
struct taken_back {
  char const* what;
  std::uintptr_t heap_end;  // the heap begins at 1000
  std::vector<std::pair<std::uintptr_t, std::size_t>> blocks;
  std::uintptr_t from;
  regions_type regions;
  calls_type calls;
};
std::vector<std::pair<std::uintptr_t, std::size_t>> blocks_every(std::size_t step, std::uintptr_t last,
                                                                 std::size_t bytes) {
  std::vector<std::pair<std::uintptr_t, std::size_t>> blocks;
  for (std::uintptr_t first = 1000; first < last; first += step) blocks.emplace_back(first, bytes);
  return blocks;
}
const taken_back cases_of_taking_back[] = {
    {"closes the regions at the cursor and above",
     2000,
     blocks_every(100, 1500, 50),
     1200,
     {{1000, 50}, {1100, 50}},
     {"close_regions 3"}},
    {"resets a heap of which nothing is left in one call",
     2000,
     blocks_every(10, 2000, 5),
     1000,
     {},
     {"reset_heap"}},
    {"takes several calls for more regions than fit in one",
     2000,
     blocks_every(5, 2000, 5),
     1005,
     {{1000, 5}},
     {"close_regions 64", "close_regions 64", "close_regions 64", "close_regions 7"}},
};

TEST_F(device_marks_of_a_chunk, frees_blocks_in_as_few_calls_as_possible) {
  for (taken_back const& each : cases_of_taking_back) {
    SCOPED_TRACE(each.what);
    on_commit_of(1000, each.heap_end);
    for (auto const& [block, bytes] : each.blocks) on_allocate(block, bytes);
    tool.calls.clear();
    marks.on_free(each.from);
    EXPECT_EQ(tool.regions(), each.regions);
    EXPECT_EQ(tool.calls, each.calls);
    TearDown();
  }
}

TEST_F(device_marks_of_a_chunk, keeps_a_partly_decommitted_heap_for_memory_committed_again) {
  on_commit_of(1000, 2000);
  on_commit_of(2000, 3000);
  tool.calls.clear();
  marks.on_decommit(1500);
  on_commit_of(1500, 1800);
  on_commit_of(1800, 2400);
  EXPECT_TRUE(tool.calls.empty());
  on_allocate(1700, 600);
  EXPECT_EQ(tool.regions(), (regions_type{{1700, 600}}));
}

TEST_F(device_marks_of_a_chunk, records_and_reports_nothing_without_a_tool) {
  tool.watches = false;
  on_commit_of(1000, 2000);
  for (std::uintptr_t block = 1000; block < 2000; ++block) {
    EXPECT_TRUE(marks.has_room());
    marks.on_allocate(block, 1);
  }
  marks.on_resize(1999, 2);
  marks.on_free(1000);
  marks.on_decommit(1000);
  EXPECT_EQ(tool.calls, (calls_type{"open_heap"}));
}

TEST_F(device_marks_of_a_chunk, reports_a_larger_heap_to_a_tool_that_has_rejected_a_smaller_one) {
  on_commit_of(1000, 2000);
  tool.watches = false;
  on_commit_of(2000, 3000);
  on_allocate(1900, 900);
  tool.watches = true;
  EXPECT_TRUE(tool.regions().empty());
  on_commit_of(3000, 4000);
  EXPECT_EQ(tool.regions(), (regions_type{{1900, 900}}));
  marks.on_resize(1900, 1150);
  marks.on_free(1900);
  EXPECT_TRUE(tool.regions().empty());
}

}  // namespace
