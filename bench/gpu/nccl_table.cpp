// SPDX-License-Identifier: Apache-2.0
// The installed NCCL with one rank: arenas on memory that is registered with it, and an all-reduce in place.
// Prints the table for docs/gpu.md.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core/registered_memory.hpp>
#include <tidemark/cuda.hpp>
#include <tidemark/tidemark.hpp>

#include "measure.hpp"

namespace {

using namespace tidemark;

struct nccl_id {
  char bytes[128];
};

/// Functions of NCCL that the library does not call.
struct nccl_calls {
  int (*version)(int*) = nullptr;
  int (*unique_id)(nccl_id*) = nullptr;
  int (*init_rank)(::ncclComm**, int, nccl_id, int) = nullptr;
  int (*all_reduce)(void const*, void*, std::size_t, int type, int operation, ::ncclComm*,
                    cudaStream_t) = nullptr;
  int (*destroy)(::ncclComm*) = nullptr;
};
constexpr int type_float = 7, operation_sum = 0;

template <class Function>
bool find(void* library, char const* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

void require(int result, char const* what) {
  if (result != 0) throw std::runtime_error{std::string{what} + " returned " + std::to_string(result)};
}

/// All-reduces blocks of five sizes in an arena on registered memory.
template <class Space, class Registrar>
void row(nccl_calls const& nccl, ::ncclComm* rank, gpu::stream const& stream, char const* memory,
         char const* registered, Space space, Registrar registrar) {
  basic_arena<registered_memory<Space, Registrar>> step{
      {.reserve = 256 * MiB, .name = "step"}, std::move(space), std::move(registrar)};
  std::size_t wrong = 0;
  for (int i = 0; i < 5; ++i) {
    typename basic_arena<registered_memory<Space, Registrar>>::scope scope{step};
    const std::size_t n = std::size_t{1} << (14 + 2 * i);
    float* const x = step.template push_array<float>(n, uninitialized).data();
    const std::vector<float> sent(n, 2.0f + static_cast<float>(i));
    std::vector<float> received(n);
    require(cudaMemcpyAsync(x, sent.data(), n * sizeof(float), cudaMemcpyHostToDevice, stream),
            "cudaMemcpyAsync");
    require(nccl.all_reduce(x, x, n, type_float, operation_sum, rank, stream), "ncclAllReduce");
    require(cudaMemcpyAsync(received.data(), x, n * sizeof(float), cudaMemcpyDeviceToHost, stream),
            "cudaMemcpyAsync");
    stream.synchronize();
    for (std::size_t k = 0; k < n; ++k) wrong += received[k] != sent[k] ? 1 : 0;
  }
  std::printf("| %s | %s | %zu | %llu | %zu MiB |\n", memory, registered, wrong,
              static_cast<unsigned long long>(step.stats().system_calls), step.stats().committed_bytes / MiB);
}

int run() {
  void* const library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
  nccl_calls nccl;
  if (library == nullptr || !find(library, "ncclGetVersion", nccl.version) ||
      !find(library, "ncclGetUniqueId", nccl.unique_id) ||
      !find(library, "ncclCommInitRank", nccl.init_rank) ||
      !find(library, "ncclAllReduce", nccl.all_reduce) || !find(library, "ncclCommDestroy", nccl.destroy)) {
    std::printf("skipped: libnccl.so.2 is not here\n");
    return test::skipped;
  }
  int version = 0;
  require(nccl.version(&version), "ncclGetVersion");
  nccl_id id{};
  ::ncclComm* rank = nullptr;
  require(cudaSetDevice(0), "cudaSetDevice");
  require(nccl.unique_id(&id), "ncclGetUniqueId");
  require(nccl.init_rank(&rank, 1, id, 0), "ncclCommInitRank");
  std::printf("NCCL %d.%d.%d, one rank.\n\n", version / 10000, version / 100 % 100, version % 100);
  std::puts("| memory | registered as | wrong elements | calls for memory | held |\n|---|---|---|---|---|");
  {
    const gpu::stream stream;
    row(nccl, rank, stream, "`nccl_memory`", "buffer", gpu::nccl_memory{{.stream = stream}},
        gpu::nccl_registrar{rank, stream});
    row(nccl, rank, stream, "`nccl_memory`", "window", gpu::nccl_memory{{.stream = stream}},
        gpu::nccl_window_registrar{rank, stream});
    row(nccl, rank, stream, "`virtual_memory`", "buffer",
        gpu::virtual_memory{{.stream = stream, .exported_as = gpu::handle_type::file_descriptor}},
        gpu::nccl_registrar{rank, stream});
  }
  require(nccl.destroy(rank), "ncclCommDestroy");
  return 0;
}

}  // namespace

int main() {
  if (!test::found_device("nccl")) return test::skipped;
  try {
    return run();
  } catch (std::exception const& error) {
    std::fprintf(stderr, "nccl: %s\n", error.what());
    return 1;
  }
}
