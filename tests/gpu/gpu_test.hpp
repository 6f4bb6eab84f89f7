// SPDX-License-Identifier: Apache-2.0
// What tests and programs for a GPU share: they skip with the driver's own words where there is none.
#pragma once

#include <gtest/gtest.h>

#include <cuda_runtime_api.h>

#include <string>

namespace tidemark::test {

/// Why there is no device to run on; empty if there is one.
inline std::string why_no_device() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess) return std::string{"no CUDA device: "} + cudaGetErrorString(status);
  return devices == 0 ? "no CUDA device: the count is 0" : "";
}

/// Skips its tests where there is no device.
class gpu_test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_device(); !why.empty()) GTEST_SKIP() << why;
  }
  static void check(cudaError_t status) { ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(status); }
};

}  // namespace tidemark::test
