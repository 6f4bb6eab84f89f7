// SPDX-License-Identifier: Apache-2.0
// Strategy: the filter alone, on synthetic addresses. Tests of epochs show its purpose.
#include <gtest/gtest.h>

#include <cstdint>

#include <tidemark/epoch/detail/address_table.hpp>

namespace tidemark::detail {
namespace {

class counting_filters : public testing::Test {
 protected:
  static constexpr std::uintptr_t first = 0x7f00'1234'0000;
  bool may_contain(std::uintptr_t address) const { return filter_.count(address) != 0; }
  /// Another address with the hash of `first`.
  std::uintptr_t neighbour() {
    filter_.insert(first);
    std::uintptr_t other = first + 64;
    while (!may_contain(other)) other += 64;
    filter_.erase(first);
    return other;
  }
  counting_filter filter_;
};

TEST_F(counting_filters, distinguish_a_row_of_blocks_from_the_next_row) {
  for (std::uintptr_t i = 0; i < 256; ++i) filter_.insert(first + 64 * i);
  for (std::uintptr_t i = 0; i < 256; ++i) {
    ASSERT_TRUE(may_contain(first + 64 * i));
    ASSERT_FALSE(may_contain(first + 64 * (256 + i)));
  }
}

TEST_F(counting_filters, contain_a_hash_until_both_of_its_addresses_are_erased) {
  const std::uintptr_t second = neighbour();
  EXPECT_FALSE(may_contain(first));
  filter_.insert(first);
  filter_.insert(second);
  filter_.erase(first);
  EXPECT_TRUE(may_contain(second));
  filter_.erase(second);
  EXPECT_FALSE(may_contain(second));
}

TEST_F(counting_filters, are_empty_until_an_insertion_and_after_the_last_erasure) {
  EXPECT_TRUE(filter_.is_empty());
  filter_.insert(first);
  filter_.insert(first + 64);
  filter_.erase(first);
  EXPECT_FALSE(filter_.is_empty());
  filter_.erase(first + 64);
  EXPECT_TRUE(filter_.is_empty());
}

TEST_F(counting_filters, are_never_empty_after_a_count_overflowed) {
  for (int i = 0; i < 1000; ++i) filter_.insert(first);
  for (int i = 0; i < 1000; ++i) filter_.erase(first);
  EXPECT_FALSE(filter_.is_empty());
}

TEST_F(counting_filters, keep_an_address_whose_count_overflowed) {
  for (int i = 0; i < 1000; ++i) filter_.insert(first);
  for (int i = 0; i < 999; ++i) filter_.erase(first);
  EXPECT_TRUE(may_contain(first));
  filter_.erase(first);
  EXPECT_TRUE(may_contain(first)) << "the count is not known any more";
}

TEST_F(counting_filters, count_up_to_254) {
  for (int i = 0; i < 254; ++i) filter_.insert(first);
  for (int i = 0; i < 253; ++i) filter_.erase(first);
  EXPECT_TRUE(may_contain(first));
  filter_.erase(first);
  EXPECT_FALSE(may_contain(first));
}

}  // namespace
}  // namespace tidemark::detail
