// SPDX-License-Identifier: Apache-2.0
/// @file
/// `cuda::driver`: the calls tidemark makes to the CUDA driver, in one replaceable table.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/byte_range.hpp>
#include <tidemark/cuda/status.hpp>

// The driver's own opaque structures: cudaStream_t and CUstream are both CUstream_st*, and so on.
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct CUmemPoolHandle_st;

// clang-tidy 22 sees only parts of what a module brings, and takes them for all.
namespace tidemark::cuda {  // NOLINT(modernize-concat-nested-namespaces)

/// A stream, as `cudaStream_t` and `CUstream`; null is the default stream.
using stream_handle = ::CUstream_st*;
/// An event, as `cudaEvent_t` and `CUevent`.
using event_handle = ::CUevent_st*;
/// A graph that was captured, as `cudaGraph_t`.
using graph_handle = ::CUgraph_st*;
/// A graph that can be launched, as `cudaGraphExec_t`.
using executable_handle = ::CUgraphExec_st*;
/// A pool of the driver's stream-ordered allocator, as `cudaMemPool_t`.
using pool_handle = ::CUmemPoolHandle_st*;
/// Physical memory, as `CUmemGenericAllocationHandle`.
using physical_handle = unsigned long long;
/// A device's number, as `cudaSetDevice` takes it.
using device_number = int;

/// What else a capture forbids while it goes on, as `cudaStreamCaptureMode`.
enum class capture_mode : int {
  global = 0,         ///< unsafe calls of any thread
  thread_local_ = 1,  ///< unsafe calls of the capturing thread
  relaxed = 2,        ///< nothing
};

/// Bytes of a device's memory.
struct memory_info {
  std::size_t free_bytes = 0;   ///< not taken by anybody
  std::size_t total_bytes = 0;  ///< of the device
};

/// The driver's calls, all that tidemark uses. Derive from it to count them, to make the n-th one fail, or to
/// stand in for a device; give it to what takes a `driver&`, or to `set_default_driver` for the whole
/// process.
///
/// It knows no type of the toolkit, so that all of tidemark's device part is compiled and tested where there
/// is no toolkit. Each function is the call of the driver named in its comment, on the device that is current
/// for the thread, and has its rules; results are the driver's. Every function may be called from any thread
/// and throws nothing. What a function returns through a reference is set only where it returns
/// `status::success`.
class driver {
 public:
  driver() = default;
  driver(driver const&) = delete;
  driver& operator=(driver const&) = delete;
  virtual ~driver() = default;

  // ---- devices ----

  /// `cuDeviceGetCount`; `status::no_device` and the like where there is no device or no driver.
  [[nodiscard]] virtual status device_count(int& count) noexcept = 0;
  /// Makes a device's primary context current for the calling thread, as `cudaSetDevice`.
  [[nodiscard]] virtual status make_current(device_number device) noexcept = 0;
  /// `cuCtxGetDevice`: the device that is current for the calling thread; 0 where none was made current yet.
  [[nodiscard]] virtual status current_device(device_number& device) noexcept = 0;
  /// `cuCtxSynchronize`: waits for all work of the current device.
  [[nodiscard]] virtual status synchronize() noexcept = 0;
  /// `cuMemGetInfo`.
  [[nodiscard]] virtual status memory(memory_info& info) noexcept = 0;

  // ---- addresses and the memory behind them ----

  /// `cuMemGetAllocationGranularity`, the minimum: bytes that physical memory comes in, a power of two.
  [[nodiscard]] virtual status granularity(device_number device, std::size_t& bytes) noexcept = 0;
  /// `cuMemAddressReserve`. @pre `bytes` is a multiple of the granularity, `align` a power of two or 0.
  [[nodiscard]] virtual status reserve(std::size_t bytes, std::size_t align, byte_range& range) noexcept = 0;
  /// `cuMemAddressFree`. @pre the range is whole, and nothing is mapped in it.
  [[nodiscard]] virtual status free_reservation(byte_range range) noexcept = 0;
  /// `cuMemCreate`: pinned memory of `device`. @pre `bytes` is a multiple of the granularity.
  [[nodiscard]] virtual status create(device_number device, std::size_t bytes,
                                      physical_handle& handle) noexcept = 0;
  /// `cuMemRelease`: mapped memory goes when it is unmapped.
  [[nodiscard]] virtual status release(physical_handle handle) noexcept = 0;
  /// `cuMemMap`, all of a handle's memory. @pre nothing is mapped in the range.
  [[nodiscard]] virtual status map(byte_range range, physical_handle handle) noexcept = 0;
  /// `cuMemUnmap`. @pre the range is one whole mapping.
  [[nodiscard]] virtual status unmap(byte_range range) noexcept = 0;
  /// `cuMemSetAccess`: `device` may read and write the range. @pre all of it is mapped.
  [[nodiscard]] virtual status allow_access(byte_range range, device_number device) noexcept = 0;

  // ---- blocks ----

  /// `cuMemAlloc`.
  [[nodiscard]] virtual status allocate(std::size_t bytes, std::uintptr_t& block) noexcept = 0;
  /// `cuMemFree`, also of managed memory: waits for the device.
  [[nodiscard]] virtual status free(std::uintptr_t block) noexcept = 0;
  /// `cuMemAllocManaged`, attached globally.
  [[nodiscard]] virtual status allocate_managed(std::size_t bytes, std::uintptr_t& block) noexcept = 0;
  /// `cuMemHostAlloc`, portable: memory of the host that devices copy from and to while the host goes on.
  [[nodiscard]] virtual status allocate_pinned(std::size_t bytes, std::uintptr_t& block) noexcept = 0;
  /// `cuMemFreeHost`.
  [[nodiscard]] virtual status free_pinned(std::uintptr_t block) noexcept = 0;

  // ---- the driver's stream-ordered allocator ----

  /// `cuMemPoolCreate`, of pinned memory of `device`.
  [[nodiscard]] virtual status create_pool(device_number device, pool_handle& pool) noexcept = 0;
  /// `cuMemPoolDestroy`.
  [[nodiscard]] virtual status destroy_pool(pool_handle pool) noexcept = 0;
  /// `cuMemPoolSetAttribute(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)`: at a synchronisation, free memory goes back
  /// to the system until the pool holds so many bytes, in use or free.
  [[nodiscard]] virtual status set_release_threshold(pool_handle pool, std::size_t bytes) noexcept = 0;
  /// `cuMemPoolTrimTo`: free memory goes back to the system until `keep_bytes` are left.
  [[nodiscard]] virtual status trim_pool(pool_handle pool, std::size_t keep_bytes) noexcept = 0;
  /// `cuMemAllocFromPoolAsync`.
  [[nodiscard]] virtual status allocate_async(std::size_t bytes, pool_handle pool, stream_handle stream,
                                              std::uintptr_t& block) noexcept = 0;
  /// `cuMemFreeAsync`.
  [[nodiscard]] virtual status free_async(std::uintptr_t block, stream_handle stream) noexcept = 0;

  // ---- streams and events ----

  /// `cuStreamCreate`, one that does not wait for the default stream.
  [[nodiscard]] virtual status create_stream(stream_handle& stream) noexcept = 0;
  /// `cuStreamDestroy`.
  [[nodiscard]] virtual status destroy_stream(stream_handle stream) noexcept = 0;
  /// `cuStreamSynchronize`. Refused, and the capture invalidated, where the stream is capturing.
  [[nodiscard]] virtual status synchronize(stream_handle stream) noexcept = 0;
  /// `cuStreamWaitEvent`: later work of the stream waits for what the event was recorded behind.
  [[nodiscard]] virtual status wait(stream_handle stream, event_handle event) noexcept = 0;
  /// `cuEventCreate`, without timing.
  [[nodiscard]] virtual status create_event(event_handle& event) noexcept = 0;
  /// `cuEventDestroy`.
  [[nodiscard]] virtual status destroy_event(event_handle event) noexcept = 0;
  /// `cuEventRecord`.
  [[nodiscard]] virtual status record(event_handle event, stream_handle stream) noexcept = 0;
  /// `cuEventQuery`: `status::not_ready` until the work before the record has ended.
  [[nodiscard]] virtual status query(event_handle event) noexcept = 0;
  /// `cuEventSynchronize`.
  [[nodiscard]] virtual status synchronize(event_handle event) noexcept = 0;
  /// `cuLaunchHostFunc`: the host calls `function(argument)` when the work before has ended; it must make no
  /// call to the driver.
  [[nodiscard]] virtual status launch_on_host(stream_handle stream, void (*function)(void*),
                                              void* argument) noexcept = 0;

  // ---- graphs ----

  /// `cuStreamBeginCapture`.
  [[nodiscard]] virtual status begin_capture(stream_handle stream, capture_mode mode) noexcept = 0;
  /// `cuStreamEndCapture`: the graph, also an empty one; none, with an error, where the capture was
  /// invalidated. The stream does not capture any more in either case.
  [[nodiscard]] virtual status end_capture(stream_handle stream, graph_handle& graph) noexcept = 0;
  /// `cuStreamIsCapturing`: whether the stream captures, also a capture that was invalidated.
  [[nodiscard]] virtual status is_capturing(stream_handle stream, bool& capturing) noexcept = 0;
  /// `cuThreadExchangeStreamCaptureMode`: what captures forbid the calling thread is what `mode` says from
  /// here on; `mode` becomes what it was. `relaxed`: nothing, whatever else captures and how.
  [[nodiscard]] virtual status exchange_capture_mode(capture_mode& mode) noexcept = 0;
  /// `cuGraphGetNodes`: how many there are.
  [[nodiscard]] virtual status node_count(graph_handle graph, std::size_t& nodes) noexcept = 0;
  /// `cuGraphInstantiate`.
  [[nodiscard]] virtual status instantiate(graph_handle graph, executable_handle& executable) noexcept = 0;
  /// `cuGraphLaunch`.
  [[nodiscard]] virtual status launch(executable_handle executable, stream_handle stream) noexcept = 0;
  /// `cuGraphExecDestroy`.
  [[nodiscard]] virtual status destroy_executable(executable_handle executable) noexcept = 0;
  /// `cuGraphDestroy`.
  [[nodiscard]] virtual status destroy_graph(graph_handle graph) noexcept = 0;

  // ---- errors ----

  /// `cuGetErrorName`, as "CUDA_ERROR_OUT_OF_MEMORY"; never null.
  [[nodiscard]] virtual char const* error_name(status result) noexcept = 0;
  /// `cuGetErrorString`, as "out of memory"; never null.
  [[nodiscard]] virtual char const* error_string(status result) noexcept = 0;
};

/// The real driver: one object for the process, whose calls are found in the driver that is installed when
/// they are first needed (`cudaGetDriverEntryPointByVersion`). Nothing is linked to libcuda: where there is
/// no driver, or tidemark was built without a CUDA toolkit, all its calls return an error. Thread-safe.
[[nodiscard]] driver& system_driver() noexcept;

/// The table that is used unless another is given: `system_driver()` until replaced. Thread-safe.
[[nodiscard]] driver& default_driver() noexcept;

/// Replaces the default table; null stands for `system_driver()`. The table must outlive everything made
/// through it; what exists keeps the one it began with. Thread-safe. @return the table before.
driver* set_default_driver(driver* table) noexcept;

}  // namespace tidemark::cuda
