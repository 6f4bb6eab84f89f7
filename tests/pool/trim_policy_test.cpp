// SPDX-License-Identifier: Apache-2.0
// `trim_policy` alone: computes from byte counts the number of cached bytes at which a trim is due. Tests of
// pools check its effect.
#include <tidemark/pool/detail/basic_pool.hpp>

#include <cstddef>

#include <gtest/gtest.h>

namespace {

using tidemark::detail::trim_policy;

constexpr std::size_t limit = 1600;

/// Returns the policy of a pool whose last trim left this many bytes live.
trim_policy after_trim(std::size_t live_bytes) {
  trim_policy times{limit};
  times.trimmed(live_bytes);
  return times;
}

TEST(trim_policy, is_due_at_the_limit_without_stranded_bytes) {
  EXPECT_EQ(after_trim(5000).due_at(800, 1000, 0), limit);
}

TEST(trim_policy, is_due_when_half_of_the_live_bytes_are_freed) {
  const trim_policy times = after_trim(1000);
  EXPECT_EQ(times.due_at(900, 500, 1000), 899u) << "half is gone";
  EXPECT_EQ(times.due_at(900, 501, 1000), 900u) << "not quite yet";
}

TEST(trim_policy, requires_an_eighth_of_the_limit_to_be_freed_between_trims) {
  const trim_policy times = after_trim(300);
  EXPECT_EQ(times.due_at(900, 101, 1000), 900u) << "half of what was live is gone, but less than an eighth";
  EXPECT_EQ(times.due_at(900, 100, 1000), 899u);
}

TEST(trim_policy, is_due_when_seven_eighths_of_few_live_bytes_are_freed) {
  const trim_policy times = after_trim(16);
  EXPECT_EQ(times.due_at(900, 3, 1000), 900u);
  EXPECT_EQ(times.due_at(900, 2, 1000), 899u);
}

TEST(trim_policy, is_due_when_the_last_block_is_freed) {
  const trim_policy times = after_trim(1);
  EXPECT_EQ(times.due_at(900, 1, 1000), 900u);
  EXPECT_EQ(times.due_at(900, 0, 1000), 899u);
}

TEST(trim_policy, is_due_at_the_limit_if_held_bytes_do_not_grow) {
  EXPECT_EQ(after_trim(1000).due_at(300, 300, 1000), limit);
  EXPECT_NE(after_trim(1000).due_at(300, 301, 1000), limit);
}

TEST(trim_policy, is_never_due_above_the_limit) {
  EXPECT_EQ(after_trim(5000).due_at(1600, 4000, 1000), limit);
}

}  // namespace
