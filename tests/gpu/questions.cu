// SPDX-License-Identifier: Apache-2.0
// Questions about the driver that its documentation leaves open and only a GPU settles, each with the calls that
// settle it. Prints the answers as they go into docs/gpu.md. Compiled with relocatable device code, for the
// graph that a device launches.
#include <cuda_runtime.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <tidemark/cuda/block_resource.hpp>
#include <tidemark/cuda/capture.hpp>
#include <tidemark/cuda/cuda_error.hpp>
#include <tidemark/cuda/device_arena.hpp>
#include <tidemark/cuda/stream.hpp>
#include <tidemark/cuda/virtual_memory.hpp>
#include <tidemark/tidemark.hpp>

#include "measure.hpp"

namespace {

using namespace tidemark;
using cuda::status;

cuda::driver& driver() { return cuda::system_driver(); }

void require(cudaError_t result, char const* what) {
  if (result != cudaSuccess) throw std::runtime_error{std::string{what} + ": " + cudaGetErrorString(result)};
}

__global__ void spin(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
}
__global__ void write_value(float* x, float value) { *x = value; }
__global__ void add_one(float const* from, float* to) { *to = *from + 1.0f; }
__global__ void launch_graph(cudaGraphExec_t graph) { cudaGraphLaunch(graph, cudaStreamGraphTailLaunch); }

// ---- which calls each mode refuses ------------------------------------------------------------------------

/// Addresses, memory behind the first half of them, and a handle without a mapping.
struct mapped_memory {
  mapped_memory() {
    cuda::require(driver(), "cuMemGetAllocationGranularity", driver().granularity(0, unit));
    cuda::require(driver(), "cuMemAddressReserve", driver().reserve(2 * unit, 0, range));
    cuda::require(driver(), "cuMemCreate", driver().create(0, unit, mapped));
    cuda::require(driver(), "cuMemMap", driver().map({range.begin, unit}, mapped));
    cuda::require(driver(), "cuMemCreate", driver().create(0, unit, spare));
    cuda::require(driver(), "cuMemAlloc", driver().allocate(unit, block));
    cuda::require(driver(), "cuMemPoolCreate", driver().create_pool(0, pool));
  }
  mapped_memory(mapped_memory const&) = delete;
  mapped_memory& operator=(mapped_memory const&) = delete;
  // Whatever the call in question did or did not do.
  ~mapped_memory() {
    (void)driver().unmap({range.begin, unit});
    (void)driver().unmap({range.begin + unit, unit});
    (void)driver().release(mapped);
    (void)driver().release(spare);
    (void)driver().free_reservation(range);
    (void)driver().free(block);
    (void)driver().destroy_pool(pool);
    (void)cudaGetLastError();
  }

  std::size_t unit = 0;
  byte_range range;
  cuda::physical_handle mapped = 0, spare = 0;
  std::uintptr_t block = 0;
  cuda::pool_handle pool = nullptr;
};

struct question {
  char const* call;
  status (*ask)(mapped_memory&);
};

constexpr question questions[] = {
    {"cuMemAddressReserve",
     [](mapped_memory& m) {
       byte_range range;
       const status result = driver().reserve(m.unit, 0, range);
       if (result == status::success) (void)driver().free_reservation(range);
       return result;
     }},
    {"cuMemCreate",
     [](mapped_memory& m) {
       cuda::physical_handle handle = 0;
       const status result = driver().create(0, m.unit, handle);
       if (result == status::success) (void)driver().release(handle);
       return result;
     }},
    {"cuMemMap", [](mapped_memory& m) { return driver().map({m.range.begin + m.unit, m.unit}, m.spare); }},
    {"cuMemSetAccess", [](mapped_memory& m) { return driver().allow_access({m.range.begin, m.unit}, 0); }},
    {"cuMemUnmap", [](mapped_memory& m) { return driver().unmap({m.range.begin, m.unit}); }},
    {"cuMemAlloc",
     [](mapped_memory& m) {
       std::uintptr_t block = 0;
       const status result = driver().allocate(m.unit, block);
       if (result == status::success) (void)driver().free(block);
       return result;
     }},
    {"cuMemFree",
     [](mapped_memory& m) {
       const status result = driver().free(m.block);
       if (result == status::success) m.block = 0;
       return result;
     }},
    {"cuMemHostAlloc",
     [](mapped_memory& m) {
       std::uintptr_t block = 0;
       const status result = driver().allocate_pinned(m.unit, block);
       if (result == status::success) (void)driver().free_pinned(block);
       return result;
     }},
    {"cuMemPoolTrimTo", [](mapped_memory& m) { return driver().trim_pool(m.pool, 0); }},
    {"cuMemGetInfo",
     [](mapped_memory&) {
       cuda::memory_info info;
       return driver().memory(info);
     }},
    {"cuEventCreate",
     [](mapped_memory&) {
       cuda::event_handle event = nullptr;
       const status result = driver().create_event(event);
       if (result == status::success) (void)driver().destroy_event(event);
       return result;
     }},
    {"cuCtxSynchronize", [](mapped_memory&) { return driver().synchronize(); }},
};

/// What a call answers while a stream captures, and whether the capture survives it.
std::string answer_in_capture(question const& asked, cuda::capture_mode mode, bool by_another_thread) {
  mapped_memory memory;
  cuda::stream stream;
  cuda::require(driver(), "cuStreamBeginCapture", driver().begin_capture(stream, mode));
  status result = status::success;
  const auto ask = [&] { result = asked.ask(memory); };
  if (by_another_thread) std::thread{ask}.join();
  else ask();
  cuda::graph_handle graph = nullptr;
  const status ended = driver().end_capture(stream, graph);
  if (ended == status::success) (void)driver().destroy_graph(graph);
  (void)cudaGetLastError();
  return std::string{result == status::success ? "allowed" : driver().error_name(result)} +
         (ended == status::success ? "" : ", ends the capture");
}

void which_calls_each_mode_refuses() {
  std::puts("## Calls while a stream captures\n");
  std::puts(
      "| call | global | global, another thread | thread-local | thread-local, another thread | relaxed |");
  std::puts("|---|---|---|---|---|---|");
  using enum cuda::capture_mode;
  for (question const& asked : questions) {
    std::printf("| `%s` | %s | %s | %s | %s | %s |\n", asked.call,
                answer_in_capture(asked, global, false).c_str(),
                answer_in_capture(asked, global, true).c_str(),
                answer_in_capture(asked, thread_local_, false).c_str(),
                answer_in_capture(asked, thread_local_, true).c_str(),
                answer_in_capture(asked, relaxed, false).c_str());
  }
  std::puts("");
}

// ---- whether unmapping waits ------------------------------------------------------------------------------

double unmap_ms(bool device_is_busy) {
  mapped_memory memory;
  cuda::stream other;
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  if (device_is_busy) {
    spin<<<1, 1, 0, other.get()>>>(1'000'000'000);  // about half a second
    require(cudaGetLastError(), "spin");
  }
  const auto begin = std::chrono::steady_clock::now();
  cuda::require(driver(), "cuMemUnmap", driver().unmap({memory.range.begin, memory.unit}));
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
  other.synchronize();
  return taken.count();
}

void whether_unmapping_waits_for_the_device() {
  std::puts("## Does cuMemUnmap wait for work that does not use the memory?\n");
  const double idle = unmap_ms(false), busy = unmap_ms(true);
  std::printf("device idle: %.3f ms; another stream busy for about 500 ms: %.3f ms: it %s.\n\n", idle, busy,
              busy > 100 ? "waits" : "does not wait");
}

// ---- graphs and memory that comes and goes ----------------------------------------------------------------

/// A graph whose one temporary lies in the arena: out = value(in) + 1.
auto two_kernels(cudaStream_t stream) {
  return [stream](std::pmr::memory_resource& memory, unique_block& in, unique_block& out) {
    auto* const temporary = static_cast<float*>(memory.allocate(sizeof(float)));
    add_one<<<1, 1, 0, stream>>>(in.as<float>().data(), temporary);
    add_one<<<1, 1, 0, stream>>>(temporary, out.as<float>().data());
  };
}

float replayed(captured_graph<unique_block, unique_block>& graph, cuda::stream const& stream, float input) {
  float result = 0;
  write_value<<<1, 1, 0, stream.get()>>>(graph.inputs().as<float>().data(), input);
  graph.launch(stream);
  require(
      cudaMemcpyAsync(&result, graph.outputs().data(), sizeof result, cudaMemcpyDeviceToHost, stream.get()),
      "cudaMemcpyAsync");
  stream.synchronize();
  return result;
}

void whether_a_graph_survives_suspension() {
  std::puts("## Does a graph replay after its arena was unmapped and mapped again at the same addresses?\n");
  cuda::stream stream;
  cuda::device_resource device;
  device_arena memory{cuda::virtual_memory{{.stream = stream}}, {.reserve = 64 * MiB, .name = "suspended"}};
  auto graph =
      capture(stream, std::make_unique<graph_arena>(1 * MiB, &memory), unique_block{&device, sizeof(float)},
              unique_block{&device, sizeof(float)}, two_kernels(stream));
  const float before = replayed(graph, stream, 1.0f);
  memory.suspend();
  memory.resume();
  int wrong = 0;
  for (int i = 0; i < 1000; ++i) {
    wrong += replayed(graph, stream, static_cast<float>(i)) != static_cast<float>(i) + 2.0f ? 1 : 0;
  }
  std::printf("before: %g (should be 3); of 1000 replays afterwards %d were wrong: %s.\n\n", before, wrong,
              wrong == 0 ? "yes" : "no");
}

/// The raw graph of `two_kernels`, whose temporary is at a place that it shares with its clones.
cudaGraph_t raw_graph(cudaStream_t stream, float* in, float* temporary, float* out) {
  cudaGraph_t graph{};
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  write_value<<<1, 1, 0, stream>>>(temporary, 0.0f);
  spin<<<1, 1, 0, stream>>>(2000);
  add_one<<<1, 1, 0, stream>>>(in, temporary);
  spin<<<1, 1, 0, stream>>>(2000);
  add_one<<<1, 1, 0, stream>>>(temporary, out);
  require(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  return graph;
}

/// Of `rounds` launches of both, how many gave a wrong result.
int wrong_results(int rounds, cudaGraphExec_t one, cudaGraphExec_t other, cudaStream_t first,
                  cudaStream_t second, float* in, float* out) {
  int wrong = 0;
  for (int i = 0; i < rounds; ++i) {
    float result = 0;
    write_value<<<1, 1, 0, first>>>(in, static_cast<float>(i));
    require(cudaStreamSynchronize(first), "cudaStreamSynchronize");
    require(cudaGraphLaunch(one, first), "cudaGraphLaunch");
    require(cudaGraphLaunch(other, second), "cudaGraphLaunch");
    require(cudaStreamSynchronize(first), "cudaStreamSynchronize");
    require(cudaMemcpy(&result, out, sizeof result, cudaMemcpyDeviceToHost), "cudaMemcpy");
    require(cudaStreamSynchronize(second), "cudaStreamSynchronize");
    wrong += result != static_cast<float>(i) + 2.0f ? 1 : 0;
  }
  return wrong;
}

void whether_clones_share_the_arena_safely() {
  std::puts("## Do a clone of a graph, and a graph that the device launches, share the arena safely?\n");
  cuda::device_resource device;
  graph_arena memory{4 * KiB, &device};
  auto* const in = static_cast<float*>(memory.allocate(sizeof(float)));
  auto* const temporary = static_cast<float*>(memory.allocate(sizeof(float)));
  auto* const out = static_cast<float*>(memory.allocate(sizeof(float)));
  cuda::stream one, other;
  const cudaGraph_t graph = raw_graph(one.get(), in, temporary, out);
  cudaGraph_t clone{};
  cudaGraphExec_t original{}, cloned{}, on_device{}, outer{};
  require(cudaGraphClone(&clone, graph), "cudaGraphClone");
  require(cudaGraphInstantiate(&original, graph, 0), "cudaGraphInstantiate");
  require(cudaGraphInstantiate(&cloned, clone, 0), "cudaGraphInstantiate");
  constexpr int rounds = 2000;
  std::printf(
      "a clone, behind the original on one stream: %d of %d wrong; on two streams at once: %d of %d wrong.\n",
      wrong_results(rounds, original, cloned, one, one, in, out), rounds,
      wrong_results(rounds, original, cloned, one, other, in, out), rounds);

  require(cudaGraphInstantiate(&on_device, graph, cudaGraphInstantiateFlagDeviceLaunch),
          "cudaGraphInstantiate");
  require(cudaGraphUpload(on_device, one.get()), "cudaGraphUpload");
  cudaGraph_t launcher{};
  require(cudaStreamBeginCapture(one.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  launch_graph<<<1, 1, 0, one.get()>>>(on_device);
  require(cudaStreamEndCapture(one.get(), &launcher), "cudaStreamEndCapture");
  require(cudaGraphInstantiate(&outer, launcher, 0), "cudaGraphInstantiate");
  std::printf(
      "launched by the device, behind the original on one stream: %d of %d wrong; at once: %d of %d "
      "wrong.\n\n",
      wrong_results(rounds, original, outer, one, one, in, out), rounds,
      wrong_results(rounds, original, outer, one, other, in, out), rounds);
  for (const cudaGraphExec_t executable : {original, cloned, on_device, outer})
    (void)cudaGraphExecDestroy(executable);
  for (const cudaGraph_t owned : {graph, clone, launcher}) (void)cudaGraphDestroy(owned);
}

}  // namespace

int main() {
  if (!test::found_device("questions")) return test::skipped;
  int failed = 0;
  for (void (*const ask)() : {which_calls_each_mode_refuses, whether_unmapping_waits_for_the_device,
                              whether_a_graph_survives_suspension, whether_clones_share_the_arena_safely}) {
    try {
      ask();
    } catch (std::exception const& error) {
      std::printf("no answer: %s\n\n", error.what());
      ++failed;
    }
  }
  return failed == 0 ? 0 : 1;
}
