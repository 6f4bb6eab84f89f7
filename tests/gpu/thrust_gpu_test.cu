// SPDX-License-Identifier: Apache-2.0
// Strategy: the behaviour of the adapters for Thrust that only a device shows: work on the stream of the
// memory, vectors and algorithms inside a capture, two ordered streams. The tests of tests/thrust also run on
// the device.
#include <cuda_runtime.h>
#include <thrust/copy.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <vector>

#include <tidemark/cuda.hpp>
#include <tidemark/thrust.hpp>
#include <tidemark/tidemark.hpp>

#include "gpu_test.hpp"
#include "host_thrust_side.hpp"

namespace tidemark::test {
namespace {

struct negated {
  __host__ __device__ float operator()(float x) const { return -x; }
};

constexpr long long long_cycles = 20'000'000;  // some 10 ms

class thrust_gpu : public gpu_test {
 protected:
  static std::vector<float> get(float const* from, std::size_t n, cudaStream_t stream) {
    std::vector<float> values(n);
    check(cudaMemcpyAsync(values.data(), from, n * sizeof(float), cudaMemcpyDeviceToHost, stream));
    check(cudaStreamSynchronize(stream));
    return values;
  }
};

// Needs no device. Instances of this file for CUDA must not replace those of the other file for the host.
TEST(thrust_systems, host_and_device_translation_units_link_together) { EXPECT_EQ(sum_on_host(100), 5050); }

TEST_F(thrust_gpu, a_vector_is_made_on_the_stream_of_its_arena) {
  gpu::stream stream;
  device_arena step{{.reserve = 64 * MiB}, stream.get()};
  device_vector<float> source(1000, 1.0f, &step);
  // Late work of the stream. The copy follows it only if the copy is on that stream.
  spin<<<1, 1, 0, stream>>>(long_cycles);
  fill<<<4, 256, 0, stream>>>(1000, 2.0f, thrust::raw_pointer_cast(source.data()));
  const device_vector<float> copy{source};
  EXPECT_EQ(get(thrust::raw_pointer_cast(copy.data()), 1000, stream), std::vector<float>(1000, 2.0f));
}

TEST_F(thrust_gpu, algorithms_run_on_the_stream_of_the_arena_of_their_temporaries) {
  gpu::stream stream;
  device_arena step{{.reserve = 64 * MiB}, stream.get()};
  device_vector<float> numbers(1000, 0.0f, &step);
  spin<<<1, 1, 0, stream>>>(long_cycles);
  fill<<<4, 256, 0, stream>>>(1000, 3.0f, thrust::raw_pointer_cast(numbers.data()));
  EXPECT_EQ(thrust::reduce(par(step), numbers.begin(), numbers.end()), 3000.0f);
}

TEST_F(thrust_gpu, warm_sort_allocates_no_device_memory) {
  gpu::stream stream;
  device_arena step{{.reserve = 256 * MiB}, stream.get()};
  device_vector<float> keys(1 << 20, &step);
  std::size_t committed = 0;
  for (int turn = 0; turn < 5; ++turn) {
    device_arena::scope scope{step};
    thrust::sequence(par(step), keys.begin(), keys.end(), 1.0f, -1.0f);
    thrust::sort(par(step), keys.begin(), keys.end());
    EXPECT_GT(step.stats().peak_bytes, keys.size() * sizeof(float));  // the temporary lies in it
    if (turn > 0) EXPECT_EQ(step.stats().committed_bytes, committed);
    committed = step.stats().committed_bytes;
  }
}

TEST_F(thrust_gpu, vectors_and_algorithms_can_be_captured_and_replayed) {
  gpu::device_resource device;
  gpu::stream stream;
  constexpr std::size_t n = 1000;
  const auto body = [&](std::pmr::memory_resource& memory, unique_block& in, unique_block& out) {
    const thrust_allocator<float> on_stream{&memory, stream};
    const thrust::device_ptr<float> first{in.as<float>().data()};
    device_vector<float> sums(n, 0.0f, on_stream);
    device_vector<float> sorted(first, first + n, on_stream);
    thrust::sort(par(memory, stream), sorted.begin(), sorted.end());
    thrust::inclusive_scan(par(memory, stream), sorted.begin(), sorted.end(), sums.begin());
    thrust::transform(par(memory, stream), sums.begin(), sums.end(),
                      thrust::device_ptr<float>{out.as<float>().data()}, negated{});
  };
  auto graph =
      capture(stream, std::make_unique<graph_arena>(16 * MiB, &device),
              unique_block{&device, n * sizeof(float)}, unique_block{&device, n * sizeof(float)}, body);
  for (int replay = 1; replay <= 3; ++replay) {
    std::vector<float> input(n), expected(n);
    for (std::size_t i = 0; i < n; ++i) input[i] = static_cast<float>(replay * static_cast<int>(n - i));
    check(cudaMemcpyAsync(graph.inputs().data(), input.data(), n * sizeof(float), cudaMemcpyHostToDevice,
                          stream));
    graph.launch();
    float sum = 0;
    for (std::size_t i = 0; i < n; ++i)
      expected[i] = -(sum += static_cast<float>(replay * static_cast<int>(i + 1)));
    EXPECT_EQ(get(graph.outputs().as<float>().data(), n, stream), expected) << replay;
  }
}

TEST_F(thrust_gpu, an_algorithm_that_returns_a_number_cannot_be_captured) {
  gpu::device_resource device;
  gpu::stream stream;
  EXPECT_ANY_THROW((void)capture(stream, std::make_unique<graph_arena>(16 * MiB, &device),
                                 unique_block{&device, 4096}, unique_block{&device, 4096},
                                 [&](std::pmr::memory_resource& memory, unique_block& in, unique_block&) {
                                   const thrust::device_ptr<float> first{in.as<float>().data()};
                                   (void)thrust::reduce(par(memory, stream), first, first + 1024);
                                 }));
  (void)cudaGetLastError();
  cudaStreamCaptureStatus now{};
  check(cudaStreamIsCapturing(stream, &now));
  EXPECT_EQ(now, cudaStreamCaptureStatusNone);
}

TEST_F(thrust_gpu, memory_for_another_stream_waits_for_work_on_the_pools_stream) {
  gpu::stream own, other;
  device_pool blocks{{.stream = own.get()}};
  const cuda_resource resource{blocks};
  constexpr std::size_t n = 1024;
  auto handle = resource;
  auto* const first = static_cast<float*>(handle.allocate(::cuda::stream_ref{own.get()}, n * sizeof(float)));
  spin<<<1, 1, 0, own>>>(long_cycles);
  fill<<<4, 256, 0, own>>>(n, 1.0f, first);
  handle.deallocate(::cuda::stream_ref{own.get()}, first, n * sizeof(float));
  // The same block, while its last user's work is still to come.
  auto* const second =
      static_cast<float*>(handle.allocate(::cuda::stream_ref{other.get()}, n * sizeof(float)));
  ASSERT_EQ(second, first);
  fill<<<4, 256, 0, other>>>(n, 2.0f, second);
  EXPECT_EQ(get(second, n, other), std::vector<float>(n, 2.0f));
  handle.deallocate(::cuda::stream_ref{other.get()}, second, n * sizeof(float));
}

}  // namespace
}  // namespace tidemark::test
