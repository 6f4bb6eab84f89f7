// SPDX-License-Identifier: Apache-2.0
// What the programs that measure on a GPU share.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace tidemark::test {

/// Status of a program that has nothing to run on; ctest takes it for a skipped test.
inline constexpr int skipped = 77;

/// Prints why there is no device, or which one there is. @return whether there is one.
inline bool found_device(char const* program) {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess || devices == 0) {
    std::printf("%s: skipped: no CUDA device: %s\n", program,
                status != cudaSuccess ? cudaGetErrorString(status) : "the count is 0");
    return false;
  }
  cudaDeviceProp device{};
  int driver = 0, runtime = 0;
  if (cudaGetDeviceProperties(&device, 0) != cudaSuccess || cudaDriverGetVersion(&driver) != cudaSuccess ||
      cudaRuntimeGetVersion(&runtime) != cudaSuccess) {
    std::printf("%s: the device does not say what it is: %s\n", program,
                cudaGetErrorString(cudaGetLastError()));
    return false;
  }
  std::printf("%s on %s, driver %d.%d, runtime %d.%d\n\n", program, device.name, driver / 1000,
              driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  return true;
}

/// Nanoseconds that one call of `work` takes: the median of `rounds` rounds of `repetitions` calls each.
template <class Work>
double median_ns(int rounds, int repetitions, Work work) {
  std::vector<double> each;
  for (int round = 0; round < rounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < repetitions; ++i) work();
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
    each.push_back(taken.count() / repetitions);
  }
  std::nth_element(each.begin(), each.begin() + each.size() / 2, each.end());
  return each[each.size() / 2];
}

}  // namespace tidemark::test
