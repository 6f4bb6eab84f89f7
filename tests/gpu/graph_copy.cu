// SPDX-License-Identifier: Apache-2.0
// A graph whose kernels write a buffer, which a node of the same graph copies, without tidemark, on memory of
// cudaMalloc. This program is the control for compute-sanitizer's initcheck: every report here is an error of
// the tool. The tool checks the copy's source while the kernels run. One kernel therefore takes a fifth of a
// second, because the tool reports only in some runs with fast kernels.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "measure.hpp"

namespace {

using tidemark::test::require;
constexpr std::size_t n = 1 << 16;

__global__ void fill(float* x, float value) { x[blockIdx.x * blockDim.x + threadIdx.x] = value; }
__global__ void add_one(float const* x, float* sum) {
  const unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
  sum[i] = x[i] + 1.0f;
}

__global__ void spin(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
}

int run() {
  float *zeros = nullptr, *to = nullptr, last = 0;
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  require(cudaMalloc(&zeros, 2 * n * sizeof(float)), "cudaMalloc");
  float* const from = zeros + n;
  require(cudaMalloc(&to, n * sizeof(float)), "cudaMalloc");
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  fill<<<n / 256, 256, 0, stream>>>(zeros, 0.0f);
  spin<<<1, 1, 0, stream>>>(400'000'000);
  add_one<<<n / 256, 256, 0, stream>>>(zeros, from);
  require(cudaMemcpyAsync(to, from, n * sizeof(float), cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
  require(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  require(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  require(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
  require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  require(cudaMemcpy(&last, to + n - 1, sizeof last, cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::printf("graph_copy: the last of %zu floats is %g (should be 1)\n", n, last);
  require(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
  require(cudaGraphDestroy(graph), "cudaGraphDestroy");
  require(cudaStreamDestroy(stream), "cudaStreamDestroy");
  require(cudaFree(zeros), "cudaFree");
  require(cudaFree(to), "cudaFree");
  return last == 1.0f ? 0 : 1;
}

}  // namespace

int main() {
  if (!tidemark::test::found_device("graph_copy")) return tidemark::test::skipped;
  try {
    return run();
  } catch (std::exception const& error) {
    std::fprintf(stderr, "graph_copy: %s\n", error.what());
    return 1;
  }
}
