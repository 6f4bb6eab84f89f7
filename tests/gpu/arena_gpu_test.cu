// SPDX-License-Identifier: Apache-2.0
// Strategy: nvcc compiles the headers here, and clang the modules next door. The first tests check that both
// mean the same arena, which needs no device. The other tests use arenas over device memory with kernels and
// copies, and skip without a device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include <tidemark/tidemark.hpp>

#include "gpu_test.hpp"
#include "importing_side.hpp"

namespace {

using namespace tidemark;

TEST(arena_nvcc, headers_compiled_by_nvcc_work_on_the_host) {
  arena step{{.reserve = 64 * MiB, .name = "nvcc"}};
  {
    arena::scope scope{step};
    const std::span<float> x = scope.push_array<float>(1000);
    EXPECT_EQ(x[999], 0.0f);
    std::pmr::vector<int> v({1, 2, 3}, &step);
    EXPECT_TRUE(step.owns(v.data()));
    arena::scope temporary = scratch(step);
    EXPECT_NE(&temporary.arena(), &step);
  }
  EXPECT_EQ(step.position(), 0u);
  step.check_invariants();
}

TEST(arena_nvcc, includer_and_importer_share_types_and_exceptions) {
  arena step;
  (void)step.allocate(1000);
  EXPECT_EQ(importing::position_of(step), step.position());
  EXPECT_THROW(importing::throw_out_of_memory(), out_of_memory);
}

class arena_gpu : public test::gpu_test {};

__global__ void axpy(std::size_t n, float a, float const* x, float* y) {
  const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}

TEST_F(arena_gpu, kernels_use_blocks_of_an_arena_over_device_memory) {
  constexpr std::size_t n = 100'000;
  void* block = nullptr;
  check(cudaMalloc(&block, 4 * MiB));
  {
    borrowed_device_arena device{block, std::size_t{4 * MiB}};
    const std::vector<float> ones(n, 1.0f);
    std::vector<float> result(n);
    float* previous = nullptr;
    for (int step = 0; step < 10; ++step) {
      borrowed_device_arena::scope scope{device};
      float* const x = device.push_array<float>(n, uninitialized).data();
      float* const y = device.push_array<float>(n, uninitialized).data();
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(y) % 256, 0u);
      if (previous != nullptr) EXPECT_EQ(x, previous) << "each step gets the same addresses";
      previous = x;
      check(cudaMemcpy(x, ones.data(), n * sizeof(float), cudaMemcpyHostToDevice));
      check(cudaMemcpy(y, ones.data(), n * sizeof(float), cudaMemcpyHostToDevice));
      axpy<<<(n + 255) / 256, 256>>>(n, static_cast<float>(step), x, y);
      check(cudaGetLastError());
      check(cudaMemcpy(result.data(), y, n * sizeof(float), cudaMemcpyDeviceToHost));
      EXPECT_EQ(result.front(), 1.0f + static_cast<float>(step));
      EXPECT_EQ(result.back(), 1.0f + static_cast<float>(step));
    }
    EXPECT_THROW((void)device.allocate(5 * MiB), out_of_memory);
    EXPECT_EQ(device.position(), 0u);
  }
  check(cudaFree(block));
}

TEST_F(arena_gpu, an_arena_over_pinned_memory_feeds_asynchronous_copies) {
  constexpr std::size_t n = 100'000;
  void *pinned = nullptr, *on_device = nullptr;
  check(cudaHostAlloc(&pinned, 2 * MiB, cudaHostAllocDefault));
  check(cudaMalloc(&on_device, n * sizeof(float)));
  cudaStream_t stream{};
  check(cudaStreamCreate(&stream));
  {
    borrowed_arena staging{pinned, std::size_t{2 * MiB}};
    borrowed_arena::scope scope{staging};
    const std::span<float> out = scope.push_array<float>(n), back = scope.push_array<float>(n);
    for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<float>(i);
    check(cudaMemcpyAsync(on_device, out.data(), out.size_bytes(), cudaMemcpyHostToDevice, stream));
    check(cudaMemcpyAsync(back.data(), on_device, back.size_bytes(), cudaMemcpyDeviceToHost, stream));
    check(cudaStreamSynchronize(stream));
    EXPECT_TRUE(std::equal(out.begin(), out.end(), back.begin()));
  }
  check(cudaStreamDestroy(stream));
  check(cudaFree(on_device));
  check(cudaFreeHost(pinned));
}

}  // namespace
