// SPDX-License-Identifier: Apache-2.0
// A description of the first CUDA device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdio>
#include <string>

namespace tidemark::test {

/// The first device.
struct this_device {
  bool found = false;
  std::string text;  ///< description of the device, or the driver's reason why none exists
};

inline this_device find_device() {
  int devices = 0, driver = 0;
  cudaDeviceProp device{};
  cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess && devices == 0) return {false, "no CUDA device: the count is 0"};
  if (status == cudaSuccess) status = cudaGetDeviceProperties(&device, 0);
  if (status == cudaSuccess) status = cudaDriverGetVersion(&driver);
  if (status != cudaSuccess) return {false, std::string{"no CUDA device: "} + cudaGetErrorString(status)};
  char text[512];
  std::snprintf(text, sizeof text, "%s, compute capability %d.%d, driver for CUDA %d.%d, runtime %d.%d",
                device.name, device.major, device.minor, driver / 1000, driver % 1000 / 10,
                CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  return {true, text};
}

}  // namespace tidemark::test
