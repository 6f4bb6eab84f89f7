// SPDX-License-Identifier: Apache-2.0
// Strategy: device arenas, blocks, pools and caches on a real device. Kernels write the memory, and the
// results are read back. All tests skip without a device.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <utility>
#include <vector>

#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/event.hpp>
#include <tidemark/cuda/driver/stream.hpp>
#include <tidemark/cuda/memory/block_resource.hpp>
#include <tidemark/cuda/memory/detail/whole_allocations.hpp>
#include <tidemark/cuda/memory/imported_memory.hpp>
#include <tidemark/cuda/memory/virtual_memory.hpp>
#include <tidemark/cuda/resources/device_arena.hpp>
#include <tidemark/cuda/resources/device_cache.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>
#include <tidemark/tidemark.hpp>

#include "gpu_test.hpp"

namespace tidemark::test {
namespace {

__global__ void set(std::size_t n, int value, int* x) {
  const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (i < n) x[i] = value;
}
__global__ void spin_then_set(long long cycles, int value, int* x) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
  *x = value;
}

class device_memory_gpu : public gpu_test {
 protected:
  /// Memory is whole allocations there.
  static bool is_under_compute_sanitizer() { return gpu::detail::whole_allocations::are_needed(); }
  static std::vector<int> read(int const* from, std::size_t n, cudaStream_t stream) {
    std::vector<int> values(n);
    check(cudaMemcpyAsync(values.data(), from, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
    check(cudaStreamSynchronize(stream));
    return values;
  }
  static void fill(std::span<int> x, int value, cudaStream_t stream) {
    set<<<blocks_for(x.size()), 256, 0, stream>>>(x.size(), value, x.data());
    check(cudaGetLastError());
  }
};

TEST_F(device_memory_gpu, device_arena_grows_and_keeps_its_addresses) {
  gpu::stream stream;
  device_arena memory{gpu::virtual_memory{stream}, {.reserve = 1 * GiB, .name = "growing"}};
  std::vector<std::span<int>> blocks;
  for (int i = 0; i < 64; ++i) {
    blocks.push_back(memory.push_array<int>(1 * MiB, uninitialized));
    fill(blocks.back(), i, stream);
  }
  EXPECT_EQ(memory.stats().chunks, is_under_compute_sanitizer() ? 3u : 1u);
  for (int i = 0; i < 64; ++i) {
    const std::vector<int> found = read(blocks[i].data(), blocks[i].size(), stream);
    EXPECT_EQ(found.front(), i);
    EXPECT_EQ(found.back(), i);
  }
}

TEST_F(device_memory_gpu, repeated_step_makes_no_driver_call) {
  gpu::stream stream;
  device_arena memory{gpu::virtual_memory{stream}, {.reserve = 1 * GiB, .name = "step"}};
  std::uint64_t calls = 0;
  int const* previous = nullptr;
  for (int step = 0; step < 10; ++step) {
    device_arena::scope scope{memory};
    const std::span<int> x = memory.push_array<int>(4 * MiB, uninitialized);
    fill(x, step, stream);
    EXPECT_EQ(read(x.data() + x.size() - 1, 1, stream)[0], step);
    if (previous != nullptr) {
      EXPECT_EQ(x.data(), previous);
      EXPECT_EQ(memory.stats().system_calls, calls);
    }
    previous = x.data();
    calls = memory.stats().system_calls;
  }
}

TEST_F(device_memory_gpu, imported_memory_aliases_the_exported_memory) {
  if (is_under_compute_sanitizer()) GTEST_SKIP() << "compute-sanitizer: memory cannot be exported";
  gpu::stream stream;
  device_arena memory{
      {.reserve = 64 * MiB, .name = "exported"},
      gpu::virtual_memory_options{.stream = stream, .exported_as = gpu::handle_type::file_descriptor}};
  const std::span<int> x = memory.push_array<int>(3 * MiB, uninitialized);
  fill(x, 7, stream);
  gpu::exported_memory exported =
      memory.space().export_memory({reinterpret_cast<std::uintptr_t>(x.data()), x.size_bytes()});
  const gpu::imported_memory shared{exported, {.stream = stream}};
  exported.handles.clear();
  const std::span<int> y{static_cast<int*>(shared.range().data()), x.size()};
  EXPECT_NE(y.data(), x.data());
  const std::vector<int> seen = read(y.data(), y.size(), stream);
  EXPECT_EQ(seen.front(), 7);
  EXPECT_EQ(seen.back(), 7);
  fill(y, 8, stream);
  EXPECT_EQ(read(x.data() + x.size() - 1, 1, stream)[0], 8);
  memory.release();
  EXPECT_EQ(read(y.data() + y.size() - 1, 1, stream)[0], 8) << "the importer keeps it";
}

TEST_F(device_memory_gpu, suspended_arena_returns_its_memory_and_keeps_its_addresses) {
  if (is_under_compute_sanitizer()) GTEST_SKIP() << "compute-sanitizer: memory cannot be suspended";
  gpu::stream stream;
  device_arena memory{gpu::virtual_memory{stream}, {.reserve = 1 * GiB, .name = "asleep"}};
  const std::span<int> x = memory.push_array<int>(64 * MiB, uninitialized);
  fill(x, 1, stream);
  stream.synchronize();
  std::size_t before = 0, during = 0, total = 0;
  check(cudaMemGetInfo(&before, &total));
  memory.suspend();
  check(cudaMemGetInfo(&during, &total));
  EXPECT_GE(during, before + 256 * MiB);
  memory.resume();
  fill(x, 2, stream);
  EXPECT_EQ(read(x.data(), x.size(), stream).back(), 2);
}

TEST_F(device_memory_gpu, memory_used_by_another_stream_is_reused_only_after_its_event) {
  gpu::stream own, other;
  device_arena memory{gpu::virtual_memory{own}, {.reserve = 64 * MiB, .name = "shared"}};
  int* x = nullptr;
  {
    device_arena::scope scope{memory};
    x = memory.push<int>(uninitialized);
    spin_then_set<<<1, 1, 0, other.get()>>>(100'000'000, 1, x);
    check(cudaGetLastError());
    gpu::event used{other.get()};
    scope.end_after(used);
  }
  int* const again = memory.push<int>(uninitialized);
  EXPECT_EQ(again, x);
  fill({again, 1}, 2, own);  // after the other's, although that takes longer
  own.synchronize();
  other.synchronize();
  EXPECT_EQ(read(again, 1, own)[0], 2);
}

TEST_F(device_memory_gpu, a_pool_allocates_blocks_that_kernels_use) {
  gpu::stream stream;
  gpu::device_resource device;
  device_pool memory{{.stream = stream, .upstream = &device}};
  for (int round = 0; round < 10; ++round) {
    std::vector<std::pair<int*, std::size_t>> blocks;
    for (std::size_t n = 1; n < 1'000'000; n = n * 3 + 1) {
      blocks.emplace_back(static_cast<int*>(memory.allocate(n * sizeof(int))), n);
      fill({blocks.back().first, n}, static_cast<int>(n) + round, stream);
    }
    for (auto const& [block, n] : blocks) {
      EXPECT_EQ(read(block, n, stream), std::vector<int>(n, static_cast<int>(n) + round));
      memory.deallocate(block, n * sizeof(int));
    }
  }
}

TEST_F(device_memory_gpu, a_cache_calls_the_driver_once_for_repeated_requests) {
  gpu::stream stream;
  device_cache memory{{.stream = stream}};
  for (int round = 0; round < 100; ++round) {
    auto* const x = static_cast<int*>(memory.allocate(1 * MiB));
    fill({x, 1 * MiB / sizeof(int)}, round, stream);
    EXPECT_EQ(read(x, 1, stream)[0], round);
    memory.deallocate(x, 1 * MiB);
  }
  EXPECT_EQ(memory.stats().misses, 1u);
}

TEST_F(device_memory_gpu, request_beyond_the_device_memory_throws_and_changes_nothing) {
  gpu::stream stream;
  gpu::device_resource device;
  device_cache cache{{.stream = stream}};
  std::size_t free_bytes = 0, total = 0;
  check(cudaMemGetInfo(&free_bytes, &total));
  EXPECT_THROW((void)device.allocate(total + 1 * GiB), out_of_memory);
  EXPECT_THROW((void)cache.allocate(total + 1 * GiB), out_of_memory);
  void* const block = cache.allocate(1 * MiB);
  EXPECT_NE(block, nullptr);
  cache.deallocate(block, 1 * MiB);
}

TEST_F(device_memory_gpu, pinned_and_managed_arenas_are_accessible_from_host_and_device) {
  gpu::stream stream;
  pinned_arena staging{gpu::pinned_memory{16 * MiB}, {.name = "staging"}};
  managed_arena shared{gpu::managed_memory{16 * MiB}, {.name = "shared"}};
  const std::span<int> x = shared.push_array<int>(1000);
  fill(x, 7, stream);
  const std::span<int> copy = staging.push_array<int>(1000);
  check(cudaMemcpyAsync(copy.data(), x.data(), x.size_bytes(), cudaMemcpyDefault, stream));
  stream.synchronize();
  EXPECT_EQ(x[999], 7);
  EXPECT_EQ(copy[999], 7);
}

}  // namespace
}  // namespace tidemark::test
