// SPDX-License-Identifier: Apache-2.0
// Common parts of tests for a GPU. They skip with the driver's own message without a GPU.
#pragma once

#include <gtest/gtest.h>

#include "this_device.hpp"

namespace tidemark::test {

/// Skips its tests without a device.
class gpu_test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const this_device device = find_device(); !device.found) GTEST_SKIP() << device.text;
  }
  static void check(cudaError_t status) { ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(status); }
};

}  // namespace tidemark::test
