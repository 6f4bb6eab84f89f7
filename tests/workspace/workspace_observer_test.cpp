// SPDX-License-Identifier: Apache-2.0
// Strategy: each way to acquire from a workspace and each way to end an acquisition, as an observer sees it,
// at both levels of checks.
#include <gtest/gtest.h>

#include <cstddef>
#include <new>
#include <string>
#include <vector>

#include <tidemark/core/out_of_memory.hpp>
#include <tidemark/telemetry/limit_resource.hpp>
#include <tidemark/workspace.hpp>

#include "recording_observer.hpp"

namespace tidemark::test {
namespace {

template <class Workspace>
struct observed_workspace : ::testing::Test {
  recording_observer seen;
  Workspace ws{workspace_options{.name = "observed", .observer = &seen}};
};
using both_levels = ::testing::Types<basic_workspace<0>, basic_workspace<1>>;
TYPED_TEST_SUITE(observed_workspace, both_levels);

TYPED_TEST(observed_workspace, reports_acquisitions_and_the_ends_of_scopes) {
  using scope_type = typename TypeParam::template scope<>;
  for (int round = 0; round < 3; ++round) {
    {
      scope_type outer{this->ws};
      (void)outer.template acquire<double>(10);
      (void)outer.template acquire<double>(20);
      {
        typename TypeParam::template scope<float> inner{this->ws};
        (void)inner.template acquire<float>(5);
        (void)inner.template zeros<double>(1);
        (void)inner.bits(65);
        EXPECT_EQ(this->seen.drain(), (event_list{"+80", "+160", "+20", "+8", "+16"}));
      }
      event_list ended = this->seen.drain();
      EXPECT_EQ(ended.size(), 3u);
      EXPECT_EQ(this->seen.used_bytes, 240u);
      (void)outer.template acquire<double>(0);
      EXPECT_TRUE(this->seen.drain().empty()) << "no elements, no event";
    }
    EXPECT_EQ(this->seen.drain(), (event_list{"-160", "-80"}));
  }
  (void)this->ws.template acquire<int>(4);
  this->ws.reset();
  EXPECT_EQ(this->seen.drain(), (event_list{"+16", "-16"}));
  EXPECT_EQ(this->ws.stats().active_slots, 0u);
}

TYPED_TEST(observed_workspace, a_rejected_acquisition_changes_nothing) {
  typename TypeParam::template scope<> scope{this->ws};
  (void)scope.template acquire<double>(4);
  const std::size_t held = this->ws.stats().held_bytes;
  this->seen.drain();
  this->seen.rejects_next = true;
  EXPECT_THROW((void)scope.template acquire<double>(100), std::bad_alloc);
  EXPECT_TRUE(this->seen.drain().empty());
  EXPECT_EQ(this->ws.stats().held_bytes, held);
  EXPECT_EQ(this->ws.stats().active_slots, 1u);
  this->seen.fails_next = true;
  EXPECT_THROW((void)scope.template acquire<double>(8), std::bad_alloc);
  EXPECT_EQ(this->seen.drain(), event_list{"!64"});
  EXPECT_EQ(this->ws.stats().active_slots, 1u);
  this->ws.check_invariants();
}

TYPED_TEST(observed_workspace, the_end_of_the_workspace_releases_all) {
  {
    TypeParam ends{workspace_options{.observer = &this->seen}};
    (void)ends.template acquire<double>(2);
  }
  EXPECT_EQ(this->seen.drain(), (event_list{"+16", "-16"}));
  EXPECT_EQ(this->seen.detached_times, 1u);
}

TEST(workspace_under_a_limit, acquire_throws_at_the_limit) {
  limit_resource budget{800};
  workspace ws{workspace_options{.observer = &budget}};
  {
    workspace::scope scope{ws};
    (void)scope.acquire<double>(100);
    EXPECT_THROW((void)scope.acquire<double>(1), out_of_memory);
  }
  workspace::scope scope{ws};
  (void)scope.acquire<double>(100);
  EXPECT_EQ(budget.stats().refused, 1u);
}

}  // namespace
}  // namespace tidemark::test
