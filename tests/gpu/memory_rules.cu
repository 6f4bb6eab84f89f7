// SPDX-License-Identifier: Apache-2.0
// Freeing, mapping, pools and handles of other processes.
#include <cuda.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>

#include "rule.hpp"

namespace tidemark::test {
namespace {

using gpu::status;

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>{std::chrono::steady_clock::now() - begin}.count();
}

/// Handles of one size behind addresses, one behind the other.
class mapped {
 public:
  mapped(std::size_t handles, std::size_t bytes) : bytes_{bytes}, handles_(handles) {
    gpu::require_success(driver(), "cuMemAddressReserve", driver().reserve(handles * bytes, 0, range_));
    for (std::size_t i = 0; i < handles; ++i) {
      gpu::require_success(driver(), "cuMemCreate", driver().create(0, bytes, handles_[i]));
      gpu::require_success(driver(), "cuMemMap", driver().map(part(i, 1), handles_[i]));
    }
    gpu::require_success(driver(), "cuMemSetAccess", driver().allow_access(range_, 0));
  }
  mapped(mapped const&) = delete;
  mapped& operator=(mapped const&) = delete;
  ~mapped() {
    for (std::size_t i = 0; i < handles_.size(); ++i) {
      (void)driver().unmap(part(i, 1));  // an error if it is already unmapped
      (void)driver().release(handles_[i]);
    }
    (void)driver().free_reservation(range_);
  }
  [[nodiscard]] byte_range part(std::size_t first, std::size_t count) const {
    return {range_.begin + first * bytes_, count * bytes_};
  }

 private:
  std::size_t bytes_;
  std::vector<gpu::physical_handle> handles_;
  byte_range range_;
};

/// Makes a call beside work of another stream, and tells whether it waited.
template <class Call>
std::pair<bool, std::string> called_beside_work(char const* name, Call call) {
  gpu::stream other;
  keep_busy(other);
  const auto begin = std::chrono::steady_clock::now();
  const status result = call();
  const double taken = ms_since(begin);
  const bool waited = !is_busy(other);
  other.synchronize();
  gpu::require_success(driver(), name, result);
  char seen[64];
  std::snprintf(seen, sizeof seen, "%.1f ms beside work of another stream", taken);
  return {waited, seen};
}

/// cuMemFree *may* wait. The rule asks whether it does; nothing in tidemark depends on the answer.
answer free_waits() {
  std::uintptr_t block = 0;
  gpu::require_success(driver(), "cuMemAlloc", driver().allocate(64 * MiB, block));
  const auto [waited, seen] = called_beside_work("cuMemFree", [&] { return driver().free(block); });
  return {waited, seen};
}
/// Heaps move memory while work runs.
answer unmapping_waits_for_nothing() {
  const mapped memory{1, 2 * MiB};
  const auto [waited, seen] =
      called_beside_work("cuMemUnmap", [&] { return driver().unmap(memory.part(0, 1)); });
  return {!waited, seen};
}

answer neighbours_unmapped() {
  const mapped memory{4, 2 * MiB};
  const status result = driver().unmap(memory.part(0, 4));
  return {result == status::success, text(result)};
}
answer some_neighbours_unmapped() {
  const mapped memory{4, 2 * MiB};
  const status result = driver().unmap(memory.part(1, 2));
  return {result == status::success, text(result)};
}

__global__ void write_word(unsigned* at, unsigned value) { *at = value; }

/// A captured graph writes memory at one address and then at the other; the last write stays.
answer memory_mapped_twice() {
  gpu::physical_handle handle = 0;
  byte_range range;
  gpu::require_success(driver(), "cuMemCreate", driver().create(0, 2 * MiB, handle));
  gpu::require_success(driver(), "cuMemAddressReserve", driver().reserve(4 * MiB, 0, range));
  gpu::stream stream;
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  for (std::size_t offset : {std::size_t{0}, 2 * MiB}) {
    const byte_range half{range.begin + offset, 2 * MiB};
    gpu::require_success(driver(), "cuMemMap", driver().map(half, handle));
    gpu::require_success(driver(), "cuMemSetAccess", driver().allow_access(half, 0));
    write_word<<<1, 1, 0, stream>>>(reinterpret_cast<unsigned*>(half.begin), offset == 0 ? 1u : 2u);
  }
  cudaGraph_t graph{};
  cudaGraphExec_t executable{};
  require(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  require(cudaGraphInstantiate(&executable, graph), "cudaGraphInstantiate");
  unsigned wrong = 0;
  for (int i = 0; i < 1000; ++i) {
    unsigned seen = 0;
    require(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
    require(cudaMemcpyAsync(&seen, reinterpret_cast<void*>(range.begin), 4, cudaMemcpyDeviceToHost, stream),
            "cudaMemcpyAsync");
    stream.synchronize();
    wrong += seen != 2 ? 1 : 0;
  }
  (void)cudaGraphExecDestroy(executable);
  (void)cudaGraphDestroy(graph);
  (void)driver().unmap(range);
  (void)driver().release(handle);
  (void)driver().free_reservation(range);
  return {wrong == 0, std::to_string(wrong) + " of 1,000 launches read the first write"};
}

answer threshold_counts_live_memory() {
  cudaMemPool_t pool{};
  gpu::require_success(driver(), "cuMemPoolCreate", driver().create_pool(0, pool));
  gpu::require_success(driver(), "cuMemPoolSetAttribute", driver().set_release_threshold(pool, 64 * MiB));
  gpu::stream stream;
  std::uintptr_t live = 0, freed = 0;
  gpu::require_success(driver(), "cuMemAllocFromPoolAsync",
                       driver().allocate_async(128 * MiB, pool, stream, live));
  gpu::require_success(driver(), "cuMemAllocFromPoolAsync",
                       driver().allocate_async(32 * MiB, pool, stream, freed));
  gpu::require_success(driver(), "cuMemFreeAsync", driver().free_async(freed, stream));
  stream.synchronize();
  std::uint64_t held = 0;
  require(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &held), "cudaMemPoolGetAttribute");
  gpu::require_success(driver(), "cuMemFreeAsync", driver().free_async(live, stream));
  stream.synchronize();
  (void)driver().destroy_pool(pool);
  return {held < 160 * MiB, "a threshold of 64 MiB, 128 live and 32 free: after a synchronise it holds " +
                                std::to_string(held / MiB) + " MiB"};
}

/// Returns the result of exporting memory created with this handle type as a file descriptor.
status exported(gpu::handle_type asked_for) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  require(cudaGetDriverEntryPointByVersion("cuMemExportToShareableHandle", &entry, 12000, cudaEnableDefault,
                                           &found),
          "cuMemExportToShareableHandle");
  gpu::physical_handle handle = 0;
  gpu::require_success(driver(), "cuMemCreate", driver().create({0, asked_for}, 2 * MiB, handle));
  int descriptor = -1;
  const auto result = static_cast<status>(reinterpret_cast<decltype(&cuMemExportToShareableHandle)>(entry)(
      &descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  if (descriptor >= 0) (void)close(descriptor);
  (void)driver().release(handle);
  return result;
}
answer handle_types_asked_for() {
  const status without = exported(gpu::handle_type::none), with = exported(gpu::handle_type::file_descriptor);
  return {without != status::success && with == status::success,
          "not asked for: " + text(without) + "; asked for: " + text(with)};
}

constexpr rule memory_rules[] = {
    {"free_waits", "cuMemFree waits for work that does not use the memory (it may, and need not)",
     free_waits},
    {"unmapping_waits_for_nothing", "cuMemUnmap does not wait for work that does not use the memory",
     unmapping_waits_for_nothing},
    {"neighbours_unmapped", "one cuMemUnmap takes all of several adjacent mappings", neighbours_unmapped},
    {"some_neighbours_unmapped", "and some of them, with others beside them", some_neighbours_unmapped},
    {"memory_mapped_twice", "one handle is mapped at two addresses in a capture, and both reach its memory",
     memory_mapped_twice},
    {"threshold_counts_live_memory", "a release threshold counts memory that is in use",
     threshold_counts_live_memory},
    {"handle_types_asked_for", "memory is exported only if that was asked for when it was created",
     handle_types_asked_for},
};

}  // namespace

std::span<rule const> rules_of_memory() { return memory_rules; }

}  // namespace tidemark::test
