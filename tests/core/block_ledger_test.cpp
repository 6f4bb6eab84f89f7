// SPDX-License-Identifier: Apache-2.0
// Strategy: addresses that come again, and blocks that were freed long ago. test_resource_test.cpp returns
// blocks in each wrong way.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>

#include <tidemark/core/detail/block_ledger.hpp>

#include "contains.hpp"
#include "violation_recorder.hpp"

namespace tidemark::test {
namespace {

class block_ledger : public ::testing::Test {
 protected:
  bool remove(void const* block, std::size_t bytes, std::size_t align = 16) {
    detail::late_reports late;
    return ledger_.remove("pool", "p", block, bytes, align).has_value();
  }
  std::string last() const { return recorder_.reports().empty() ? "" : recorder_.reports().back().message; }

  violation_recorder recorder_;
  detail::block_ledger ledger_;
  std::array<std::byte, 256> memory_{};
};

TEST_F(block_ledger, correct_use_reports_nothing_and_forgets_the_block) {
  ledger_.add({&memory_[0], 64, 16});
  ledger_.add({&memory_[64], 64, 16});
  EXPECT_TRUE(remove(&memory_[0], 64));
  EXPECT_EQ(ledger_.live().size(), 1u);
  ledger_.add({&memory_[0], 32, 16});
  EXPECT_TRUE(remove(&memory_[0], 32)) << "an address may come again";
  EXPECT_TRUE(recorder_.reports().empty());
}

TEST_F(block_ledger, remembers_only_the_most_recently_freed_blocks) {
  // Downwards, so that the newest is the lowest.
  constexpr std::size_t count = 3 * detail::block_ledger::max_freed;
  const auto address = [](std::size_t i) { return reinterpret_cast<void*>(64 * (count - i)); };
  for (std::size_t i = 0; i < count; ++i) {
    ledger_.add({address(i), 64, 16});
    EXPECT_TRUE(remove(address(i), 64));
  }
  EXPECT_FALSE(remove(address(count - 1), 64));
  EXPECT_PRED2(contains, last(), "double free");
  EXPECT_FALSE(remove(address(count - detail::block_ledger::max_freed), 64));
  EXPECT_PRED2(contains, last(), "double free");
  EXPECT_FALSE(remove(address(0), 64));
  EXPECT_NE(last().find("foreign pointer"), std::string::npos) << "the memory of a ledger is bounded";
}

}  // namespace
}  // namespace tidemark::test
