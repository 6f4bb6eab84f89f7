// SPDX-License-Identifier: Apache-2.0
#include "rmm_peer.hpp"

#ifdef TIDEMARK_HAS_RMM

#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <stdexcept>

#include "measure.hpp"

std::vector<double> tidemark::test::rmm_sorted_ns(std::size_t bytes, int batch, int steps) {
  cudaStream_t stream{};
  if (cudaStreamCreate(&stream) != cudaSuccess) throw std::runtime_error{"no stream for RMM"};
  std::vector<double> ns;
  {
    rmm::mr::pool_memory_resource pool{rmm::mr::cuda_memory_resource{}, 256U << 20U};  // grows on demand
    const cuda::stream_ref on{stream};
    std::vector<void*> blocks(static_cast<std::size_t>(batch));
    ns = sorted_ns(steps, batch, [&] {
      for (void*& block : blocks) block = pool.allocate(on, bytes, 256);
      for (void* block : blocks) pool.deallocate(on, block, bytes, 256);
    });
  }
  (void)cudaStreamDestroy(stream);
  return ns;
}

#else

std::vector<double> tidemark::test::rmm_sorted_ns(std::size_t, int, int) { return {}; }

#endif
