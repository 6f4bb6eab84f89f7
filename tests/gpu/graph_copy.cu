// SPDX-License-Identifier: Apache-2.0
// A graph whose kernel writes a buffer, which a node of the same graph then copies: without tidemark, on memory of
// cudaMalloc. The control for compute-sanitizer's initcheck: whatever it reports here is a report of the tool alone.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "measure.hpp"

namespace {

constexpr std::size_t n = 1 << 16;

void require(cudaError_t result, char const* what) {
  if (result != cudaSuccess) throw std::runtime_error{std::string{what} + ": " + cudaGetErrorString(result)};
}

__global__ void fill(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f; }

int run() {
  float *from = nullptr, *to = nullptr, last = 0;
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  require(cudaMalloc(&from, n * sizeof(float)), "cudaMalloc");
  require(cudaMalloc(&to, n * sizeof(float)), "cudaMalloc");
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  fill<<<n / 256, 256, 0, stream>>>(from);
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
  require(cudaFree(from), "cudaFree");
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
