// SPDX-License-Identifier: Apache-2.0
// Strategy: defects that AdaptiveArrayPools.jl, a similar package, had or may have had, each with the tests
// that would have found it. The comment above a group describes the defect. They run at level
// 1, because its checks must not change what a workspace does.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory_resource>
#include <span>
#include <vector>

#include <tidemark/arena/arena.hpp>
#include <tidemark/workspace/extras/dlpack.hpp>
#include <tidemark/workspace/workspace.hpp>
#include <tidemark/workspace/workspace_options.hpp>

#include "recording_supply.hpp"
#include "workspace_levels.hpp"

namespace tidemark::test {
namespace {

using workspace_1 = checked_workspace;
using scope_1 = workspace_1::scope<>;

TEST(workspace_regressions, accepts_owned_memory_at_a_former_slot_address) {
  arena memory;  // whose newest block is the next one again, once it was freed
  workspace_1 ws{&memory};
  void const* before = nullptr;
  with_workspace(ws, [&](scope_1& scope) { before = scope.acquire<double>(3).data(); });
  (void)ws.trim();
  ASSERT_EQ(memory.position(), 0u);
  const std::pmr::vector<double> owned(3, 1.0, &memory);
  ASSERT_EQ(owned.data(), before);
  scope_1 scope{ws};
  EXPECT_NO_THROW((void)scope.returning(std::span{owned}));
}

// S4.21
TEST(workspace_regressions, updates_headers_of_every_rank_after_compacting) {
  recording_resource memory;
  workspace_1 ws{&memory};
  std::array<dl_tensor*, 3> headers{};
  const auto use = [&](scope_1& scope, std::size_t rank) {
    if (rank == 1) return acquire_tensor<double>(scope, 24);
    if (rank == 2) return acquire_tensor<double>(scope, 6, 4);
    return acquire_tensor<double>(scope, 2, 3, 4);
  };
  with_workspace(ws, [](scope_1& scope) { (void)scope.acquire<double>(1'000'000); });
  for (std::size_t rank = 1; rank <= 3; ++rank) {
    with_workspace(ws, [&](scope_1& scope) { headers[rank - 1] = use(scope, rank); });
  }
  EXPECT_EQ(ws.compact().slot_count, 1u);
  EXPECT_EQ(memory.outstanding, 36 * sizeof(double)) << "the memory before is gone";
  for (std::size_t rank = 1; rank <= 3; ++rank) {
    scope_1 scope{ws};
    dl_tensor* const header = use(scope, rank);
    EXPECT_EQ(header, headers[rank - 1]);
    EXPECT_TRUE(memory.holds(header->data));
    std::fill_n(static_cast<double*>(header->data), 24, 7.0);  // a sanitizer would see a wrong one
  }
}

}  // namespace
}  // namespace tidemark::test
