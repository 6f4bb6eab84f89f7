// SPDX-License-Identifier: Apache-2.0
// The operations as kernels on a stream. They neither allocate nor wait, so that the stream can capture them.
#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>

#include "operations.hpp"

namespace {

template <class Work>
__global__ void kernel(Work work, std::size_t threads) {
  const std::size_t thread = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (thread < threads) work(thread);
}

void require(cudaError_t status) {
  if (status != cudaSuccess)
    throw std::runtime_error{std::string{"CUDA: "} + cudaGetErrorString(status) + "."};
}

class device final : public machine {
 public:
  explicit device(cudaStream_t stream) : stream_{stream} {}
  void run(operation const& work) override {
    std::visit([this](auto const& of_a_kind) { start(of_a_kind); }, work);
  }
  void copy(void const* from, void* to, std::size_t bytes) override {
    require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_));
  }
  void finish() override { require(cudaStreamSynchronize(stream_)); }

 private:
  template <class Work>
  void start(Work const& work) {
    constexpr unsigned int threads_per_block = 128;
    const std::size_t blocks = (work.threads() + threads_per_block - 1) / threads_per_block;
    kernel<<<static_cast<unsigned int>(blocks), threads_per_block, 0, stream_>>>(work, work.threads());
    require(cudaGetLastError());
  }

  cudaStream_t stream_;
};

}  // namespace

std::unique_ptr<machine> cuda_machine(cudaStream_t stream) { return std::make_unique<device>(stream); }
