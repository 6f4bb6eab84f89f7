// SPDX-License-Identifier: Apache-2.0
// The calls that captures refuse, and the calls that end captures.
#include <cstdint>
#include <string>

#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/event.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>

#include "rule.hpp"

namespace tidemark::test {
namespace {

using gpu::capture_mode;
using gpu::status;
using gpu::detail::relaxed_mode;

__global__ void nothing() {}

/// A graph of one kernel that can be launched.
class small_graph {
 public:
  small_graph() {
    gpu::stream stream;
    gpu::graph_handle graph = nullptr;
    gpu::require_success(driver(), "cuStreamBeginCapture",
                         driver().begin_capture(stream, capture_mode::relaxed));
    nothing<<<1, 1, 0, stream.get()>>>();
    gpu::require_success(driver(), "cuStreamEndCapture", driver().end_capture(stream, graph));
    gpu::require_success(driver(), "cuGraphInstantiate", driver().instantiate(graph, executable_));
    (void)driver().destroy_graph(graph);
  }
  small_graph(small_graph const&) = delete;
  small_graph& operator=(small_graph const&) = delete;
  ~small_graph() { (void)destroy(); }

  status destroy() {
    const status result = executable_ == nullptr ? status::success : driver().destroy_executable(executable_);
    if (result == status::success) executable_ = nullptr;
    return result;
  }
  [[nodiscard]] gpu::executable_handle get() const { return executable_; }

 private:
  gpu::executable_handle executable_ = nullptr;
};

gpu::stream_handle blocking_stream() {
  cudaStream_t made{};
  require(cudaStreamCreate(&made), "cudaStreamCreate");
  return made;
}

answer executable_destroyed(bool is_relaxed) {
  small_graph graph;
  gpu::stream captured;
  const in_capture got = call_beside_capture(captured, capture_mode::global, [&] {
    if (!is_relaxed) return graph.destroy();
    const relaxed_mode relaxed{driver()};
    return graph.destroy();
  });
  return {!got.survives, got.seen()};
}

answer graph_launched() {
  small_graph graph;
  gpu::stream captured;
  const in_capture got = call_in_own_capture(captured, capture_mode::relaxed,
                                             [&] { return driver().launch(graph.get(), captured); });
  return {got.result == status::capture_unsupported, got.seen()};
}

/// Tests that a call ends another thread's global capture, unless it is made in relaxed mode.
template <class Call>
answer ends_a_foreign_capture(Call call) {
  gpu::stream captured;
  const in_capture plain = call_beside_capture(captured, capture_mode::global, call);
  const in_capture relaxed = call_beside_capture(captured, capture_mode::global, [&] {
    const relaxed_mode mode{driver()};
    return call();
  });
  return {!plain.survives && !relaxed.disturbs(), plain.seen() + "; in relaxed mode " + relaxed.seen()};
}

answer event_queried() {
  gpu::stream other;
  const gpu::event done{other};
  other.synchronize();
  return ends_a_foreign_capture([&] { return driver().query(done); });
}
answer event_recorded() {
  gpu::stream other;
  const gpu::event point;
  return ends_a_foreign_capture([&] { return driver().record(point, other); });
}
answer event_waited_for() {
  gpu::stream other;
  const gpu::event done{other};
  return ends_a_foreign_capture([&] { return driver().wait(other, done); });
}

/// A call that gets something must be refused in exactly the cases of the rule.
template <class Call>
void check_unsafe(char const* name, answer& all, Call call) {
  const auto expect = [&](char const* where, bool wanted, in_capture const& got) {
    if (got.disturbs() == wanted) return;
    all.is_confirmed = false;
    all.seen += std::string{all.seen.empty() ? "" : "; "} + name + ", " + where + ": " + got.seen();
  };
  const auto call_relaxed = [&] {
    const relaxed_mode mode{driver()};
    return call();
  };
  gpu::stream captured;
  using enum capture_mode;
  expect("thread-local, own", true, call_in_own_capture(captured, thread_local_, call));
  expect("thread-local, another thread", false, call_beside_capture(captured, thread_local_, call));
  expect("global, own", true, call_in_own_capture(captured, global, call));
  expect("global, another thread", true, call_beside_capture(captured, global, call));
  expect("relaxed", false, call_in_own_capture(captured, relaxed, call));
  expect("global, own, relaxed inside", false, call_in_own_capture(captured, global, call_relaxed));
  expect("global, another thread that is relaxed", false,
         call_beside_capture(captured, global, call_relaxed));
}

answer unsafe_calls() {
  answer all{true, ""};
  const gpu::memory_properties here{0};
  gpu::pool_handle pool = nullptr;
  gpu::require_success(driver(), "cuMemPoolCreate", driver().create_pool(here, pool));
  check_unsafe("cuMemPoolSetAttribute", all, [&] { return driver().set_release_threshold(pool, 0); });
  (void)driver().destroy_pool(pool);
  check_unsafe("cuStreamCreate", all, [] {
    gpu::stream_handle made = nullptr;
    const status result = driver().create_stream(made);
    if (result == status::success) (void)driver().destroy_stream(made);
    return result;
  });
  check_unsafe("cuMemPoolCreate", all, [&] {
    gpu::pool_handle made = nullptr;
    const status result = driver().create_pool(here, made);
    if (result == status::success) {
      const relaxed_mode destroying{driver()};
      (void)driver().destroy_pool(made);
    }
    return result;
  });
  check_unsafe("cuMemAlloc", all, [] {
    std::uintptr_t made = 0;
    const status result = driver().allocate(1000, made);
    if (result == status::success) {
      const relaxed_mode freeing{driver()};
      (void)driver().free(made);
    }
    return result;
  });
  if (all.is_confirmed) all.seen = "in all modes";
  return all;
}

answer context_synchronized() {
  answer all{true, ""};
  gpu::stream captured;
  const auto call = [] {
    const relaxed_mode mode{driver()};
    return driver().synchronize();
  };
  using enum capture_mode;
  for (const capture_mode mode : {global, thread_local_, relaxed}) {
    for (const in_capture got :
         {call_in_own_capture(captured, mode, call), call_beside_capture(captured, mode, call)}) {
      all.is_confirmed = all.is_confirmed && got.result != status::success && !got.survives;
      all.seen += (all.seen.empty() ? "" : "; ") + got.seen();
    }
  }
  return {all.is_confirmed, "global own and other, thread-local, relaxed: " + all.seen};
}

answer captured_event_asked() {
  gpu::stream captured;
  const gpu::event point;
  const auto recorded = [&](auto call) {
    return call_in_own_capture(captured, capture_mode::relaxed, [&] {
      gpu::require_success(driver(), "cuEventRecord", driver().record(point, captured));
      return call();
    });
  };
  const in_capture queried = recorded([&] { return driver().query(point); });
  const in_capture awaited = recorded([&] { return driver().synchronize(point); });
  return {queried.result == status::captured_event && !queried.survives &&
              awaited.result == status::captured_event && !awaited.survives,
          "query: " + queried.seen() + "; synchronise: " + awaited.seen()};
}

answer waiting_stream_drawn_in() {
  gpu::stream captured, other;
  const gpu::event point, joined;
  bool is_drawn_in = false;
  const in_capture got = call_in_own_capture(captured, capture_mode::relaxed, [&] {
    gpu::require_success(driver(), "cuEventRecord", driver().record(point, captured));
    gpu::require_success(driver(), "cuStreamWaitEvent", driver().wait(other, point));
    gpu::require_success(driver(), "cuStreamIsCapturing", driver().is_capturing(other, is_drawn_in));
    gpu::require_success(driver(), "cuEventRecord", driver().record(joined, other));
    return driver().wait(captured, joined);
  });
  return {is_drawn_in && got.survives, std::string{is_drawn_in ? "it captures" : "it does not"}};
}

/// Returns the answers of the legacy stream beside a capturing blocking stream.
answer legacy_stream_used() {
  gpu::stream_handle const captured = blocking_stream();
  const gpu::event point;
  gpu::pool_handle pool = nullptr;
  std::uintptr_t block = 0;
  gpu::require_success(driver(), "cuMemPoolCreate", driver().create_pool(0, pool));
  gpu::require_success(driver(), "cuMemAllocFromPoolAsync",
                       driver().allocate_async(1000, pool, nullptr, block));
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  bool capturing = false;
  const auto run = [&](auto call) { return call_in_own_capture(captured, capture_mode::relaxed, call); };
  const in_capture queried = run([&] { return driver().is_capturing(nullptr, capturing); });
  const in_capture recorded = run([&] { return driver().record(point, nullptr); });
  const in_capture waited = run([&] { return driver().wait(gpu::legacy_stream, point); });
  const in_capture freed = run([&] { return driver().free_async(block, nullptr); });
  if (freed.result != status::success) (void)driver().free_async(block, nullptr);
  (void)cudaDeviceSynchronize();
  (void)driver().destroy_pool(pool);
  (void)driver().destroy_stream(captured);
  const auto ends = [](in_capture const& got) {
    return got.result == status::capture_implicit && !got.survives;
  };
  return {queried.result == status::capture_implicit && queried.survives && ends(recorded) && ends(waited) &&
              ends(freed),
          "cuStreamIsCapturing: " + queried.seen() + "; record: " + recorded.seen() +
              "; wait: " + waited.seen() + "; cuMemFreeAsync: " + freed.seen()};
}

__global__ void set(int* x, int value) { *x = value; }

/// A graph writes to memory that was freed since, and that somebody else has got.
answer freed_memory_written_by_a_replay() {
  gpu::stream captured;
  int *freed = nullptr, *next = nullptr, seen = 0;
  require(cudaMalloc(&freed, 4096), "cudaMalloc");
  gpu::graph_handle graph = nullptr;
  gpu::executable_handle executable = nullptr;
  gpu::require_success(driver(), "cuStreamBeginCapture",
                       driver().begin_capture(captured, capture_mode::relaxed));
  set<<<1, 1, 0, captured.get()>>>(freed, 7);
  gpu::require_success(driver(), "cuStreamEndCapture", driver().end_capture(captured, graph));
  gpu::require_success(driver(), "cuGraphInstantiate", driver().instantiate(graph, executable));
  require(cudaFree(freed), "cudaFree");
  require(cudaMalloc(&next, 4096), "cudaMalloc");
  require(cudaMemset(next, 0, 4096), "cudaMemset");
  gpu::require_success(driver(), "cuGraphLaunch", driver().launch(executable, captured));
  const cudaError_t ran = cudaStreamSynchronize(captured.get());
  if (ran == cudaSuccess) require(cudaMemcpy(&seen, next, sizeof seen, cudaMemcpyDeviceToHost), "cudaMemcpy");
  return {ran != cudaSuccess || (freed == next && seen == 7),
          ran != cudaSuccess ? std::string{"the launch fails: "} + cudaGetErrorName(ran)
          : freed != next    ? std::string{"the block was not allocated again, and nothing is seen"}
                             : "the next owner reads " + std::to_string(seen)};
}

/// A graph becomes part of another one explicitly.
answer child_graph_added() {
  gpu::stream captured;
  int *block = nullptr, seen = 0;
  require(cudaMalloc(&block, 4096), "cudaMalloc");
  cudaGraph_t child{}, outer{};
  cudaGraphNode_t node{};
  cudaGraphExec_t executable{};
  gpu::require_success(driver(), "cuStreamBeginCapture",
                       driver().begin_capture(captured, capture_mode::relaxed));
  set<<<1, 1, 0, captured.get()>>>(block, 7);
  gpu::require_success(driver(), "cuStreamEndCapture", driver().end_capture(captured, child));
  require(cudaGraphCreate(&outer, 0), "cudaGraphCreate");
  require(cudaGraphAddChildGraphNode(&node, outer, nullptr, 0, child), "cudaGraphAddChildGraphNode");
  require(cudaGraphInstantiate(&executable, outer, 0), "cudaGraphInstantiate");
  require(cudaGraphLaunch(executable, captured.get()), "cudaGraphLaunch");
  captured.synchronize();
  require(cudaMemcpy(&seen, block, sizeof seen, cudaMemcpyDeviceToHost), "cudaMemcpy");
  return {seen == 7, "the child's kernel wrote " + std::to_string(seen)};
}

answer block_from_before_freed() {
  gpu::stream captured;
  gpu::pool_handle pool = nullptr;
  std::uintptr_t block = 0;
  gpu::require_success(driver(), "cuMemPoolCreate", driver().create_pool(0, pool));
  gpu::require_success(driver(), "cuMemAllocFromPoolAsync",
                       driver().allocate_async(1000, pool, captured, block));
  captured.synchronize();
  const in_capture got = call_in_own_capture(captured, capture_mode::relaxed,
                                             [&] { return driver().free_async(block, captured); });
  (void)driver().free_async(block, captured);
  captured.synchronize();
  (void)driver().destroy_pool(pool);
  return {got.result != status::success, got.seen()};
}

constexpr rule capture_rules[] = {
    {"executable_destroyed", "cuGraphExecDestroy ends another thread's global capture",
     [] { return executable_destroyed(false); }},
    {"executable_destroyed_relaxed", "so it does in relaxed mode", [] { return executable_destroyed(true); }},
    {"graph_launched", "cuGraphLaunch into a capturing stream is refused with 900", graph_launched},
    {"event_queried", "cuEventQuery ends another thread's global capture, but not in relaxed mode",
     event_queried},
    {"event_recorded", "cuEventRecord on another stream does, too", event_recorded},
    {"event_waited_for", "cuStreamWaitEvent of another stream does, too", event_waited_for},
    {"unsafe_calls",
     "cuStreamCreate, cuMemPoolCreate, cuMemPoolSetAttribute and cuMemAlloc are refused by a thread's own "
     "capture in modes global and thread-local and by any in mode global, and never in relaxed mode",
     unsafe_calls},
    {"context_synchronized", "cuCtxSynchronize is refused in every mode and ends the capture",
     context_synchronized},
    {"captured_event_asked", "to query or await an event of a capture gives 907 and ends it",
     captured_event_asked},
    {"waiting_stream_drawn_in", "a stream that waits for an event of a capture is drawn into it",
     waiting_stream_drawn_in},
    {"legacy_stream_used",
     "beside a blocking stream that captures the legacy stream gives 906; a record or a wait ends the "
     "capture",
     legacy_stream_used},
    {"freed_memory_written_by_a_replay", "a graph writes to memory of its body that was freed since",
     freed_memory_written_by_a_replay},
    {"child_graph_added", "cuGraphAddChildGraphNode makes a graph part of another", child_graph_added},
    {"block_from_before_freed", "cuMemFreeAsync of a block from before the capture is refused in it",
     block_from_before_freed},
};

}  // namespace

std::span<rule const> rules_of_captures() { return capture_rules; }

}  // namespace tidemark::test
