// SPDX-License-Identifier: Apache-2.0
// Strategy: the import comes first, and headers of the library and of the standard repeat its declarations.
import tidemark;

#include <gtest/gtest.h>

#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include <tidemark/arena.hpp>
#include <tidemark/pool.hpp>

namespace {

TEST(module, headers_may_follow_the_import) {
  tidemark::pool nodes;
  tidemark::arena step;
  tidemark::arena::scope scope{step};
  const std::span<int> numbers = scope.push_array<int>(3);
  const std::pmr::vector<std::pmr::string> names({"a", "b"}, &nodes);
  EXPECT_EQ("n" + std::to_string(numbers.size()), "n3");
  EXPECT_EQ(names[1] + "c", "bc");
}

}  // namespace
