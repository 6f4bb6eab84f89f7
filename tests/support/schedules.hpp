// SPDX-License-Identifier: Apache-2.0
// Expectations of tests of production code about all its schedules. Sequentially consistent values come
// first, because their failures are easier to read; then memory orders are taken literally.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <string>

#include "interleavings.hpp"

namespace tidemark::test {

/// Expects that every schedule passes, and that their number is at least `least_schedules`. Fewer schedules
/// mean a wrong test.
inline void expect_every_schedule_passes(std::function<program()> const& make, std::size_t least_schedules) {
  for (const bool weak_orders : {false, true}) {
    const explored result = explore(make, {.max_spurious_failures = 1, .weak_orders = weak_orders});
    EXPECT_EQ(result.failure, "") << (weak_orders ? "by memory orders taken at their word" : "");
    EXPECT_TRUE(result.complete);
    EXPECT_GE(result.schedules, least_schedules);
    ::testing::Test::RecordProperty(weak_orders ? "weak_schedules" : "schedules",
                                    std::to_string(result.schedules));
  }
}

/// Expects that a program with a fault has a schedule that fails so.
inline void expect_failure(std::function<program()> const& make, std::string const& begins) {
  const explored result = explore(make, {.max_spurious_failures = 1, .weak_orders = true});
  EXPECT_TRUE(result.failure.starts_with(begins)) << result.failure;
  EXPECT_FALSE(result.failure.empty());
}

}  // namespace tidemark::test
