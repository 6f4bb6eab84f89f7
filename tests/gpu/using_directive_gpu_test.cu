// SPDX-License-Identifier: Apache-2.0
// Strategy: a file with `using namespace tidemark;` at file scope, as users write it. CCCL defines the
// namespaces `::cuda` and `::thrust`, and nvcc writes `cuda::std::…` into the code that it generates for
// kernels: a name of tidemark that equals one of these makes this file fail to compile. The second test also
// runs the code on a device.
#include <tidemark/cuda.hpp>
#include <tidemark/tidemark.hpp>
using namespace tidemark;  // before the headers of CCCL and Thrust
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/reduce.h>
#include <thrust/transform.h>

#include <concepts>
#include <cuda/std/functional>
#include <cuda/std/utility>
#include <tidemark/thrust.hpp>

#include "gpu_test.hpp"

static_assert(std::same_as<gpu::stream, tidemark::gpu::stream>);
static_assert(std::same_as<cuda::std::pair<int, int>, ::cuda::std::pair<int, int>>);

// A kernel whose parameter is a type of CCCL: nvcc names the type in the host code that it generates.
template <class Function>
__global__ void apply(Function function, cuda::std::pair<int, int> operands, int* result) {
  *result = function(operands.first, operands.second);
}

TEST(using_directive, cuda_means_cccl_and_gpu_means_tidemark) {
  EXPECT_EQ(cuda::std::plus<int>{}(1, 2), 3);
  EXPECT_EQ(gpu::stream_handle{}, nullptr);
}

class using_directive_gpu : public test::gpu_test {};

TEST_F(using_directive_gpu, kernels_and_algorithms_use_a_device_arena) {
  const gpu::stream stream;
  device_arena step{gpu::virtual_memory{stream}, {.name = "step"}};
  int* const result = step.push_array<int>(1, uninitialized).data();
  apply<<<1, 1, 0, static_cast<cudaStream_t>(stream.get())>>>(cuda::std::plus<int>{},
                                                              cuda::std::pair<int, int>{3, 4}, result);
  int seen = 0;
  check(cudaMemcpyAsync(&seen, result, sizeof seen, cudaMemcpyDeviceToHost,
                        static_cast<cudaStream_t>(stream.get())));
  stream.synchronize();
  EXPECT_EQ(seen, 7);
}
