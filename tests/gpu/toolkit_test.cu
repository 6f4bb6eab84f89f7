// SPDX-License-Identifier: Apache-2.0
// Strategy: on a machine with several toolkits, compilers and linkers may each find another one. The toolkits
// that they found are compared with CMake's settings.
#include <gtest/gtest.h>

#include <cuda_runtime_api.h>

#include "toolkit.hpp"

namespace {

constexpr int configured = TIDEMARK_TEST_CUDA_VERSION;  // as CUDART_VERSION counts: 13050 is 13.5

TEST(toolkit, nvcc_sees_headers_of_the_configured_version) { EXPECT_EQ(CUDART_VERSION, configured); }

TEST(toolkit, the_host_compiler_sees_headers_of_the_configured_version) {
  EXPECT_EQ(toolkit::version_of_host_headers(), configured);
}

TEST(toolkit, linked_runtime_has_the_configured_version) {
  int linked = 0;
  ASSERT_EQ(cudaRuntimeGetVersion(&linked), cudaSuccess);  // which asks no driver
  EXPECT_EQ(linked, configured);
}

}  // namespace
