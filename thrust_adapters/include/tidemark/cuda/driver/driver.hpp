// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::driver`: the calls that tidemark makes to the CUDA driver, in one replaceable table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/cuda/driver/detail/captures.hpp>
#include <tidemark/cuda/driver/device_budget.hpp>
#include <tidemark/cuda/driver/device_set.hpp>

// The driver's own opaque structures: cudaStream_t and CUstream are both CUstream_st*, and so on.
struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct CUmemPoolHandle_st;

// clang-tidy 22 sees only parts of what a module brings, and takes them for all.
namespace tidemark::gpu {  // NOLINT(modernize-concat-nested-namespaces)

/// A device's context, as `CUcontext`; null is none.
using context_handle = ::CUctx_st*;
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

/// A result of the driver, with the number of `CUresult`. The names are those that tidemark uses; other
/// numbers of the driver are valid too.
enum class [[nodiscard]] status : int {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  not_initialized = 3,
  deinitialized = 4,
  stub_library = 34,  ///< a libcuda without a driver behind it
  no_device = 100,
  invalid_device = 101,
  invalid_context = 201,
  contained = 226,  ///< an error of work that ended only the work of this process
  invalid_handle = 400,
  illegal_state = 401,
  not_found = 500,
  not_ready = 600,
  illegal_address = 700,
  not_permitted = 800,
  not_supported = 801,
  client_terminated = 810,  ///< the server that shares the device has ended this process's work
  capture_unsupported = 900,
  capture_invalidated = 901,
  capture_merge = 902,
  capture_unmatched = 903,
  capture_unjoined = 904,
  capture_isolation = 905,
  capture_implicit = 906,
  captured_event = 907,
  capture_wrong_thread = 908,
  graph_update_failed = 910,
  unknown = 999,
};

/// What else a capture forbids while it is active, as `cudaStreamCaptureMode`.
enum class capture_mode : int {
  global = 0,         ///< unsafe calls of any thread
  thread_local_ = 1,  ///< unsafe calls of the capturing thread
  relaxed = 2,        ///< nothing
};

/// How physical memory can be handed to other processes, as `CUmemAllocationHandleType`.
enum class handle_type : int {
  none = 0,             ///< not at all
  file_descriptor = 1,  ///< of this machine
  fabric = 8,           ///< of this machine and others that share its fabric
};

/// Physical memory in the form in which other processes can import it. Does not own the file descriptor.
struct shareable_handle {
  handle_type type = handle_type::none;  ///< which of the two that follow is used
  int file_descriptor = -1;              ///< of this process
  std::array<std::byte, 64> fabric{};    ///< as `CUmemFabricHandle`

  friend bool operator==(shareable_handle const&, shareable_handle const&) = default;
};

/// What physical memory is asked for. A device's number converts to memory of it that is not shared.
struct memory_properties {
  /// Of a device, by default the first one, and shared with no process.
  constexpr memory_properties(device_number of = 0, handle_type shared_as = handle_type::none,  // NOLINT
                              bool with_gpu_direct_rdma = false) noexcept
      : device{of}, exported_as{shared_as}, gpu_direct_rdma{with_gpu_direct_rdma} {}

  device_number device;     ///< whose memory
  handle_type exported_as;  ///< how it can be exported; to be said when it is created
  bool gpu_direct_rdma;     ///< whether network adapters shall read and write it; to be said then, too

  friend bool operator==(memory_properties const&, memory_properties const&) = default;
};

/// Bytes of a device's memory.
struct memory_info {
  std::size_t free_bytes = 0;   ///< not in use
  std::size_t total_bytes = 0;  ///< of the device
};

/// The calls of the driver that tidemark uses. Derive from it to count calls, to make the n-th one fail,
/// or to replace a device; pass it to what takes a `driver&`, or to `set_default_driver` for the whole
/// process. Its own functions are those of a machine without a device: they return `status::no_device`.
///
/// It uses no type of the toolkit, so that the device part is compiled and tested without one. Each
/// function is the call of the driver named in its comment, on the thread's current device, with its rules
/// and results. Every function may be called from any thread and throws nothing. A reference parameter is
/// set only if the function returns `status::success`.
class driver {
 public:
  driver() = default;
  driver(driver const&) = delete;
  driver& operator=(driver const&) = delete;
  virtual ~driver() = default;

  // ---- devices ----

  /// `cuDeviceGetCount`; `status::no_device` or another error if there is no device or no driver.
  virtual status device_count(int& /*count*/) noexcept { return none; }
  /// Makes a device's primary context current for the calling thread, as `cudaSetDevice`.
  virtual status make_current(device_number) noexcept { return none; }
  /// `cuCtxGetDevice`: the calling thread's current device; 0 before `make_current`. Makes no context.
  virtual status current_device(device_number&) noexcept { return none; }
  /// `cuCtxGetCurrent`: the calling thread's context; null if it has none, and then it gets none.
  virtual status current_context(context_handle&) noexcept { return none; }
  /// `cuCtxSetCurrent`: null takes the calling thread's context away.
  virtual status set_context(context_handle) noexcept { return none; }
  /// `cuDeviceCanAccessPeer`: whether `device` can read and write memory of `owner`, which is another device.
  virtual status can_access_peer(device_number /*device*/, device_number /*owner*/, bool& /*can*/) noexcept {
    return none;
  }
  /// `cuCtxSynchronize`: waits for all work of the current device.
  virtual status synchronize() noexcept { return none; }
  /// `cuMemGetInfo`.
  virtual status memory(memory_info&) noexcept { return none; }

  // ---- addresses and the memory behind them ----

  /// `cuMemGetAllocationGranularity`, the minimum: bytes that physical memory comes in, a power of two.
  virtual status granularity(memory_properties const&, std::size_t& /*bytes*/) noexcept { return none; }
  /// `cuMemAddressReserve`. @pre `bytes` is a multiple of the granularity, `align` a power of two or 0.
  virtual status reserve(std::size_t /*bytes*/, std::size_t /*align*/, byte_range&) noexcept { return none; }
  /// `cuMemAddressFree`. @pre the range is whole, and nothing is mapped in it.
  virtual status free_reservation(byte_range) noexcept { return none; }
  /// `cuMemCreate`: pinned memory of a device. @pre `bytes` is a multiple of the granularity.
  virtual status create(memory_properties const&, std::size_t /*bytes*/, physical_handle&) noexcept {
    return none;
  }
  /// `cuMemRelease`: mapped memory is freed when it is unmapped.
  virtual status release(physical_handle) noexcept { return none; }
  /// `cuMemMap`, all of a handle's memory. @pre nothing is mapped in the range.
  virtual status map(byte_range, physical_handle) noexcept { return none; }
  /// `cuMemUnmap`. @pre the range is one whole mapping.
  virtual status unmap(byte_range) noexcept { return none; }
  /// `cuMemSetAccess`: these devices may read and write the range. @pre all of it is mapped.
  virtual status allow_access(byte_range, device_set) noexcept { return none; }
  /// `cuMemExportToShareableHandle`: a file descriptor is the caller's to close. @pre the memory was created
  /// as exported in that way.
  virtual status export_handle(physical_handle, handle_type, shareable_handle&) noexcept { return none; }
  /// `cuMemImportFromShareableHandle`: the handle is released as one that was created. The file descriptor
  /// stays the caller's.
  virtual status import_handle(shareable_handle const&, physical_handle&) noexcept { return none; }

  // ---- blocks ----

  /// `cuMemAlloc`.
  virtual status allocate(std::size_t /*bytes*/, std::uintptr_t& /*block*/) noexcept { return none; }
  /// `cuMemFree`, also of managed memory: may wait for the device, and need not.
  virtual status free(std::uintptr_t /*block*/) noexcept { return none; }
  /// `cuMemAllocManaged`, attached globally.
  virtual status allocate_managed(std::size_t /*bytes*/, std::uintptr_t& /*block*/) noexcept { return none; }
  /// `cuMemHostAlloc`, portable: pinned memory of the host, for asynchronous copies.
  virtual status allocate_pinned(std::size_t /*bytes*/, std::uintptr_t& /*block*/) noexcept { return none; }
  /// `cuMemFreeHost`.
  virtual status free_pinned(std::uintptr_t /*block*/) noexcept { return none; }

  // ---- the driver's stream-ordered allocator ----

  /// `cuMemPoolCreate`, of pinned memory of a device; RDMA is a matter of the driver's then.
  virtual status create_pool(memory_properties const&, pool_handle&) noexcept { return none; }
  /// `cuMemPoolDestroy`.
  virtual status destroy_pool(pool_handle) noexcept { return none; }
  /// `cuMemPoolSetAttribute(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)`: a synchronisation frees unused memory
  /// until the pool holds so many bytes, in use or free.
  virtual status set_release_threshold(pool_handle, std::size_t /*bytes*/) noexcept { return none; }
  /// `cuMemPoolGetAttribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)`: bytes of the device that the pool holds,
  /// in use or free.
  virtual status pool_reserved_bytes(pool_handle, std::size_t& /*bytes*/) noexcept { return none; }
  /// `cuMemPoolSetAccess`: these devices may read and write what is in the pool now and later.
  virtual status set_pool_access(pool_handle, device_set) noexcept { return none; }
  /// `cuMemPoolTrimTo`: frees unused memory until the pool holds `keep_bytes`.
  virtual status trim_pool(pool_handle, std::size_t /*keep_bytes*/) noexcept { return none; }
  /// `cuMemAllocFromPoolAsync`.
  virtual status allocate_async(std::size_t /*bytes*/, pool_handle, stream_handle,
                                std::uintptr_t& /*block*/) noexcept {
    return none;
  }
  /// `cuMemFreeAsync`.
  virtual status free_async(std::uintptr_t /*block*/, stream_handle) noexcept { return none; }

  // ---- streams and events ----

  /// `cuStreamCreate`, without waits for the default stream.
  virtual status create_stream(stream_handle&) noexcept { return none; }
  /// `cuStreamDestroy`.
  virtual status destroy_stream(stream_handle) noexcept { return none; }
  /// `cuStreamGetCtx`: the context of the stream's device; of a default stream, the current one.
  virtual status context_of(stream_handle, context_handle&) noexcept { return none; }
  /// `cuStreamSynchronize`. If the stream is capturing, it fails and invalidates the capture.
  virtual status synchronize(stream_handle) noexcept { return none; }
  /// `cuStreamWaitEvent`: later work of the stream waits for the event.
  virtual status wait(stream_handle, event_handle) noexcept { return none; }
  /// `cuEventCreate`, without timing.
  virtual status create_event(event_handle&) noexcept { return none; }
  /// `cuEventDestroy`.
  virtual status destroy_event(event_handle) noexcept { return none; }
  /// `cuEventRecord`.
  virtual status record(event_handle, stream_handle) noexcept { return none; }
  /// `cuEventQuery`: `status::not_ready` until the work before the record has ended.
  virtual status query(event_handle) noexcept { return none; }
  /// `cuEventSynchronize`.
  virtual status synchronize(event_handle) noexcept { return none; }
  /// `cuLaunchHostFunc`: the host calls `function(argument)` when the work before has ended; it must make
  /// no call to the driver.
  virtual status launch_on_host(stream_handle, void (*)(void*), void*) noexcept { return none; }

  // ---- graphs ----

  /// `cuStreamBeginCapture`.
  virtual status begin_capture(stream_handle, capture_mode) noexcept { return none; }
  /// `cuStreamEndCapture`: the graph, which may be empty; an error without a graph if the capture was
  /// invalidated. The capture has ended in either case.
  virtual status end_capture(stream_handle, graph_handle&) noexcept { return none; }
  /// `cuStreamIsCapturing`: whether the stream captures, even if the capture was invalidated.
  virtual status is_capturing(stream_handle, bool& /*capturing*/) noexcept { return none; }
  /// `cuThreadExchangeStreamCaptureMode`: swaps `mode` with the calling thread's mode. In `relaxed` no
  /// capture forbids the thread anything.
  virtual status exchange_capture_mode(capture_mode&) noexcept { return none; }
  /// `cuGraphGetNodes`: the number of nodes.
  virtual status node_count(graph_handle, std::size_t& /*nodes*/) noexcept { return none; }
  /// `cuGraphInstantiate`.
  virtual status instantiate(graph_handle, executable_handle&) noexcept { return none; }
  /// `cuGraphExecUpdate`: later launches do what the graph says; those made before are not affected.
  /// `status::graph_update_failed`, with nothing changed, if the graph is not like the one that was
  /// instantiated: the same kinds of nodes with the same dependencies.
  virtual status update(executable_handle, graph_handle) noexcept { return none; }
  /// `cuGraphLaunch`.
  virtual status launch(executable_handle, stream_handle) noexcept { return none; }
  /// `cuGraphExecDestroy`.
  virtual status destroy_executable(executable_handle) noexcept { return none; }
  /// `cuGraphDestroy`.
  virtual status destroy_graph(graph_handle) noexcept { return none; }

  // ---- errors ----

  /// `cuGetErrorName`, as "CUDA_ERROR_OUT_OF_MEMORY"; never null. Without a driver
  /// "CUDA_ERROR_UNKNOWN" for those that `status` does not name.
  [[nodiscard]] virtual char const* error_name(status result) noexcept;
  /// `cuGetErrorString`, as "out of memory"; never null.
  [[nodiscard]] virtual char const* error_string(status result) noexcept;

  /// What tidemark's resources hold of a device by these calls, and its limit. @throws std::bad_alloc where
  /// it is made, by the first call for the device.
  [[nodiscard]] device_budget& budget(device_number device) { return budgets_.of(device); }
  /// The budget in which a pool counts, of any device; that of `device` if the pool is no `gpu::memory_pool`.
  /// @throws std::bad_alloc.
  [[nodiscard]] device_budget& budget(device_number device, pool_handle pool) {
    return budgets_.of(device, pool);
  }

  /// What waits until nothing captures. For tidemark's own use.
  [[nodiscard]] detail::retired_executables& retired() noexcept { return retired_; }
  /// True if memory may be mapped on a device while a stream captures. For tidemark's own use.
  [[nodiscard]] bool maps_during_captures(device_number device) noexcept {
    return probe_.maps_during_captures(*this, device);
  }

 private:
  static constexpr status none = status::no_device;

  detail::retired_executables retired_;
  detail::capture_probe probe_;
  detail::device_budgets budgets_;
};

/// The real driver: one object for the process. It loads `libcuda.so.1` and looks up each function when the
/// function is first called (`cuGetProcAddress`): programs link neither the driver nor the CUDA runtime. All
/// calls return an error if there is no driver, or if tidemark was built without a CUDA toolkit. A thread
/// without a context gets the primary context of device 0 at its first call that needs one, as from the
/// runtime. Thread-safe.
[[nodiscard]] driver& system_driver() noexcept;

/// The default table: `system_driver()` until it is replaced. Thread-safe.
[[nodiscard]] driver& default_driver() noexcept;

/// Replaces the default table; null means `system_driver()`. The table must outlive all objects that use
/// it; existing objects keep theirs. Thread-safe. @return the table before.
driver* set_default_driver(driver* table) noexcept;

}  // namespace tidemark::gpu
