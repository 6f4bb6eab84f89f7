// SPDX-License-Identifier: Apache-2.0
// The calls that captures refuse, and the calls that end captures.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <optional>
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
    // Not every device has memory that can be exported.
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
    if (got_stream != nullptr) (void)driver().destroy_stream(got_stream);
    if (got_pool != nullptr) (void)driver().destroy_pool(got_pool);
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
  gpu::stream_handle got_stream = nullptr;
  gpu::pool_handle got_pool = nullptr;
};

/// Clears a handle whose object the call has removed, if it succeeded. @return the call's result
template <class Thing>
status gone(status result, Thing& thing) {
  if (result == status::success) thing = Thing{};
  return result;
}

/// A call, and true if captures refuse it by their mode.
struct capture_call {
  char const* name;
  bool is_unsafe;
  status (*run)(prepared&);
};
constexpr capture_call capture_calls[] = {
    {"cuMemAddressReserve", false, [](prepared& p) { return driver().reserve(p.unit, 0, p.got_range); }},
    {"cuMemAddressFree", false,
     [](prepared& p) { return gone(driver().free_reservation(p.unused_range), p.unused_range); }},
    {"cuMemCreate", false, [](prepared& p) { return driver().create(0, p.unit, p.got_handle); }},
    {"cuMemRelease", false,
     [](prepared& p) { return gone(driver().release(p.unused_handle), p.unused_handle); }},
    {"cuMemMap", false,
     [](prepared& p) {
       const status result = driver().map(p.second_half(), p.unused_handle);
       p.second_is_mapped = result == status::success;
       return result;
     }},
    {"cuMemSetAccess", false, [](prepared& p) { return driver().allow_access(p.first_half(), 0); }},
    {"cuMemExportToShareableHandle", false,
     [](prepared& p) {
       if (p.shareable == 0) return status::success;
       return driver().export_handle(p.shareable, prepared::as_file, p.got_shared);
     }},
    {"cuMemImportFromShareableHandle", false,
     [](prepared& p) {
       if (p.shareable == 0) return status::success;
       return driver().import_handle(p.shared, p.got_handle);
     }},
    {"cuMemUnmap", false,
     [](prepared& p) { return gone(driver().unmap(p.first_half()), p.first_is_mapped); }},
    {"cuMemAlloc", true, [](prepared& p) { return driver().allocate(p.unit, p.got_block); }},
    {"cuMemAllocManaged", true, [](prepared& p) { return driver().allocate_managed(p.unit, p.got_block); }},
    {"cuMemFree", true, [](prepared& p) { return gone(driver().free(p.block), p.block); }},
    {"cuMemHostAlloc", true, [](prepared& p) { return driver().allocate_pinned(p.unit, p.got_pinned); }},
    {"cuMemFreeHost", true, [](prepared& p) { return gone(driver().free_pinned(p.pinned), p.pinned); }},
    {"cuMemPoolSetAccess", true, [](prepared& p) { return driver().set_pool_access(p.pool, 0); }},
    {"cuMemPoolTrimTo", true, [](prepared& p) { return driver().trim_pool(p.pool, 0); }},
    {"cuMemGetInfo", false,
     [](prepared&) {
       gpu::memory_info info;
       return driver().memory(info);
     }},
    {"cuEventCreate", false, [](prepared& p) { return driver().create_event(p.got_event); }},
    {"cuEventQuery", true, [](prepared& p) { return driver().query(p.recorded); }},
    {"cuEventSynchronize", true, [](prepared& p) { return driver().synchronize(p.recorded); }},
    {"cuStreamSynchronize", true, [](prepared& p) { return driver().synchronize(p.other); }},
    {"cuStreamCreate", false, [](prepared& p) { return driver().create_stream(p.got_stream); }},
    {"cuMemPoolSetAttribute", true, [](prepared& p) { return driver().set_release_threshold(p.pool, 0); }},
    {"cuMemPoolCreate", true, [](prepared& p) { return driver().create_pool(0, p.got_pool); }},
};

/// Each call must be refused in exactly the cases of the rule.
answer unsafe_calls() {
  answer all{true, ""};
  for (capture_call const& tested : capture_calls) {
    const auto expect = [&](char const* where, bool wanted, capture_mode mode, bool is_own, bool is_relaxed) {
      prepared things;
      gpu::stream captured;
      const auto call = [&] {
        std::optional<relaxed_mode> inside;
        if (is_relaxed) inside.emplace(driver());
        return tested.run(things);
      };
      const in_capture got =
          is_own ? call_in_own_capture(captured, mode, call) : call_beside_capture(captured, mode, call);
      if (got.disturbs() == wanted) return;
      all.is_confirmed = false;
      all.seen += std::string{all.seen.empty() ? "" : "; "} + tested.name + ", " + where + ": " + got.seen();
    };
    using enum capture_mode;
    const bool refused = tested.is_unsafe;
    expect("thread-local, own", refused, thread_local_, true, false);
    expect("thread-local, another thread", false, thread_local_, false, false);
    expect("global, own", refused, global, true, false);
    expect("global, another thread", refused, global, false, false);
    expect("relaxed", false, relaxed, true, false);
    expect("global, own, relaxed inside", false, global, true, true);
    expect("global, another thread that is relaxed", false, global, false, true);
  }
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
    {"event_recorded", "cuEventRecord on another stream ends another thread's global capture",
     event_recorded},
    {"event_waited_for", "cuStreamWaitEvent of another stream does, too", event_waited_for},
    {"unsafe_calls",
     "calls for blocks, pools and waits are refused by a thread's own capture in modes global and "
     "thread-local "
     "and by any in mode global, and never in relaxed mode; calls for virtual memory, streams and events "
     "never",
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
