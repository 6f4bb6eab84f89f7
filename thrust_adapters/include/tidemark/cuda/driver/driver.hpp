// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::driver`: a replaceable table of the CUDA driver calls that tidemark makes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/cuda/driver/detail/captures.hpp>
#include <tidemark/cuda/driver/device_budget.hpp>
#include <tidemark/cuda/driver/device_set.hpp>

// The driver's own opaque structures. cudaStream_t and CUstream are both CUstream_st*. The other handles also
// have one type in the runtime and in the driver.
struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct CUmemPoolHandle_st;

// clang-tidy 22 sees only parts of a module's contents and assumes that they are all.
namespace tidemark::gpu {  // NOLINT(modernize-concat-nested-namespaces)

/// A device's context, as `CUcontext`; null means no context.
using context_handle = ::CUctx_st*;
/// A stream, as `cudaStream_t` and `CUstream`; null is the default stream.
using stream_handle = ::CUstream_st*;
/// An event, as `cudaEvent_t` and `CUevent`.
using event_handle = ::CUevent_st*;
/// A captured graph, as `cudaGraph_t`.
using graph_handle = ::CUgraph_st*;
/// An executable graph, as `cudaGraphExec_t`.
using executable_handle = ::CUgraphExec_st*;
/// A pool of the driver's stream-ordered allocator, as `cudaMemPool_t`.
using pool_handle = ::CUmemPoolHandle_st*;
/// Physical memory, as `CUmemGenericAllocationHandle`.
using physical_handle = unsigned long long;

/// A result of the driver, with the number of `CUresult`. tidemark uses these names; other numbers of the
/// driver are also valid.
enum class [[nodiscard]] status : int {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  not_initialized = 3,
  deinitialized = 4,
  stub_library = 34,  ///< a stub libcuda without a driver
  no_device = 100,
  invalid_device = 101,
  invalid_context = 201,
  contained = 226,  ///< an error of work that ended only this process's work
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

/// Calls that a capture forbids while it is active, as `cudaStreamCaptureMode`.
enum class capture_mode : int {
  global = 0,         ///< unsafe calls of any thread
  thread_local_ = 1,  ///< unsafe calls of the capturing thread
  relaxed = 2,        ///< no calls
};

/// Ways to export physical memory to other processes, as `CUmemAllocationHandleType`.
enum class handle_type : int {
  none = 0,             ///< not exportable
  file_descriptor = 1,  ///< to processes of this machine
  fabric = 8,           ///< to this machine and others that share its fabric
};

/// Physical memory in a form that other processes can import. Does not own the file descriptor.
struct shareable_handle {
  handle_type type = handle_type::none;  ///< selects the member in use
  int file_descriptor = -1;              ///< descriptor of this process
  std::array<std::byte, 64> fabric{};    ///< as `CUmemFabricHandle`

  friend bool operator==(shareable_handle const&, shareable_handle const&) = default;
};

/// Properties of physical memory. A device's number converts to unshared memory of the device.
struct memory_properties {
  /// Memory of a device, by default device 0, that is shared with no process.
  constexpr memory_properties(device_number of = 0, handle_type shared_as = handle_type::none,  // NOLINT
                              bool with_gpu_direct_rdma = false) noexcept
      : device{of}, exported_as{shared_as}, gpu_direct_rdma{with_gpu_direct_rdma} {}

  device_number device;     ///< device of the memory
  handle_type exported_as;  ///< way to export it; fixed at its creation
  bool gpu_direct_rdma;     ///< true if network adapters access it; fixed at its creation

  friend bool operator==(memory_properties const&, memory_properties const&) = default;
};

/// Bytes of a device's memory.
struct memory_info {
  std::size_t free_bytes = 0;   ///< bytes not in use
  std::size_t total_bytes = 0;  ///< bytes of the device
};

/// The calls of the driver that tidemark uses. Derive from it to count calls, to make the n-th call fail, or
/// to replace a device. Pass it as a `driver&`, or set it with `set_default_driver` for the whole process.
/// The functions of this base class return `status::no_device`, as on a machine without a device.
///
/// It uses no type of the toolkit; the device part is therefore compiled and tested without a toolkit. Each
/// function makes the driver call in its comment, on the thread's current device, with the same rules and
/// results. Every function may be called from any thread and does not throw. A reference parameter is set
/// only if the function returns `status::success`.
class driver {
 public:
  driver() = default;
  driver(driver const&) = delete;
  driver& operator=(driver const&) = delete;
  virtual ~driver() = default;

  // ---- devices ----

  /// `cuDeviceGetCount`; `status::no_device` or another error if there is no device or no driver, and in a
  /// build without `TIDEMARK_CUDA`. The count is set on success only.
  virtual status device_count(int& /*count*/) noexcept { return none; }
  /// Makes a device's primary context current for the calling thread, as `cudaSetDevice`.
  virtual status make_current(device_number) noexcept { return none; }
  /// `cuCtxGetDevice`: the calling thread's current device; 0 before `make_current`. Makes no context.
  virtual status current_device(device_number&) noexcept { return none; }
  /// `cuCtxGetCurrent`: the calling thread's context; null if it has none. Makes no context.
  virtual status current_context(context_handle&) noexcept { return none; }
  /// `cuCtxSetCurrent`: null removes the calling thread's context.
  virtual status set_context(context_handle) noexcept { return none; }
  /// `cuDeviceCanAccessPeer`: true if `device` can read and write memory of `owner`, which is another device.
  virtual status can_access_peer(device_number /*device*/, device_number /*owner*/, bool& /*can*/) noexcept {
    return none;
  }
  /// `cuCtxSynchronize`: waits for all work of the current device.
  virtual status synchronize() noexcept { return none; }
  /// `cuMemGetInfo`.
  virtual status memory(memory_info&) noexcept { return none; }

  // ---- addresses and the memory behind them ----

  /// `cuMemGetAllocationGranularity`, the minimum: granule of physical memory in bytes, a power of two.
  virtual status granularity(memory_properties const&, std::size_t& /*bytes*/) noexcept { return none; }
  /// `cuMemAddressReserve`. @pre `bytes` is a multiple of the granularity, `align` a power of two or 0.
  virtual status reserve(std::size_t /*bytes*/, std::size_t /*align*/, byte_range&) noexcept { return none; }
  /// `cuMemAddressFree`. @pre The range is a whole reservation without mappings.
  virtual status free_reservation(byte_range) noexcept { return none; }
  /// `cuMemCreate`: pinned memory of a device. @pre `bytes` is a multiple of the granularity.
  virtual status create(memory_properties const&, std::size_t /*bytes*/, physical_handle&) noexcept {
    return none;
  }
  /// `cuMemRelease`: mapped memory is freed at its unmapping.
  virtual status release(physical_handle) noexcept { return none; }
  /// `cuMemMap` of all memory of a handle. @pre The range has no mapping.
  virtual status map(byte_range, physical_handle) noexcept { return none; }
  /// `cuMemUnmap`. @pre The range is one whole mapping.
  virtual status unmap(byte_range) noexcept { return none; }
  /// `cuMemSetAccess`: lets these devices read and write the range. @pre The whole range is mapped.
  virtual status allow_access(byte_range, device_set) noexcept { return none; }
  /// `cuMemExportToShareableHandle`. The caller closes a file descriptor. @pre The memory was created as
  /// exported in this way.
  virtual status export_handle(physical_handle, handle_type, shareable_handle&) noexcept { return none; }
  /// `cuMemImportFromShareableHandle`. Release the handle like a created one. The caller keeps the file
  /// descriptor.
  virtual status import_handle(shareable_handle const&, physical_handle&) noexcept { return none; }

  // ---- blocks ----

  /// `cuMemAlloc`.
  virtual status allocate(std::size_t /*bytes*/, std::uintptr_t& /*block*/) noexcept { return none; }
  /// `cuMemFree`, also of managed memory. The call may wait for the device.
  virtual status free(std::uintptr_t /*block*/) noexcept { return none; }
  /// `cuMemAllocManaged`, attached globally.
  virtual status allocate_managed(std::size_t /*bytes*/, std::uintptr_t& /*block*/) noexcept { return none; }
  /// `cuMemHostAlloc`, portable: pinned memory of the host, for asynchronous copies.
  virtual status allocate_pinned(std::size_t /*bytes*/, std::uintptr_t& /*block*/) noexcept { return none; }
  /// `cuMemFreeHost`.
  virtual status free_pinned(std::uintptr_t /*block*/) noexcept { return none; }

  // ---- the driver's stream-ordered allocator ----

  /// `cuMemPoolCreate`, of pinned memory of a device. The driver decides on RDMA.
  virtual status create_pool(memory_properties const&, pool_handle&) noexcept { return none; }
  /// `cuMemPoolDestroy`.
  virtual status destroy_pool(pool_handle) noexcept { return none; }
  /// `cuMemPoolSetAttribute(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)`: a synchronisation frees unused memory until
  /// the pool holds this many bytes, in use or free.
  virtual status set_release_threshold(pool_handle, std::size_t /*bytes*/) noexcept { return none; }
  /// `cuMemPoolGetAttribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)`: bytes of the device that the pool holds,
  /// in use or free.
  virtual status pool_reserved_bytes(pool_handle, std::size_t& /*bytes*/) noexcept { return none; }
  /// `cuMemPoolSetAccess`: lets these devices read and write the pool's present and future memory.
  virtual status set_pool_access(pool_handle, device_set) noexcept { return none; }
  /// `cuMemPoolTrimTo`: frees unused memory until the pool holds at most `keep_bytes`.
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
  /// `cuStreamGetCtx`: the context of the stream's device; the current context for a default stream.
  virtual status context_of(stream_handle, context_handle&) noexcept { return none; }
  /// `cuStreamSynchronize`. Fails and invalidates the capture if the stream is capturing.
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
  /// `cuLaunchHostFunc`: the host calls `function(argument)` after the earlier work has ended. The function
  /// must not call the driver.
  virtual status launch_on_host(stream_handle, void (*)(void*), void*) noexcept { return none; }

  // ---- graphs ----

  /// `cuStreamBeginCapture`.
  virtual status begin_capture(stream_handle, capture_mode) noexcept { return none; }
  /// `cuStreamEndCapture`: returns the graph, which may be empty, or an error without a graph if the capture
  /// was invalidated. The capture has ended in either case.
  virtual status end_capture(stream_handle, graph_handle&) noexcept { return none; }
  /// `cuStreamIsCapturing`: true if the stream captures, even if the capture was invalidated.
  virtual status is_capturing(stream_handle, bool& /*capturing*/) noexcept { return none; }
  /// `cuThreadExchangeStreamCaptureMode`: swaps `mode` with the calling thread's mode. In mode `relaxed` no
  /// capture restricts the thread.
  virtual status exchange_capture_mode(capture_mode&) noexcept { return none; }
  /// `cuGraphGetNodes`: the number of nodes.
  virtual status node_count(graph_handle, std::size_t& /*nodes*/) noexcept { return none; }
  /// `cuGraphInstantiate`.
  virtual status instantiate(graph_handle, executable_handle&) noexcept { return none; }
  /// `cuGraphExecUpdate`: changes later launches to the new graph; earlier launches do not change. Returns
  /// `status::graph_update_failed`, with nothing changed, if the graph differs from the instantiated graph in
  /// kinds of nodes or dependencies.
  virtual status update(executable_handle, graph_handle) noexcept { return none; }
  /// `cuGraphLaunch`.
  virtual status launch(executable_handle, stream_handle) noexcept { return none; }
  /// `cuGraphExecDestroy`.
  virtual status destroy_executable(executable_handle) noexcept { return none; }
  /// `cuGraphDestroy`.
  virtual status destroy_graph(graph_handle) noexcept { return none; }

  // ---- errors ----

  /// `cuGetErrorName`, as "CUDA_ERROR_OUT_OF_MEMORY"; never null. Without a driver "CUDA_ERROR_UNKNOWN" for
  /// results that `status` does not name.
  [[nodiscard]] virtual char const* error_name(status result) noexcept;
  /// `cuGetErrorString`, as "out of memory"; never null.
  [[nodiscard]] virtual char const* error_string(status result) noexcept;

  /// Returns the budget of tidemark's resources on a device through these calls. The first call for a device
  /// makes the budget. @throws std::bad_alloc
  [[nodiscard]] device_budget& budget(device_number device) { return budgets_.of(device); }
  /// Returns the budget that counts a pool, of any device, else the budget of `device`.
  /// @throws std::bad_alloc.
  [[nodiscard]] device_budget& budget(device_number device, pool_handle pool) {
    return budgets_.of(device, pool);
  }

  /// Returns the executables that wait for the end of captures. For tidemark's own use.
  [[nodiscard]] detail::retired_executables& retired() noexcept { return retired_; }
  /// Returns true if a device permits mapping while a stream captures. For tidemark's own use.
  [[nodiscard]] bool maps_during_captures(device_number device) noexcept {
    return probe_.maps_during_captures(*this, device);
  }

 private:
  static constexpr status none = status::no_device;

  detail::retired_executables retired_;
  detail::capture_probe probe_;
  detail::device_budgets budgets_;
};

/// Returns the real driver: one object for the process. It loads `libcuda.so.1` and looks up each function on
/// its first call (`cuGetProcAddress`): programs link neither the driver nor the CUDA runtime. All calls
/// return an error without a driver, or if tidemark was built without `TIDEMARK_CUDA`; `error_string` tells
/// the two apart. A thread without a
/// context gets the primary context of device 0 at its first call that needs a context, as in the runtime.
/// Thread-safe.
[[nodiscard]] driver& system_driver() noexcept;

/// Returns the default table: `system_driver()` unless it was replaced. Thread-safe. A program asks it for a
/// usable device:
///
/// ```cpp
/// int devices = 0;
/// bool const usable = gpu::default_driver().device_count(devices) == gpu::status::success && devices > 0;
/// ```
[[nodiscard]] driver& default_driver() noexcept;

/// Replaces the default table; null means `system_driver()`. The table must outlive all objects that use it.
/// Existing objects keep their table. Thread-safe. @return the previous table
driver* set_default_driver(driver* table) noexcept;

}  // namespace tidemark::gpu
