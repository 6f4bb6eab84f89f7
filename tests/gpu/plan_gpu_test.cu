// SPDX-License-Identifier: Apache-2.0
// Strategy: work on a real stream whose temporaries share bytes by a plan. The results are the same as
// without a plan, and addresses stay. All tests skip without a device.
#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <utility>
#include <vector>

#include <tidemark/cuda/driver/capture.hpp>
#include <tidemark/cuda/driver/stream.hpp>
#include <tidemark/cuda/memory/block_resource.hpp>
#include <tidemark/cuda/resources/device_planned_arena.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>
#include <tidemark/tidemark.hpp>

#include "gpu_test.hpp"

namespace tidemark::test {
namespace {

__global__ void next_of(std::size_t n, float const* x, float* next) {
  const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (i < n) next[i] = 2 * x[i] + 1;
}

constexpr std::size_t n = 1 << 16;
constexpr std::size_t bytes = n * sizeof(float);
constexpr int temporaries = 10;

class plan_gpu : public gpu_test {
 protected:
  /// y = 2^11 x + 2^11 - 1, through ten temporaries; two are live at once.
  static auto chain(cudaStream_t stream) {
    return [stream](std::pmr::memory_resource& memory, unique_block& in, unique_block& out) {
      float const* x = in.as<float>().data();
      float* before = nullptr;
      for (int i = 0; i < temporaries; ++i) {
        auto* const next = static_cast<float*>(memory.allocate(bytes));
        next_of<<<n / 256, 256, 0, stream>>>(n, x, next);
        if (before != nullptr) memory.deallocate(before, bytes);
        x = before = next;
      }
      next_of<<<n / 256, 256, 0, stream>>>(n, x, out.as<float>().data());
      memory.deallocate(before, bytes);
    };
  }
  static void put(float value, unique_block const& to, cudaStream_t stream) {
    const std::vector<float> values(n, value);
    check(cudaMemcpyAsync(to.data(), values.data(), bytes, cudaMemcpyHostToDevice, stream));
    check(cudaStreamSynchronize(stream));
  }
  static std::vector<float> get(unique_block const& from, cudaStream_t stream) {
    std::vector<float> values(n);
    check(cudaMemcpyAsync(values.data(), from.data(), bytes, cudaMemcpyDeviceToHost, stream));
    check(cudaStreamSynchronize(stream));
    return values;
  }
  static std::vector<float> result(float x) { return std::vector<float>(n, 2048 * x + 2047); }
};

TEST_F(plan_gpu, graph_with_overlapping_temporaries_replays_correctly) {
  gpu::device_resource device;
  gpu::stream stream;
  device_pool pool{{.stream = stream}};
  unique_block in{&device, bytes}, out{&device, bytes};
  put(0, in, stream);  // a rehearsal reads it
  const step_plan plan =
      rehearse_plan([&](std::pmr::memory_resource& memory) { chain(stream)(memory, in, out); }, &pool);
  EXPECT_EQ(plan.height, 2 * bytes);
  auto graph = capture(stream, std::make_unique<graph_arena>(plan, 0, &device), std::move(in), std::move(out),
                       chain(stream));
  EXPECT_EQ(graph.arena().layout(), *graph.arena().expected());
  for (int i = 0; i < 100; ++i) {
    const auto x = static_cast<float>(i);
    put(x, graph.inputs(), stream);
    graph.launch();
    ASSERT_EQ(get(graph.outputs(), stream), result(x)) << i;
  }
}

TEST_F(plan_gpu, planned_steps_compute_the_same_as_the_recorded_step) {
  gpu::device_resource device;
  gpu::stream stream;
  device_pool pool{{.stream = stream}};
  device_planned_arena memory{planned_arena_options{.fallback = &pool}};
  unique_block in{&device, bytes}, out{&device, bytes};
  for (int i = 0; i < 100; ++i) {
    const auto x = static_cast<float>(i);
    put(x, in, stream);
    {
      const device_planned_arena::step step{memory};
      chain(stream)(memory, in, out);
    }
    ASSERT_EQ(get(out, stream), result(x)) << i;
  }
  EXPECT_EQ(memory.stats().planned_steps, 99u);
  EXPECT_EQ(memory.stats().height_bytes, 2 * bytes);
}

}  // namespace
}  // namespace tidemark::test
