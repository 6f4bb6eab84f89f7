// SPDX-License-Identifier: Apache-2.0
// Strategy: captures of a real stream, replayed: results with inputs that change in place, stable addresses,
// and the state after every kind of failure. All tests skip without a device.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <tidemark/cuda/driver/capture.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/stream.hpp>
#include <tidemark/cuda/memory/block_resource.hpp>
#include <tidemark/tidemark.hpp>

#include "gpu_test.hpp"

namespace tidemark::test {
namespace {

__global__ void add(std::size_t n, float const* a, float const* b, float* sum) {
  const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (i < n) sum[i] = a[i] + b[i];
}
__global__ void fill_rising(std::size_t n, float value, float* x) {
  const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (i < n) x[i] = value * static_cast<float>(i + 1);
}
class graph_gpu : public gpu_test {
 protected:
  /// out = in + 10 * (1, 2, 3, ...), by way of two temporaries in the arena.
  static auto step(cudaStream_t stream) {
    return [stream](std::pmr::memory_resource& memory, unique_block& in, unique_block& out) {
      const std::size_t n = in.bytes() / sizeof(float);
      auto* const tens = static_cast<float*>(memory.allocate(n * sizeof(float)));
      auto* const sum = static_cast<float*>(memory.allocate(n * sizeof(float)));
      fill_rising<<<blocks_for(n), 256, 0, stream>>>(n, 10.0f, tens);
      add<<<blocks_for(n), 256, 0, stream>>>(n, in.as<float>().data(), tens, sum);
      cudaMemcpyAsync(out.data(), sum, n * sizeof(float), cudaMemcpyDeviceToDevice, stream);
      memory.deallocate(tens, n * sizeof(float));
      memory.deallocate(sum, n * sizeof(float));
    };
  }
  static void put(std::vector<float> const& values, unique_block const& to, cudaStream_t stream) {
    check(cudaMemcpyAsync(to.data(), values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice,
                          stream));
  }
  static std::vector<float> get(unique_block const& from, cudaStream_t stream) {
    std::vector<float> values(from.bytes() / sizeof(float));
    check(cudaMemcpyAsync(values.data(), from.data(), from.bytes(), cudaMemcpyDeviceToHost, stream));
    check(cudaStreamSynchronize(stream));
    return values;
  }
  static void expect_usable(cudaStream_t stream) {
    cudaStreamCaptureStatus now{};
    check(cudaStreamIsCapturing(stream, &now));
    EXPECT_EQ(now, cudaStreamCaptureStatusNone);
    check(cudaStreamSynchronize(stream));
  }
};

TEST_F(graph_gpu, replays_read_inputs_changed_in_place) {
  gpu::device_resource device;
  gpu::stream stream;
  constexpr std::size_t n = 4;
  auto graph = capture(stream, std::make_unique<graph_arena>(4 * KiB, &device),
                       unique_block{&device, n * sizeof(float)}, unique_block{&device, n * sizeof(float)},
                       step(stream));
  ASSERT_TRUE(graph.is_replay_capable());
  void const* const in = graph.inputs().data();
  put({1, 2, 3, 4}, graph.inputs(), stream);
  graph.launch();
  EXPECT_EQ(get(graph.outputs(), stream), (std::vector<float>{11, 22, 33, 44}));
  put({5, 6, 7, 8}, graph.inputs(), stream);
  graph.launch();
  EXPECT_EQ(get(graph.outputs(), stream), (std::vector<float>{15, 26, 37, 48}));
  for (int i = 0; i < 1000; ++i) {
    const auto x = static_cast<float>(i);
    put({x, x, x, x}, graph.inputs(), stream);
    graph.launch();
    ASSERT_EQ(get(graph.outputs(), stream), (std::vector<float>{x + 10, x + 20, x + 30, x + 40})) << i;
  }
  EXPECT_EQ(graph.launch_count(), 1002u);
  EXPECT_EQ(graph.inputs().data(), in);
  EXPECT_EQ(graph.arena().high_water_bytes(), 512u);
}

TEST_F(graph_gpu, rehearsed_size_suffices_and_256_bytes_less_throws) {
  gpu::device_resource device;
  gpu::stream stream;
  unique_block in{&device, 4096}, out{&device, 4096};
  put(std::vector<float>(1024, 1.0f), in, stream);  // a rehearsal reads it
  const graph_layout layout =
      rehearse([&](std::pmr::memory_resource& memory) { step(stream)(memory, in, out); }, &device);
  check(cudaStreamSynchronize(stream));
  EXPECT_THROW((void)capture(stream, std::make_unique<graph_arena>(layout.bytes - 256, &device),
                             unique_block{&device, 4096}, unique_block{&device, 4096}, step(stream)),
               out_of_memory);
  expect_usable(stream);
  auto graph = capture(stream, std::make_unique<graph_arena>(layout, &device), std::move(in), std::move(out),
                       step(stream));
  EXPECT_EQ(graph.arena().high_water_bytes(), layout.bytes);
}

TEST_F(graph_gpu, throwing_body_leaves_the_stream_usable) {
  gpu::device_resource device;
  gpu::stream stream;
  EXPECT_THROW((void)capture(stream, std::make_unique<graph_arena>(4 * KiB, &device), 0, 0,
                             [&](std::pmr::memory_resource& memory, int&, int&) {
                               fill_rising<<<1, 64, 0, stream>>>(64, 1.0f,
                                                                 static_cast<float*>(memory.allocate(256)));
                               throw std::runtime_error{"body"};
                             }),
               std::runtime_error);
  expect_usable(stream);
}

TEST_F(graph_gpu, empty_body_throws_empty_capture) {
  gpu::device_resource device;
  gpu::stream stream;
  EXPECT_THROW((void)capture(stream, std::make_unique<graph_arena>(4 * KiB, &device), 0, 0,
                             [](std::pmr::memory_resource&, int&, int&) {}),
               empty_capture);
  expect_usable(stream);
}

TEST_F(graph_gpu, refused_call_ends_the_capture_with_the_drivers_error) {
  gpu::device_resource device;
  gpu::stream stream;
  try {
    (void)capture(stream, std::make_unique<graph_arena>(4 * KiB, &device), 0, 0,
                  [&](std::pmr::memory_resource&, int&, int&) { (void)cudaStreamSynchronize(stream); });
    ADD_FAILURE() << "a stream that captures cannot be waited for";
  } catch (cuda_error const& error) {
    EXPECT_EQ(error.status(), gpu::status::capture_invalidated) << error.what();
  }
  (void)cudaGetLastError();
  expect_usable(stream);
}

TEST_F(graph_gpu, the_default_stream_cannot_be_captured) {
  gpu::device_resource device;
  EXPECT_THROW((void)capture(gpu::stream_handle{nullptr}, std::make_unique<graph_arena>(4 * KiB, &device), 0,
                             0, [](std::pmr::memory_resource&, int&, int&) {}),
               cuda_error);
}

TEST_F(graph_gpu, code_that_allocates_through_a_switch_is_captured_unchanged) {
  gpu::device_resource device;
  capture_switch memory{&device};
  gpu::stream stream;
  const auto body = [&](std::pmr::memory_resource&, unique_block& in, unique_block& out) {
    step(stream)(memory, in, out);  // as it is written outside of captures
  };
  unique_block in{&memory, 16}, out{&memory, 16};
  const capture_switch_stats before = memory.stats();
  auto graph = capture(stream, memory, std::make_unique<graph_arena>(4 * KiB, &device), std::move(in),
                       std::move(out), body);
  EXPECT_EQ(graph.arena().stats().allocations, 2u);
  EXPECT_EQ(memory.stats().used_blocks, before.used_blocks);
  put({1, 2, 3, 4}, graph.inputs(), stream);
  graph.launch();
  EXPECT_EQ(get(graph.outputs(), stream), (std::vector<float>{11, 22, 33, 44}));
}

TEST_F(graph_gpu, another_thread_allocates_while_a_stream_captures) {
  gpu::device_resource device;
  capture_switch memory{&device};
  gpu::stream stream;
  auto graph =
      capture(stream, memory, std::make_unique<graph_arena>(4 * KiB, &device), unique_block{&memory, 16},
              unique_block{&memory, 16}, [&](auto& arena, unique_block& in, unique_block& out) {
                step(stream)(arena, in, out);
                std::thread{[&] { const unique_block other{&memory, 1 * MiB}; }}.join();
              });
  put({1, 2, 3, 4}, graph.inputs(), stream);
  graph.launch();
  EXPECT_EQ(get(graph.outputs(), stream), (std::vector<float>{11, 22, 33, 44}));
}

TEST_F(graph_gpu, a_graph_is_launched_from_another_thread_and_on_another_stream) {
  gpu::device_resource device;
  gpu::stream stream;
  auto graph = capture(stream, std::make_unique<graph_arena>(4 * KiB, &device), unique_block{&device, 16},
                       unique_block{&device, 16}, step(stream));
  std::thread{[moved = std::move(graph)]() mutable {
    gpu::stream own;
    put({1, 2, 3, 4}, moved.inputs(), own);
    moved.launch(own);
    EXPECT_EQ(get(moved.outputs(), own), (std::vector<float>{11, 22, 33, 44}));
  }}.join();
}

// Nothing that ends with the graph is the driver's memory, because cuMemFree waits by itself. The arena's
// memory and the body's inputs and outputs live on. The body spins between writing its temporaries and
// reading them. The overwriting kernel first spins for a quarter of that time, so that without the wait it
// runs between the two.
TEST_F(graph_gpu, destroying_a_running_graph_waits_for_its_launch) {
  gpu::device_resource device;
  gpu::stream stream, other;
  constexpr std::size_t n = 1 << 16, bytes = n * sizeof(float);
  constexpr long long cycles = 400'000'000;  // about a fifth of a second
  const unique_block lent{&device, 2 * bytes}, in{&device, bytes}, result{&device, bytes};
  put(std::vector<float>(n, 1.0f), in, stream);
  check(cudaStreamSynchronize(stream));
  spin<<<1, 1, 0, other>>>(1);  // the first launch of a kernel loads it, which may wait for the device
  check(cudaStreamSynchronize(other));
  {
    auto graph =
        capture(stream,
                std::make_unique<graph_arena>(
                    byte_range{reinterpret_cast<std::uintptr_t>(lent.data()), lent.bytes()}),
                0, 0, [&](std::pmr::memory_resource& memory, int&, int&) {
                  auto* const tens = static_cast<float*>(memory.allocate(bytes));
                  auto* const sum = static_cast<float*>(memory.allocate(bytes));
                  fill_rising<<<blocks_for(n), 256, 0, stream>>>(n, 10.0f, tens);
                  spin<<<1, 1, 0, stream>>>(cycles);
                  add<<<blocks_for(n), 256, 0, stream>>>(n, in.as<float>().data(), tens, sum);
                  check(cudaMemcpyAsync(result.data(), sum, bytes, cudaMemcpyDeviceToDevice, stream));
                });
    graph.launch();
  }
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess) << "the graph was gone before its launch had ended";
  spin<<<1, 1, 0, other>>>(cycles / 4);
  check(cudaMemsetAsync(lent.data(), 0, lent.bytes(), other));
  check(cudaStreamSynchronize(other));
  const std::vector<float> values = get(result, stream);
  EXPECT_EQ(values.front(), 11.0f);
  EXPECT_EQ(values.back(), 1.0f + 10.0f * static_cast<float>(n));
}

}  // namespace
}  // namespace tidemark::test
