// SPDX-License-Identifier: Apache-2.0
// Strategy: workspaces whose options keep no memory, over an upstream that counts blocks and requires the
// return of each. workspace_device_test.cpp has the tests for devices, and tests/workspace/pooling those with
// pooling off at compile time.
#include <gtest/gtest.h>

#include <cstddef>

#include <tidemark/workspace/extras/dlpack.hpp>
#include <tidemark/workspace/workspace.hpp>
#include <tidemark/workspace/workspace_options.hpp>

#include "recording_supply.hpp"
#include "workspace_levels.hpp"

namespace tidemark::test {
namespace {

template <class Workspace>
class workspace_unpooled : public testing::Test {
 protected:
  using scope = typename Workspace::template scope<>;

  recording_resource upstream;
  Workspace ws{workspace_options{.pooling = false, .upstream = &upstream}};
};
TYPED_TEST_SUITE(workspace_unpooled, both_levels, );

// S4.41
TYPED_TEST(workspace_unpooled, each_acquisition_allocates_once_and_is_freed_with_its_scope) {
  EXPECT_FALSE(this->ws.pooling_enabled());
  for (std::size_t i = 1; i <= 10; ++i) {
    typename TestFixture::scope scope{this->ws};
    (void)scope.template acquire<double>(100);
    (void)scope.template acquire<double>(50);
    (void)scope.falses(1000);
    EXPECT_EQ(this->upstream.calls, 3 * i);
    EXPECT_EQ(this->upstream.outstanding, 100 * 8 + 50 * 8 + 128u);
    scope.end();
    EXPECT_EQ(this->upstream.outstanding, 0u);
  }
  EXPECT_EQ(this->ws.stats().slot_count, 0u);
  this->ws.check_invariants();
}

TYPED_TEST(workspace_unpooled, rewind_and_reset_free_memory) {
  (void)this->ws.template acquire<double>(10);
  this->ws.checkpoint();
  (void)this->ws.template acquire<double>(10);
  this->ws.rewind();
  EXPECT_EQ(this->upstream.outstanding, 80u);
  this->ws.reset();
  EXPECT_EQ(this->upstream.outstanding, 0u);
}

TYPED_TEST(workspace_unpooled, tensor_headers_are_freed_with_the_memory) {
  typename TestFixture::scope scope{this->ws};
  dl_tensor const* const tensor = acquire_tensor<float>(scope, 2, 3);
  EXPECT_EQ(tensor->shape[1], 3);
  EXPECT_EQ(this->upstream.calls, 1u);
  scope.end();
  EXPECT_EQ(this->upstream.outstanding, 0u);
  EXPECT_EQ(this->ws.stats().tensor_headers, 0u);
}

// S4.42
TYPED_TEST(workspace_unpooled, pooling_option_is_set_at_run_time) {
  for (const bool pooling : {false, true}) {
    TypeParam ws{workspace_options{.pooling = pooling, .upstream = &this->upstream}};
    EXPECT_EQ(ws.pooling_enabled(), pooling);
    with_workspace(ws, [](auto& scope) { (void)scope.template acquire<double>(10); });
    EXPECT_EQ(this->upstream.outstanding, pooling ? 80u : 0u);
  }
}

}  // namespace
}  // namespace tidemark::test
