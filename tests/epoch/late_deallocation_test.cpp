// SPDX-License-Identifier: Apache-2.0
// Strategy: the fate of memory after its epoch, with containers that return it late, in an upstream that
// accepts each block once.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <vector>

#include <tidemark/core.hpp>
#include <tidemark/epoch.hpp>
#include <tidemark/telemetry/test_resource.hpp>

#include "recording_supply.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

// ---- a container that outlives its epoch ------------------------------------------------------------------

using numbers = std::pmr::vector<int>;

class late_containers : public testing::Test {
 protected:
  /// A vector whose epoch ends here.
  void outlive(epoch_resource& memory) {
    epoch e{memory, "step"};
    vector_.emplace(100, 7, &memory);
    where_ = vector_->data();
    EXPECT_EQ(e.end().reclaimed, 1u);
  }

  recording_resource upstream;
  std::optional<numbers> vector_;
  void* where_ = nullptr;
};

TEST_F(late_containers, return_no_memory_twice) {
  const violation_recorder recorder;
  epoch_resource memory{{.name = "steps"}, &upstream};
  outlive(memory);
  EXPECT_EQ(upstream.outstanding, 0u);
  vector_.reset();
  EXPECT_EQ(memory.stats().late, 1u);
  ASSERT_EQ(violation_recorder::reports().size(), check_level >= 2 ? 1u : 0u);
  if (check_level >= 2) {
    EXPECT_EQ(violation_recorder::reports()[0].kind, violation_kind::late_deallocate);
    std::array<char, 200> expected{};
    (void)std::snprintf(expected.data(), expected.size(),
                        "epoch_resource 'steps': block %p was deallocated after 'step' had reclaimed it",
                        where_);
    EXPECT_EQ(violation_recorder::reports()[0].message, expected.data());
  }
  EXPECT_EQ(memory.stats().deallocations, 0u);
  memory.check_invariants();
}

TEST_F(late_containers, return_memory_that_their_epoch_kept) {
  epoch_resource memory{&upstream};
  {
    epoch e{memory};
    vector_.emplace(100, 7, &memory);
    EXPECT_EQ(e.keep(*vector_), 1u);
  }
  EXPECT_EQ(vector_->at(99), 7);
  vector_.reset();
  EXPECT_EQ(upstream.outstanding, 0u);
  EXPECT_EQ(memory.stats().late, 0u);
}

// S3.7
TEST_F(late_containers, are_recognised_while_a_test_resource_holds_their_memory) {
  const violation_recorder recorder;
  test_resource quarantine{&upstream, {.quarantine_bytes = 64 * KiB}};
  epoch_resource memory{&quarantine};
  void* late = nullptr;
  with_epoch(memory, [&] { late = memory.allocate(2000); });
  epoch e{memory};
  EXPECT_NE(memory.allocate(2000), late);
  for (std::uint64_t times = 1; times <= 3; ++times) {
    memory.deallocate(late, 2000);
    EXPECT_EQ(memory.stats().late, times);
  }
  EXPECT_EQ(violation_recorder::count(violation_kind::late_deallocate), check_level >= 2 ? 3u : 0u);
  EXPECT_EQ(e.end().reclaimed, 1u);
}

}  // namespace
}  // namespace tidemark::test
