// SPDX-License-Identifier: Apache-2.0
// Faults found by the fake device, as text, for tests of these findings.
#pragma once

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace tidemark::test {

/// Returns the messages of all failures of `body`, which do not fail the test; empty without failures.
inline std::string failures_of(std::function<void()> const& body) {
  testing::TestPartResultArray results;
  {
    const testing::ScopedFakeTestPartResultReporter reporter{
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results};
    body();
  }
  std::string all;
  for (int i = 0; i < results.size(); ++i) all += results.GetTestPartResult(i).message();
  return all;
}

}  // namespace tidemark::test
