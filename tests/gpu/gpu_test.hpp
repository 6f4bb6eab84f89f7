// SPDX-License-Identifier: Apache-2.0
// Common parts of tests for a GPU. They skip with the driver's own message without a GPU.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>

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

inline unsigned int blocks_for(std::size_t n) { return static_cast<unsigned int>((n + 255) / 256); }

#ifdef __CUDACC__
inline __global__ void spin(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
}
inline __global__ void fill(std::size_t n, float value, float* x) {
  const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (i < n) x[i] = value;
}
#endif

}  // namespace tidemark::test
