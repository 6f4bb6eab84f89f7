// SPDX-License-Identifier: Apache-2.0
#include "rmm_peer.hpp"

#ifdef TIDEMARK_HAS_RMM

#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <stdexcept>
#include <vector>

#include "measure.hpp"

double tidemark::test::rmm_step_ns(std::size_t bytes, int batch, int rounds) {
  cudaStream_t stream{};
  if (cudaStreamCreate(&stream) != cudaSuccess) throw std::runtime_error{"no stream for RMM"};
  double ns = 0;
  {
    rmm::mr::pool_memory_resource pool{rmm::mr::cuda_memory_resource{}, 256U << 20U};  // grows on demand
    const cuda::stream_ref on{stream};
    std::vector<void*> blocks(static_cast<std::size_t>(batch));
    ns = median_ns(rounds, 100, [&] {
      for (void*& block : blocks) block = pool.allocate(on, bytes, 256);
      for (void* block : blocks) pool.deallocate(on, block, bytes, 256);
    });
  }
  (void)cudaStreamDestroy(stream);
  return ns / batch;
}

#else

double tidemark::test::rmm_step_ns(std::size_t, int, int) { return -1; }

#endif
