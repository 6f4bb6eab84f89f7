// SPDX-License-Identifier: Apache-2.0
// Every pool of the host reports the blocks that are live at its end, with their places. Under
// AddressSanitizer, LeakSanitizer reports them too: tests/sanitizers has programs for this.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory_resource>
#include <string>
#include <vector>

#include <tidemark/pool.hpp>

#include "violation_recorder.hpp"

#if TIDEMARK_CHECKS >= 2 && !TIDEMARK_ASAN

namespace {

using namespace tidemark;

template <class Pool>
class lost_blocks : public ::testing::Test {
 protected:
  test::violation_recorder recorder;
};
using pools = ::testing::Types<pool, synchronized_pool>;
TYPED_TEST_SUITE(lost_blocks, pools);

TYPED_TEST(lost_blocks, are_reported_with_their_places_at_the_end_of_a_pool) {
  int line = 0;
  {
    TypeParam nodes{{.name = "nodes"}};
    line = __LINE__ + 1;
    (void)nodes.allocate(64);
    const allocation_site here{"a table"};
    std::pmr::memory_resource& erased = nodes;
    (void)erased.allocate(300'000);  // a container's block: its place is that of the allocation_site
  }
  ASSERT_EQ(this->recorder.reports().size(), 1u);
  auto const& report = this->recorder.reports()[0];
  EXPECT_EQ(report.kind, violation_kind::leak);
  EXPECT_EQ(report.resource, "nodes");
  for (std::string const& part :
       {std::string{"leak: 2 blocks of 300064 bytes"}, "lost_blocks_test.cpp:" + std::to_string(line),
        "lost_blocks_test.cpp:" + std::to_string(line + 1) + " (a table)"})
    EXPECT_NE(report.message.find(part), std::string::npos) << report.message << "\nwithout " << part;
}

TYPED_TEST(lost_blocks, are_not_reported_once_they_are_deallocated_or_released) {
  {
    TypeParam nodes;
    nodes.deallocate(nodes.allocate(64), 64);
    std::pmr::vector<int> numbers(1000, &nodes);
  }
  {
    TypeParam nodes;
    (void)nodes.allocate(64);
    nodes.release();
  }
  EXPECT_EQ(this->recorder.reports().size(), 0u);
}

TEST(lost_blocks_death, are_printed_by_the_default_handler_without_aborting) {
  EXPECT_EXIT(
      {
        {
          pool nodes{{.name = "nodes"}};
          (void)nodes.allocate(64);
        }
        std::exit(7);
      },
      ::testing::ExitedWithCode(7), "tidemark: pool 'nodes': leak: 1 block of 64 bytes was not deallocated");
}

}  // namespace

#endif
