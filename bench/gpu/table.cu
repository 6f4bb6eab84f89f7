// SPDX-License-Identifier: Apache-2.0
// The cost of memory on a device: ours beside CUDA's allocators, and beside RMM's pool if it is built in.
// Prints the tables for docs/gpu.md.
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
#include <tidemark/cuda/resources/device_cache.hpp>
#include <tidemark/cuda/resources/device_pool.hpp>
#include <tidemark/tidemark.hpp>

#include "measure.hpp"
#include "rmm_peer.hpp"

namespace {

using namespace tidemark;
using test::median_ns;
using test::require;

constexpr int rounds = 15;

void use(void* block) { asm volatile("" : : "r"(block) : "memory"); }

// ---- allocating and freeing -------------------------------------------------------------------------------

constexpr std::size_t sizes[] = {256, 4 * KiB, 64 * KiB, 1 * MiB};
constexpr int batch = 64;  // blocks that a step takes before it gives them back

/// Returns the time of each of `steps` steps in nanoseconds per block. A step allocates `batch` blocks and
/// frees all of them.
using stepper = std::vector<double> (*)(std::size_t bytes, int steps);

template <class Allocate, class Deallocate>
std::vector<double> steps_of(int steps, Allocate allocate, Deallocate deallocate) {
  std::vector<void*> blocks(batch);
  const auto step = [&] {
    for (void*& block : blocks) use(block = allocate());
    for (void* block : blocks) deallocate(block);
  };
  for (int i = 0; i < 3; ++i) step();  // warm
  return test::sorted_ns(steps, batch, step);
}
template <class Resource>
std::vector<double> steps_of(int steps, Resource& memory, std::size_t bytes) {
  return steps_of(
      steps, [&] { return memory.allocate(bytes, 256); },
      [&](void* block) { memory.deallocate(block, bytes, 256); });
}

std::vector<double> arena_steps(std::size_t bytes, int steps) {
  gpu::stream stream;
  device_arena memory{gpu::virtual_memory{stream}, arena_options{.reserve = 256 * MiB, .name = "table"}};
  return test::sorted_ns(steps, batch, [&] {
    device_arena::scope scope{memory};
    for (int i = 0; i < batch; ++i) use(memory.allocate(bytes));
  });
}
std::vector<double> pool_steps(std::size_t bytes, int steps) {
  gpu::stream stream;
  device_pool memory{{.stream = stream}};
  return steps_of(steps, memory, bytes);
}
std::vector<double> cache_steps(std::size_t bytes, int steps) {
  gpu::stream stream;
  device_cache memory{{.stream = stream}};
  return steps_of(steps, memory, bytes);
}
std::vector<double> plain_steps(std::size_t bytes, int steps) {
  gpu::device_resource device;
  return steps_of(std::min(steps, 50), device, bytes);
}
std::vector<double> malloc_async_steps(std::size_t bytes, int steps) {
  gpu::stream stream;
  cudaMemPool_t pool{};
  std::uint64_t keep_all = UINT64_MAX;
  require(cudaDeviceGetDefaultMemPool(&pool, 0), "cudaDeviceGetDefaultMemPool");
  require(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_all),
          "cudaMemPoolSetAttribute");
  std::vector<double> taken = steps_of(
      std::min(steps, 2000),
      [&] {
        void* block = nullptr;
        require(cudaMallocAsync(&block, bytes, stream.get()), "cudaMallocAsync");
        return block;
      },
      [&](void* block) { require(cudaFreeAsync(block, stream.get()), "cudaFreeAsync"); });
  stream.synchronize();
  return taken;
}
std::vector<double> rmm_steps(std::size_t bytes, int steps) {
  return test::rmm_sorted_ns(bytes, batch, std::min(steps, 2000));
}

struct allocator {
  char const* name;
  stepper steps;
};
constexpr allocator allocators[] = {{"device_arena", arena_steps}, {"device_pool", pool_steps},
                                    {"device_cache", cache_steps}, {"cudaMallocAsync", malloc_async_steps},
                                    {"cudaMalloc", plain_steps},   {"RMM's pool", rmm_steps}};

// The p-th of sorted times.
double of_all(std::vector<double> const& sorted, double p) {
  return sorted[static_cast<std::size_t>(p * static_cast<double>(sorted.size() - 1))];
}

void table_of_allocations() {
  std::puts("## Allocate and free, ns a block\n");
  std::printf(
      "A warm step allocates and frees %d blocks. The numbers are the median over the steps, the 99th "
      "percentile, the maximum, and the median divided by device_arena's (targets: "
      "cudaMallocAsync 20, RMM 5).\n\n",
      batch);
  std::puts("| bytes | allocator | p50 | p99 | largest | p50 / arena's |\n|---|---|---|---|---|---|");
  for (const std::size_t bytes : sizes) {
    double arena = 0;
    for (allocator const& each : allocators) {
      const std::vector<double> taken = each.steps(bytes, 20'000);
      if (taken.empty()) {
        std::printf("| %zu | %s | not built in | | | |\n", bytes, each.name);
        continue;
      }
      const double median = of_all(taken, 0.5);
      if (arena == 0) arena = median;
      std::printf("| %zu | %s | %.2f | %.2f | %.0f | %.1f |\n", bytes, each.name, median, of_all(taken, 0.99),
                  taken.back(), median / arena);
    }
  }
  std::puts("");
}

// ---- first touch ------------------------------------------------------------------------------------------

__global__ void write_all(std::size_t n, float4* x) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x)
    x[i] = float4{1, 2, 3, 4};
}

/// Milliseconds that it takes to get a GiB, to write all of it for the first time and for the second.
template <class Get>
void row_of_first_touch(char const* name, Get get) {
  gpu::stream stream;
  const auto ms = [&](auto work) { return median_ns(1, 1, [&] { work(), stream.synchronize(); }) / 1e6; };
  const auto write = [&](void* block) {
    write_all<<<1024, 256, 0, stream.get()>>>(GiB / sizeof(float4), static_cast<float4*>(block));
    require(cudaGetLastError(), "write_all");
  };
  void* block = nullptr;
  const auto release = get(stream, [&](auto allocate) { return ms([&] { block = allocate(); }); });
  const double first = ms([&] { write(block); }), second = ms([&] { write(block); });
  std::printf("| %s | %.2f | %.2f | %.2f |\n", name, release.got_ms, first, second);
  release.end(block);
}

/// The measurement of a row, and the function that returns its memory.
template <class End>
struct got {
  double got_ms;
  End end;
};
template <class End>
got(double, End) -> got<End>;

void table_of_first_touch() {
  std::puts("## A GiB: get it, write it for the first time, and again, ms\n");
  std::puts("| memory | get | first write | second write |\n|---|---|---|---|");
  gpu::stream warm;
  write_all<<<1, 1, 0, warm.get()>>>(0, nullptr);  // the first launch of a kernel loads it
  warm.synchronize();
  row_of_first_touch("device_arena", [](gpu::stream const& stream, auto time) {
    auto memory = std::make_shared<device_arena>(gpu::virtual_memory{stream},
                                                 arena_options{.reserve = 2 * GiB, .name = "first touch"});
    const double ms = time([&] { return memory->allocate(GiB); });
    return got{ms, [memory](void*) {}};
  });
  const auto of_the_runtime = [](char const* name, auto allocate, auto release) {
    row_of_first_touch(name, [&](gpu::stream const&, auto time) {
      const double ms = time([&] {
        void* block = nullptr;
        require(allocate(&block), "allocate");
        return block;
      });
      return got{ms, [release](void* block) { (void)release(block); }};
    });
  };
  of_the_runtime("cudaMalloc", [](void** block) { return cudaMalloc(block, GiB); }, cudaFree);
  of_the_runtime("cudaMallocManaged", [](void** block) { return cudaMallocManaged(block, GiB); }, cudaFree);
  of_the_runtime("cudaMallocHost", [](void** block) { return cudaMallocHost(block, GiB); }, cudaFreeHost);
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
    gpu::device_resource device;
    gpu::stream stream;
    const auto body = [&, kernels](std::pmr::memory_resource& memory, unique_block& x, int&) {
      for (int i = 0; i < kernels; ++i) {
        const unique_block temporary{&memory, 1024, 256};
        use(temporary.data());
        increment<<<1, 1, 0, stream.get()>>>(x.as<float>().data());
      }
    };
    unique_block x{&device, sizeof(float)};
    int nothing = 0;
    device_pool eager_memory{{.stream = stream}};
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
    gpu::require_success(driver_, "cuMemAddressReserve", driver_.reserve(bytes, handle_bytes, range_));
  }
  mapped_by_handles(mapped_by_handles const&) = delete;
  mapped_by_handles& operator=(mapped_by_handles const&) = delete;
  ~mapped_by_handles() { (void)driver_.free_reservation(range_); }

  void map() {
    for (std::size_t i = 0; i < handles_.size(); ++i) {
      gpu::require_success(driver_, "cuMemCreate", driver_.create(0, handle_bytes_, handles_[i]));
      gpu::require_success(driver_, "cuMemMap",
                           driver_.map({range_.begin + i * handle_bytes_, handle_bytes_}, handles_[i]));
    }
    gpu::require_success(driver_, "cuMemSetAccess", driver_.allow_access(range_, 0));
  }
  void unmap() {
    gpu::require_success(driver_, "cuMemUnmap", driver_.unmap(range_));
    for (const gpu::physical_handle handle : handles_) {
      gpu::require_success(driver_, "cuMemRelease", driver_.release(handle));
    }
  }
  [[nodiscard]] std::size_t handles() const { return handles_.size(); }

 private:
  gpu::driver& driver_ = gpu::default_driver();
  std::size_t handle_bytes_;
  std::vector<gpu::physical_handle> handles_;
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
  for (void (*const print)() :
       {table_of_allocations, table_of_first_touch, table_of_replays, table_of_mappings}) {
    try {
      print();
    } catch (std::exception const& error) {
      std::printf("no table: %s\n\n", error.what());
      ++failed;
    }
  }
  return failed == 0 ? 0 : 1;
}
