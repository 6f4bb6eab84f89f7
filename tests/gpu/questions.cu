// SPDX-License-Identifier: Apache-2.0
// Questions about the driver that its documentation leaves open and only a GPU settles, each with the calls
// that settle it. Prints the answers for docs/gpu.md. Compiled with relocatable device code, for the graph
// that a device launches.
#include <cuda_runtime.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <future>
#include <memory>
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <thread>

#include <tidemark/cuda/driver/capture.hpp>
#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/event.hpp>
#include <tidemark/cuda/driver/stream.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>
#include <tidemark/cuda/memory/block_resource.hpp>
#include <tidemark/cuda/memory/virtual_memory.hpp>
#include <tidemark/cuda/resources/device_arena.hpp>
#include <tidemark/tidemark.hpp>

#include "measure.hpp"

namespace {

using namespace tidemark;
using gpu::status;

gpu::driver& driver() { return gpu::system_driver(); }

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

/// The arguments and results of the tested calls. All are made before a capture and returned after it, so
/// that the mode affects only the tested call and not its inverse.
struct prepared {
  prepared() {
    gpu::require_success(driver(), "cuMemGetAllocationGranularity", driver().granularity(0, unit));
    gpu::require_success(driver(), "cuMemAddressReserve", driver().reserve(2 * unit, 0, range));
    gpu::require_success(driver(), "cuMemAddressReserve", driver().reserve(unit, 0, unused_range));
    gpu::require_success(driver(), "cuMemCreate", driver().create(0, unit, mapped));
    gpu::require_success(driver(), "cuMemMap", driver().map(first_half(), mapped));
    first_is_mapped = true;
    gpu::require_success(driver(), "cuMemCreate", driver().create(0, unit, unused_handle));
    // Not every device has memory that can be exported: the questions about it get an error then.
    if (driver().create({0, as_file}, unit, shareable) == status::success)
      (void)driver().export_handle(shareable, as_file, shared);
    gpu::require_success(driver(), "cuMemAlloc", driver().allocate(unit, block));
    gpu::require_success(driver(), "cuMemHostAlloc", driver().allocate_pinned(unit, pinned));
    gpu::require_success(driver(), "cuMemPoolCreate", driver().create_pool(0, pool));
    recorded.record(other);
    other.synchronize();
  }
  prepared(prepared const&) = delete;
  prepared& operator=(prepared const&) = delete;
  // Whatever the call in question did or did not do.
  ~prepared() {
    if (first_is_mapped) (void)driver().unmap(first_half());
    if (second_is_mapped) (void)driver().unmap(second_half());
    for (const int file : {shared.file_descriptor, got_shared.file_descriptor}) {
      if (file >= 0) (void)::close(file);
    }
    for (const gpu::physical_handle handle : {mapped, unused_handle, shareable, got_handle}) {
      if (handle != 0) (void)driver().release(handle);
    }
    for (const byte_range each : {range, unused_range, got_range}) {
      if (!each.empty()) (void)driver().free_reservation(each);
    }
    for (const std::uintptr_t each : {block, got_block}) {
      if (each != 0) (void)driver().free(each);
    }
    for (const std::uintptr_t each : {pinned, got_pinned}) {
      if (each != 0) (void)driver().free_pinned(each);
    }
    if (pool != nullptr) (void)driver().destroy_pool(pool);
    if (got_event != nullptr) (void)driver().destroy_event(got_event);
    (void)cudaGetLastError();
  }

  [[nodiscard]] byte_range first_half() const { return {range.begin, unit}; }
  [[nodiscard]] byte_range second_half() const { return {range.begin + unit, unit}; }

  std::size_t unit = 0;
  byte_range range, unused_range;  // nothing is ever mapped in the second
  bool first_is_mapped = false, second_is_mapped = false;
  static constexpr gpu::handle_type as_file = gpu::handle_type::file_descriptor;
  gpu::physical_handle mapped = 0, unused_handle = 0, shareable = 0;
  gpu::shareable_handle shared;
  std::uintptr_t block = 0, pinned = 0;
  gpu::pool_handle pool = nullptr;
  gpu::stream other;
  gpu::event recorded;  // on `other`, before the capture
  // The results of the tested calls.
  byte_range got_range;
  gpu::physical_handle got_handle = 0;
  gpu::shareable_handle got_shared;
  std::uintptr_t got_block = 0, got_pinned = 0;
  gpu::event_handle got_event = nullptr;
};

/// Clears a handle whose object the call has removed, if it succeeded. @return the call's result
template <class Thing>
status gone(status result, Thing& thing) {
  if (result == status::success) thing = Thing{};
  return result;
}

struct question {
  char const* call;
  status (*run)(prepared&);
};

constexpr question questions[] = {
    {"cuMemAddressReserve", [](prepared& p) { return driver().reserve(p.unit, 0, p.got_range); }},
    {"cuMemAddressFree",
     [](prepared& p) { return gone(driver().free_reservation(p.unused_range), p.unused_range); }},
    {"cuMemCreate", [](prepared& p) { return driver().create(0, p.unit, p.got_handle); }},
    {"cuMemRelease", [](prepared& p) { return gone(driver().release(p.unused_handle), p.unused_handle); }},
    {"cuMemMap",
     [](prepared& p) {
       const status result = driver().map(p.second_half(), p.unused_handle);
       p.second_is_mapped = result == status::success;
       return result;
     }},
    {"cuMemSetAccess", [](prepared& p) { return driver().allow_access(p.first_half(), 0); }},
    {"cuMemExportToShareableHandle",
     [](prepared& p) { return driver().export_handle(p.shareable, prepared::as_file, p.got_shared); }},
    {"cuMemImportFromShareableHandle",
     [](prepared& p) { return driver().import_handle(p.shared, p.got_handle); }},
    {"cuMemUnmap", [](prepared& p) { return gone(driver().unmap(p.first_half()), p.first_is_mapped); }},
    {"cuMemAlloc", [](prepared& p) { return driver().allocate(p.unit, p.got_block); }},
    {"cuMemAllocManaged", [](prepared& p) { return driver().allocate_managed(p.unit, p.got_block); }},
    {"cuMemFree", [](prepared& p) { return gone(driver().free(p.block), p.block); }},
    {"cuMemHostAlloc", [](prepared& p) { return driver().allocate_pinned(p.unit, p.got_pinned); }},
    {"cuMemFreeHost", [](prepared& p) { return gone(driver().free_pinned(p.pinned), p.pinned); }},
    {"cuMemPoolSetAccess", [](prepared& p) { return driver().set_pool_access(p.pool, 0); }},
    {"cuMemPoolTrimTo", [](prepared& p) { return driver().trim_pool(p.pool, 0); }},
    {"cuMemGetInfo",
     [](prepared&) {
       gpu::memory_info info;
       return driver().memory(info);
     }},
    {"cuEventCreate", [](prepared& p) { return driver().create_event(p.got_event); }},
    {"cuEventQuery", [](prepared& p) { return driver().query(p.recorded); }},
    {"cuEventSynchronize", [](prepared& p) { return driver().synchronize(p.recorded); }},
    {"cuStreamSynchronize", [](prepared& p) { return driver().synchronize(p.other); }},
    {"cuCtxSynchronize", [](prepared&) { return driver().synchronize(); }},
};

/// Returns the result of a call while a stream captures, and whether the capture survives.
std::string answer_in_capture(question const& tested, gpu::capture_mode mode, bool by_another_thread) {
  prepared things;
  gpu::stream stream;
  status result = status::success;
  std::promise<bool> may_call;  // false: no capture exists
  std::promise<status> is_ready;
  std::thread another;
  if (by_another_thread) {
    // Its device is current before the capture begins, so that the call in question is its first in it.
    another = std::thread{[&, go = may_call.get_future()]() mutable {
      is_ready.set_value(driver().make_current(0));
      if (go.get()) result = tested.run(things);
    }};
  }
  status begun = by_another_thread ? is_ready.get_future().get() : status::success;
  if (begun == status::success) begun = driver().begin_capture(stream, mode);
  if (by_another_thread) {
    may_call.set_value(begun == status::success);
    another.join();
  }
  gpu::require_success(driver(), "cuStreamBeginCapture", begun);
  if (!by_another_thread) result = tested.run(things);
  gpu::graph_handle graph = nullptr;
  const status ended = driver().end_capture(stream, graph);
  if (ended == status::success) (void)driver().destroy_graph(graph);
  (void)cudaGetLastError();
  return std::string{result == status::success ? "allowed" : driver().error_name(result)} +
         (ended == status::success ? "" : ", ends the capture");
}

void which_calls_each_mode_refuses() {
  std::puts("## Calls while a stream captures\n");
  std::puts(
      "The events and streams that a call waits for are not part of the capture, and have no work left.\n");
  std::puts(
      "| call | global | global, another thread | thread-local | thread-local, another thread | relaxed |");
  std::puts("|---|---|---|---|---|---|");
  using enum gpu::capture_mode;
  for (question const& tested : questions) {
    std::printf("| `%s` | %s | %s | %s | %s | %s |\n", tested.call,
                answer_in_capture(tested, global, false).c_str(),
                answer_in_capture(tested, global, true).c_str(),
                answer_in_capture(tested, thread_local_, false).c_str(),
                answer_in_capture(tested, thread_local_, true).c_str(),
                answer_in_capture(tested, relaxed, false).c_str());
  }
  std::puts("");
}

// ---- waiting of unmapping ---------------------------------------------------------------------------------

__global__ void fill(std::size_t n, float* x) {
  const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (i < n) x[i] = 1.0f;
}

/// A kernel of `stream` writes all of it, and has ended.
void use(byte_range memory, gpu::stream const& stream) {
  const std::size_t n = memory.size / sizeof(float);
  fill<<<static_cast<unsigned int>((n + 255) / 256), 256, 0, stream.get()>>>(
      n, reinterpret_cast<float*>(memory.begin));
  require(cudaGetLastError(), "fill");
  stream.synchronize();
}

struct unmapping {
  double taken_ms;
  bool waited;  ///< the other stream's work had ended when the call returned
};

/// Times `unmap`, while another stream is busy for about half a second or while nothing runs.
template <class Unmap>
unmapping timed(bool device_is_busy, Unmap unmap) {
  gpu::stream other;
  spin<<<1, 1, 0, other.get()>>>(1);  // the first launch of a kernel loads it, which may wait, too
  require(cudaGetLastError(), "spin");
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  if (device_is_busy) {
    spin<<<1, 1, 0, other.get()>>>(1'000'000'000);
    require(cudaGetLastError(), "spin");
  }
  const auto begin = std::chrono::steady_clock::now();
  unmap();
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
  const cudaError_t now = cudaStreamQuery(other.get());
  if (now != cudaErrorNotReady) require(now, "cudaStreamQuery");
  (void)cudaGetLastError();
  other.synchronize();
  return {taken.count(), now == cudaSuccess};
}

/// The driver's call, of memory that a kernel has used.
unmapping unmap_used(bool device_is_busy) {
  prepared memory;
  gpu::stream own;
  gpu::require_success(driver(), "cuMemSetAccess", driver().allow_access(memory.first_half(), 0));
  use(memory.first_half(), own);
  return timed(device_is_busy, [&] {
    gpu::require_success(driver(), "cuMemUnmap", driver().unmap(memory.first_half()));
    memory.first_is_mapped = false;
  });
}

/// Tests the library's use: an arena whose own stream has no work left returns its memory.
unmapping trim_used(bool device_is_busy) {
  constexpr std::size_t bytes = 64 * MiB;
  gpu::stream own;
  device_arena memory{gpu::virtual_memory{{.stream = own}}, {.reserve = 2 * bytes, .name = "trimmed"}};
  {
    device_arena::scope scope{memory};
    use({reinterpret_cast<std::uintptr_t>(memory.allocate(bytes)), bytes}, own);
  }
  return timed(device_is_busy, [&] {
    if (memory.trim() == 0) throw std::runtime_error{"the arena gave nothing back"};
  });
}

void whether_unmapping_waits_for_the_device() {
  std::puts("## Does cuMemUnmap wait for work that does not use the memory?\n");
  std::puts("| | device idle, ms | another stream busy for about 500 ms, ms | waits for it |");
  std::puts("|---|---|---|---|");
  const auto row = [](char const* what, unmapping (*measure)(bool)) {
    const unmapping idle = measure(false), busy = measure(true);
    std::printf("| %s | %.3f | %.3f | %s |\n", what, idle.taken_ms, busy.taken_ms,
                busy.waited ? "yes" : "no");
  };
  row("`cuMemUnmap`", unmap_used);
  row("`device_arena::trim`", trim_used);
  std::puts("");
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

float replayed(captured_graph<unique_block, unique_block>& graph, gpu::stream const& stream, float input) {
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
  gpu::stream stream;
  gpu::device_resource device;
  device_arena memory{gpu::virtual_memory{{.stream = stream}}, {.reserve = 64 * MiB, .name = "suspended"}};
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

/// Returns the number of wrong results in `rounds` launches of both graphs.
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
  gpu::device_resource device;
  graph_arena memory{4 * KiB, &device};
  auto* const in = static_cast<float*>(memory.allocate(sizeof(float)));
  auto* const temporary = static_cast<float*>(memory.allocate(sizeof(float)));
  auto* const out = static_cast<float*>(memory.allocate(sizeof(float)));
  gpu::stream one, other;
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

// ---- updates of graphs ------------------------------------------------------------------------------------

/// out = value, after slow kernels: the launch still runs when the host continues.
auto slow_write(cudaStream_t stream, float value, int kernels) {
  return [=](std::pmr::memory_resource&, unique_block&, unique_block& out) {
    for (int i = 0; i < kernels; ++i) spin<<<1, 1, 0, stream>>>(20'000'000);
    write_value<<<1, 1, 0, stream>>>(out.as<float>().data(), value);
  };
}

/// Tests the writes of a launch, of a launch behind an update in place, and of a launch behind a new
/// executable on another stream. Each write is saved behind its launch, on the device.
void whether_updates_leave_launches_alone() {
  std::puts("## Do launches that still run do what they did before an update?\n");
  gpu::stream stream, other;
  gpu::device_resource device;
  auto graph = capture(stream, std::make_unique<graph_arena>(4 * KiB, &device), unique_block{&device, 256},
                       unique_block{&device, 256}, slow_write(stream, 1.0f, 1));
  auto* const saved = graph.inputs().as<float>().data();
  const auto launch_on = [&](gpu::stream const& on, int number) {
    graph.launch(on);
    require(cudaMemcpyAsync(saved + number, graph.outputs().data(), sizeof(float), cudaMemcpyDeviceToDevice,
                            on.get()),
            "cudaMemcpyAsync");
  };
  launch_on(stream, 0);
  const bool first = graph.update(slow_write(stream, 2.0f, 1));
  launch_on(stream, 1);
  const bool second = graph.update(slow_write(stream, 3.0f, 2));
  const bool was_running = cudaStreamQuery(stream.get()) == cudaErrorNotReady;
  // For the copies: the graph orders its own launches only.
  gpu::require_success(driver(), "cuStreamWaitEvent", gpu::put_behind(driver(), other, stream));
  launch_on(other, 2);
  other.synchronize();
  float results[3] = {};
  require(cudaMemcpy(results, saved, sizeof results, cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::printf("in place: %s, then %s; launches ran meanwhile: %s; results %g %g %g (should be 1 2 3).\n",
              first ? "yes" : "no", second ? "yes" : "no", was_running ? "yes" : "no", results[0], results[1],
              results[2]);

  const auto captured = [&](float value, int kernels) {
    cudaGraph_t made{};
    require(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    std::pmr::memory_resource& none = *std::pmr::null_memory_resource();
    slow_write(stream, value, kernels)(none, graph.inputs(), graph.outputs());
    require(cudaStreamEndCapture(stream.get(), &made), "cudaStreamEndCapture");
    return made;
  };
  const cudaGraph_t before = captured(4.0f, 1), refused = captured(5.0f, 2);
  cudaGraphExec_t executable{};
  require(cudaGraphInstantiate(&executable, before, 0), "cudaGraphInstantiate");
  const status result = driver().update(executable, refused);
  require(cudaGraphLaunch(executable, stream.get()), "cudaGraphLaunch");
  stream.synchronize();
  require(cudaMemcpy(results, graph.outputs().data(), sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::printf("an update by another topology: %s; the executable writes %g (4: it is as it was).\n\n",
              driver().error_name(result), results[0]);
  (void)cudaGraphExecDestroy(executable);
  for (const cudaGraph_t owned : {before, refused}) (void)cudaGraphDestroy(owned);
}

}  // namespace

int main() {
  if (!test::found_device("questions")) return test::skipped;
  int failed = 0;
  for (void (*const answer)() : {which_calls_each_mode_refuses, whether_unmapping_waits_for_the_device,
                                 whether_a_graph_survives_suspension, whether_clones_share_the_arena_safely,
                                 whether_updates_leave_launches_alone}) {
    try {
      answer();
    } catch (std::exception const& error) {
      std::printf("no answer: %s\n\n", error.what());
      ++failed;
    }
  }
  return failed == 0 ? 0 : 1;
}
