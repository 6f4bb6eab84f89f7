// SPDX-License-Identifier: Apache-2.0
// What memory costs on a device: ours beside CUDA's allocators, and beside RMM's pool where that is there.
// Prints the tables as they go into docs/gpu.md.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/cuda/driver/capture.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/stream.hpp>
#include <tidemark/cuda/memory/block_resource.hpp>
#include <tidemark/cuda/memory/virtual_memory.hpp>
#include <tidemark/cuda/resources/device_arena.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>
#include <tidemark/tidemark.hpp>

#include "measure.hpp"
#include "rmm_peer.hpp"

namespace {

using namespace tidemark;
using test::median_ns;

constexpr int rounds = 15;

void require(cudaError_t result, char const* what) {
  if (result != cudaSuccess) throw std::runtime_error{std::string{what} + ": " + cudaGetErrorString(result)};
}

void use(void* block) { asm volatile("" : : "r"(block) : "memory"); }

// ---- allocating and freeing -------------------------------------------------------------------------------

constexpr std::size_t sizes[] = {256, 4 * KiB, 64 * KiB, 1 * MiB};
constexpr int batch = 64;  // blocks that a step takes before it gives them back

/// A step of `batch` blocks, allocated and all freed: nanoseconds a block.
double arena_step_ns(std::size_t bytes) {
  cuda::stream stream;
  device_arena memory{cuda::virtual_memory{stream}, arena_options{.reserve = 256 * MiB, .name = "table"}};
  return median_ns(rounds, 1000,
                   [&] {
                     device_arena::scope scope{memory};
                     for (int i = 0; i < batch; ++i) use(memory.allocate(bytes));
                   }) /
         batch;
}
double resource_step_ns(std::pmr::memory_resource& memory, std::size_t bytes, int repetitions) {
  std::vector<void*> blocks(batch);
  return median_ns(rounds, repetitions,
                   [&] {
                     for (void*& block : blocks) use(block = memory.allocate(bytes, 256));
                     for (void* block : blocks) memory.deallocate(block, bytes, 256);
                   }) /
         batch;
}
double pool_step_ns(std::size_t bytes) {
  cuda::device_resource device;
  device_pool memory{{.upstream = &device}};
  std::vector<void*> blocks(batch);
  return median_ns(rounds, 1000,
                   [&] {
                     for (void*& block : blocks) use(block = memory.allocate(bytes));
                     for (void* block : blocks) memory.deallocate(block, bytes);
                   }) /
         batch;
}
double malloc_async_step_ns(std::size_t bytes) {
  cuda::stream stream;
  cudaMemPool_t pool{};
  std::uint64_t keep_all = UINT64_MAX;
  require(cudaDeviceGetDefaultMemPool(&pool, 0), "cudaDeviceGetDefaultMemPool");
  require(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_all),
          "cudaMemPoolSetAttribute");
  std::vector<void*> blocks(batch);
  const double ns = median_ns(rounds, 100,
                              [&] {
                                for (void*& block : blocks) {
                                  require(cudaMallocAsync(&block, bytes, stream.get()), "cudaMallocAsync");
                                }
                                for (void* block : blocks)
                                  require(cudaFreeAsync(block, stream.get()), "cudaFreeAsync");
                              }) /
                    batch;
  stream.synchronize();
  return ns;
}

void table_of_allocations() {
  std::puts("## Allocate and free, ns a block\n");
  std::printf("A step takes %d blocks and gives them back; the median of %d rounds, warm.\n\n", batch,
              rounds);
  std::puts(
      "| bytes | device_arena | device_pool | cudaMallocAsync | cudaMalloc | RMM's pool | "
      "cudaMallocAsync / arena (target 20) | RMM / arena (target 5) |");
  std::puts("|---|---|---|---|---|---|---|---|");
  for (const std::size_t bytes : sizes) {
    cuda::device_resource device;
    const double arena = arena_step_ns(bytes), pool = pool_step_ns(bytes),
                 async = malloc_async_step_ns(bytes), plain = resource_step_ns(device, bytes, 3),
                 rmm = test::rmm_step_ns(bytes, batch, rounds);
    std::printf("| %zu | %.2f | %.2f | %.0f | %.0f | ", bytes, arena, pool, async, plain);
    if (rmm > 0) std::printf("%.0f | %.0f | %.0f |\n", rmm, async / arena, rmm / arena);
    else std::printf("not built in | %.0f | |\n", async / arena);
  }
  std::puts("");
}

// ---- replaying --------------------------------------------------------------------------------------------

__global__ void increment(float* x) { *x += 1.0f; }

void table_of_replays() {
  std::puts("## Replay of a graph of small kernels, microseconds on the host and to the end\n");
  std::puts(
      "| kernels | eager, host | eager, to the end | launch(), host | launch(), to the end | "
      "cudaGraphLaunch, host |");
  std::puts("|---|---|---|---|---|---|");
  for (const int kernels : {1, 10, 100}) {
    cuda::device_resource device;
    cuda::stream stream;
    const auto body = [&, kernels](std::pmr::memory_resource& memory, unique_block& x, int&) {
      for (int i = 0; i < kernels; ++i) {
        const unique_block temporary{&memory, 1024, 256};
        use(temporary.data());
        increment<<<1, 1, 0, stream.get()>>>(x.as<float>().data());
      }
    };
    unique_block x{&device, sizeof(float)};
    int nothing = 0;
    device_pool eager_memory{{.upstream = &device}};
    const auto eager = [&] { body(eager_memory, x, nothing); };
    const double eager_host = median_ns(rounds, 20, eager);
    stream.synchronize();
    const double eager_end = median_ns(rounds, 20, [&] { eager(), stream.synchronize(); });
    auto graph = capture(stream, std::make_unique<graph_arena>(1 * MiB, &device), std::move(x), 0, body);
    graph.launch();
    stream.synchronize();
    const double host = median_ns(rounds, 20, [&] { graph.launch(); });
    stream.synchronize();
    const double end = median_ns(rounds, 20, [&] { graph.launch(), stream.synchronize(); });

    cudaGraph_t raw{};
    cudaGraphExec_t executable{};
    require(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    for (int i = 0; i < kernels; ++i) {
      increment<<<1, 1, 0, stream.get()>>>(graph.inputs().as<float>().data());
    }
    require(cudaStreamEndCapture(stream.get(), &raw), "cudaStreamEndCapture");
    require(cudaGraphInstantiate(&executable, raw, 0), "cudaGraphInstantiate");
    const double bare =
        median_ns(rounds, 20, [&] { require(cudaGraphLaunch(executable, stream.get()), "cudaGraphLaunch"); });
    stream.synchronize();
    (void)cudaGraphExecDestroy(executable);
    (void)cudaGraphDestroy(raw);
    std::printf("| %d | %.2f | %.2f | %.2f | %.2f | %.2f |\n", kernels, eager_host / 1e3, eager_end / 1e3,
                host / 1e3, end / 1e3, bare / 1e3);
  }
  std::puts("");
}

// ---- mapping ----------------------------------------------------------------------------------------------

/// Addresses with handles of one size behind all of them, or not.
class mapped_by_handles {
 public:
  mapped_by_handles(std::size_t bytes, std::size_t handle_bytes)
      : handle_bytes_{handle_bytes}, handles_(bytes / handle_bytes) {
    cuda::require(driver_, "cuMemAddressReserve", driver_.reserve(bytes, handle_bytes, range_));
  }
  mapped_by_handles(mapped_by_handles const&) = delete;
  mapped_by_handles& operator=(mapped_by_handles const&) = delete;
  ~mapped_by_handles() { (void)driver_.free_reservation(range_); }

  void map() {
    for (std::size_t i = 0; i < handles_.size(); ++i) {
      cuda::require(driver_, "cuMemCreate", driver_.create(0, handle_bytes_, handles_[i]));
      cuda::require(driver_, "cuMemMap",
                    driver_.map({range_.begin + i * handle_bytes_, handle_bytes_}, handles_[i]));
    }
    cuda::require(driver_, "cuMemSetAccess", driver_.allow_access(range_, 0));
  }
  void unmap() {
    cuda::require(driver_, "cuMemUnmap", driver_.unmap(range_));
    for (const cuda::physical_handle handle : handles_) {
      cuda::require(driver_, "cuMemRelease", driver_.release(handle));
    }
  }
  [[nodiscard]] std::size_t handles() const { return handles_.size(); }

 private:
  cuda::driver& driver_ = cuda::default_driver();
  std::size_t handle_bytes_;
  std::vector<cuda::physical_handle> handles_;
  byte_range range_;
};

void table_of_mappings() {
  constexpr std::size_t total = 512 * MiB;
  std::puts("## Memory behind 512 MiB of addresses, by the size of a handle, microseconds\n");
  std::puts("| MiB a handle | handles | map all | map, a handle | unmap all | unmap, a handle |");
  std::puts("|---|---|---|---|---|---|");
  for (std::size_t handle_bytes = 2 * MiB; handle_bytes <= 512 * MiB; handle_bytes *= 4) {
    mapped_by_handles memory{total, handle_bytes};
    std::vector<double> maps, unmaps;
    for (int i = 0; i < rounds; ++i) {
      maps.push_back(median_ns(1, 1, [&] { memory.map(); }));
      unmaps.push_back(median_ns(1, 1, [&] { memory.unmap(); }));
    }
    std::nth_element(maps.begin(), maps.begin() + rounds / 2, maps.end());
    std::nth_element(unmaps.begin(), unmaps.begin() + rounds / 2, unmaps.end());
    const double map = maps[rounds / 2] / 1e3, unmap = unmaps[rounds / 2] / 1e3;
    const auto handles = static_cast<double>(memory.handles());
    std::printf("| %zu | %.0f | %.0f | %.1f | %.0f | %.1f |\n", handle_bytes / MiB, handles, map,
                map / handles, unmap, unmap / handles);
  }
  std::puts("");
}

}  // namespace

int main() {
  if (!test::found_device("table")) return test::skipped;
  int failed = 0;
  for (void (*const print)() : {table_of_allocations, table_of_replays, table_of_mappings}) {
    try {
      print();
    } catch (std::exception const& error) {
      std::printf("no table: %s\n\n", error.what());
      ++failed;
    }
  }
  return failed == 0 ? 0 : 1;
}
