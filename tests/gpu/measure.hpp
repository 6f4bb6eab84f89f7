// SPDX-License-Identifier: Apache-2.0
// Common parts of the programs that measure on a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "this_device.hpp"

namespace tidemark::test {

/// Status of a program that has nothing to run on; ctest takes it for a skipped test.
inline constexpr int skipped = 77;

inline void require(cudaError_t result, char const* what) {
  if (result != cudaSuccess) throw std::runtime_error{std::string{what} + ": " + cudaGetErrorString(result)};
}

/// Prints the device, or the reason for its absence. @return true if a device exists
inline bool found_device(char const* program) {
  const this_device device = find_device();
  std::printf("%s: %s%s\n\n", program, device.found ? "" : "skipped: ", device.text.c_str());
  return device.found;
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

/// Returns the times of `steps` calls of `work`, sorted, in nanoseconds divided by `blocks`. Reading the
/// clock adds some 20 ns per step.
template <class Work>
std::vector<double> sorted_ns(int steps, int blocks, Work work) {
  std::vector<double> each;
  each.reserve(static_cast<std::size_t>(steps));
  for (int step = 0; step < steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
    each.push_back(taken.count() / blocks);
  }
  std::sort(each.begin(), each.end());
  return each;
}

}  // namespace tidemark::test
