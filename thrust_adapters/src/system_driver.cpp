// SPDX-License-Identifier: Apache-2.0
// The real driver. Compiled where there is a CUDA toolkit; absent_driver.cpp stands in where there is none.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <type_traits>

#include <tidemark/cuda/driver.hpp>

#include "status_text.hpp"

namespace tidemark::cuda {
namespace {

static_assert(std::is_same_v<stream_handle, cudaStream_t> && std::is_same_v<stream_handle, CUstream>);
static_assert(std::is_same_v<event_handle, cudaEvent_t> && std::is_same_v<graph_handle, cudaGraph_t>);
static_assert(std::is_same_v<executable_handle, cudaGraphExec_t> &&
              std::is_same_v<pool_handle, cudaMemPool_t>);
static_assert(std::is_same_v<physical_handle, CUmemGenericAllocationHandle>);
static_assert(static_cast<int>(capture_mode::global) == CU_STREAM_CAPTURE_MODE_GLOBAL &&
              static_cast<int>(capture_mode::thread_local_) == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
              static_cast<int>(capture_mode::relaxed) == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(static_cast<int>(status::out_of_memory) == CUDA_ERROR_OUT_OF_MEMORY &&
              static_cast<int>(status::stub_library) == CUDA_ERROR_STUB_LIBRARY &&
              static_cast<int>(status::illegal_state) == CUDA_ERROR_ILLEGAL_STATE &&
              static_cast<int>(status::not_ready) == CUDA_ERROR_NOT_READY &&
              static_cast<int>(status::not_supported) == CUDA_ERROR_NOT_SUPPORTED &&
              static_cast<int>(status::capture_unsupported) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
              static_cast<int>(status::capture_wrong_thread) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);

status of(CUresult result) noexcept { return static_cast<status>(result); }

// Both number their results alike, but for a few; among these is what keeps the runtime from the driver.
CUresult as_of_the_driver(cudaError_t result) noexcept {
  if (result == cudaErrorInsufficientDriver) return CUDA_ERROR_NO_DEVICE;  // none is installed, or an old one
  return static_cast<CUresult>(result);
}

/// One function of the driver. It is found there when the table is made, by the signature that it has in the
/// toolkit's header; a driver that lacks it says so each time it is called.
template <class Signature>
class entry;

template <class... Arguments>
class entry<CUresult(Arguments...)> {
 public:
  explicit entry(char const* name) noexcept {
    constexpr unsigned int version = 12000;  // since then none of those below has changed
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t result =
        cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found);
    if (result == cudaSuccess && found == cudaDriverEntryPointSuccess) {
      function_ = reinterpret_cast<CUresult (*)(Arguments...)>(function);
    } else {
      missing_ = result == cudaSuccess ? CUDA_ERROR_NOT_FOUND : as_of_the_driver(result);
    }
  }

  /// Calls it. A thread that has no context yet gets the runtime's, once.
  status operator()(Arguments... arguments) const noexcept {
    if (function_ == nullptr) return of(missing_);
    const CUresult result = function_(arguments...);
    if (result != CUDA_ERROR_INVALID_CONTEXT && result != CUDA_ERROR_NOT_INITIALIZED) return of(result);
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess || cudaSetDevice(device) != cudaSuccess) return of(result);
    return of(function_(arguments...));
  }

 private:
  CUresult (*function_)(Arguments...) = nullptr;
  CUresult missing_ = CUDA_SUCCESS;
};

CUmemAllocationProp pinned_on(device_number device) noexcept {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

class real_driver final : public driver {
 public:
  status device_count(int& count) noexcept override {
    const status begun = init_(0);
    return begun == status::success ? device_get_count_(&count) : begun;
  }
  status make_current(device_number device) noexcept override {
    return of(as_of_the_driver(cudaSetDevice(device)));
  }
  status current_device(device_number& device) noexcept override {
    return of(as_of_the_driver(cudaGetDevice(&device)));
  }
  status synchronize() noexcept override { return ctx_synchronize_(); }
  status memory(memory_info& info) noexcept override {
    memory_info now;
    const status result = mem_get_info_(&now.free_bytes, &now.total_bytes);
    if (result == status::success) info = now;
    return result;
  }

  status granularity(device_number device, std::size_t& bytes) noexcept override {
    const CUmemAllocationProp properties = pinned_on(device);
    return mem_get_granularity_(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  }
  status reserve(std::size_t bytes, std::size_t align, byte_range& range) noexcept override {
    CUdeviceptr first = 0;
    const status result = mem_address_reserve_(&first, bytes, align, 0, 0);
    if (result == status::success) range = {first, bytes};
    return result;
  }
  status free_reservation(byte_range range) noexcept override {
    return mem_address_free_(range.begin, range.size);
  }
  status create(device_number device, std::size_t bytes, physical_handle& handle) noexcept override {
    const CUmemAllocationProp properties = pinned_on(device);
    return mem_create_(&handle, bytes, &properties, 0);
  }
  status release(physical_handle handle) noexcept override { return mem_release_(handle); }
  status map(byte_range range, physical_handle handle) noexcept override {
    return mem_map_(range.begin, range.size, 0, handle, 0);
  }
  status unmap(byte_range range) noexcept override { return mem_unmap_(range.begin, range.size); }
  status allow_access(byte_range range, device_number device) noexcept override {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return mem_set_access_(range.begin, range.size, &access, 1);
  }

  status allocate(std::size_t bytes, std::uintptr_t& block) noexcept override {
    return into(block, [&](CUdeviceptr* first) { return mem_alloc_(first, bytes); });
  }
  status free(std::uintptr_t block) noexcept override { return mem_free_(block); }
  status allocate_managed(std::size_t bytes, std::uintptr_t& block) noexcept override {
    return into(block,
                [&](CUdeviceptr* first) { return mem_alloc_managed_(first, bytes, CU_MEM_ATTACH_GLOBAL); });
  }
  status allocate_pinned(std::size_t bytes, std::uintptr_t& block) noexcept override {
    void* first = nullptr;
    const status result = mem_host_alloc_(&first, bytes, CU_MEMHOSTALLOC_PORTABLE);
    if (result == status::success) block = reinterpret_cast<std::uintptr_t>(first);
    return result;
  }
  status free_pinned(std::uintptr_t block) noexcept override {
    return mem_free_host_(reinterpret_cast<void*>(block));
  }

  status create_pool(device_number device, pool_handle& pool) noexcept override {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    return pool_create_(&pool, &properties);
  }
  status destroy_pool(pool_handle pool) noexcept override { return pool_destroy_(pool); }
  status set_release_threshold(pool_handle pool, std::size_t bytes) noexcept override {
    cuuint64_t threshold = bytes;
    return pool_set_attribute_(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
  }
  status trim_pool(pool_handle pool, std::size_t keep_bytes) noexcept override {
    return pool_trim_to_(pool, keep_bytes);
  }
  status allocate_async(std::size_t bytes, pool_handle pool, stream_handle stream,
                        std::uintptr_t& block) noexcept override {
    return into(block,
                [&](CUdeviceptr* first) { return mem_alloc_from_pool_async_(first, bytes, pool, stream); });
  }
  status free_async(std::uintptr_t block, stream_handle stream) noexcept override {
    return mem_free_async_(block, stream);
  }

  status create_stream(stream_handle& stream) noexcept override {
    return stream_create_(&stream, CU_STREAM_NON_BLOCKING);
  }
  status destroy_stream(stream_handle stream) noexcept override { return stream_destroy_(stream); }
  status synchronize(stream_handle stream) noexcept override { return stream_synchronize_(stream); }
  status wait(stream_handle stream, event_handle event) noexcept override {
    return stream_wait_event_(stream, event, 0);
  }
  status create_event(event_handle& event) noexcept override {
    return event_create_(&event, CU_EVENT_DISABLE_TIMING);
  }
  status destroy_event(event_handle event) noexcept override { return event_destroy_(event); }
  status record(event_handle event, stream_handle stream) noexcept override {
    return event_record_(event, stream);
  }
  status query(event_handle event) noexcept override { return event_query_(event); }
  status synchronize(event_handle event) noexcept override { return event_synchronize_(event); }
  status launch_on_host(stream_handle stream, void (*function)(void*), void* argument) noexcept override {
    return launch_host_func_(stream, function, argument);
  }

  status begin_capture(stream_handle stream, capture_mode mode) noexcept override {
    return stream_begin_capture_(stream, static_cast<CUstreamCaptureMode>(mode));
  }
  status end_capture(stream_handle stream, graph_handle& graph) noexcept override {
    CUgraph captured = nullptr;
    const status result = stream_end_capture_(stream, &captured);
    if (result == status::success) graph = captured;
    return result;
  }
  status is_capturing(stream_handle stream, bool& capturing) noexcept override {
    CUstreamCaptureStatus now{};
    const status result = stream_is_capturing_(stream, &now);
    if (result == status::success) capturing = now != CU_STREAM_CAPTURE_STATUS_NONE;
    return result;
  }
  status exchange_capture_mode(capture_mode& mode) noexcept override {
    auto exchanged = static_cast<CUstreamCaptureMode>(mode);
    const status result = thread_exchange_mode_(&exchanged);
    if (result == status::success) mode = static_cast<capture_mode>(exchanged);
    return result;
  }
  status node_count(graph_handle graph, std::size_t& nodes) noexcept override {
    return graph_get_nodes_(graph, nullptr, &nodes);
  }
  status instantiate(graph_handle graph, executable_handle& executable) noexcept override {
    return graph_instantiate_(&executable, graph, 0);
  }
  status launch(executable_handle executable, stream_handle stream) noexcept override {
    return graph_launch_(executable, stream);
  }
  status destroy_executable(executable_handle executable) noexcept override {
    return graph_exec_destroy_(executable);
  }
  status destroy_graph(graph_handle graph) noexcept override { return graph_destroy_(graph); }

  char const* error_name(status result) noexcept override {
    char const* text = nullptr;
    return get_error_name_(static_cast<CUresult>(result), &text) == status::success && text != nullptr
               ? text
               : fallback_name(result);
  }
  char const* error_string(status result) noexcept override {
    char const* text = nullptr;
    return get_error_string_(static_cast<CUresult>(result), &text) == status::success && text != nullptr
               ? text
               : fallback_string(result);
  }

 private:
  template <class Allocate>
  static status into(std::uintptr_t& block, Allocate allocate) noexcept {
    CUdeviceptr first = 0;
    const status result = allocate(&first);
    if (result == status::success) block = first;
    return result;
  }

  entry<decltype(::cuInit)> init_{"cuInit"};
  entry<decltype(::cuDeviceGetCount)> device_get_count_{"cuDeviceGetCount"};
  entry<decltype(::cuCtxSynchronize)> ctx_synchronize_{"cuCtxSynchronize"};
  entry<decltype(::cuMemGetInfo)> mem_get_info_{"cuMemGetInfo"};
  entry<decltype(::cuMemGetAllocationGranularity)> mem_get_granularity_{"cuMemGetAllocationGranularity"};
  entry<decltype(::cuMemAddressReserve)> mem_address_reserve_{"cuMemAddressReserve"};
  entry<decltype(::cuMemAddressFree)> mem_address_free_{"cuMemAddressFree"};
  entry<decltype(::cuMemCreate)> mem_create_{"cuMemCreate"};
  entry<decltype(::cuMemRelease)> mem_release_{"cuMemRelease"};
  entry<decltype(::cuMemMap)> mem_map_{"cuMemMap"};
  entry<decltype(::cuMemUnmap)> mem_unmap_{"cuMemUnmap"};
  entry<decltype(::cuMemSetAccess)> mem_set_access_{"cuMemSetAccess"};
  entry<decltype(::cuMemAlloc)> mem_alloc_{"cuMemAlloc"};
  entry<decltype(::cuMemFree)> mem_free_{"cuMemFree"};
  entry<decltype(::cuMemAllocManaged)> mem_alloc_managed_{"cuMemAllocManaged"};
  entry<decltype(::cuMemHostAlloc)> mem_host_alloc_{"cuMemHostAlloc"};
  entry<decltype(::cuMemFreeHost)> mem_free_host_{"cuMemFreeHost"};
  entry<decltype(::cuMemPoolCreate)> pool_create_{"cuMemPoolCreate"};
  entry<decltype(::cuMemPoolDestroy)> pool_destroy_{"cuMemPoolDestroy"};
  entry<decltype(::cuMemPoolSetAttribute)> pool_set_attribute_{"cuMemPoolSetAttribute"};
  entry<decltype(::cuMemPoolTrimTo)> pool_trim_to_{"cuMemPoolTrimTo"};
  entry<decltype(::cuMemAllocFromPoolAsync)> mem_alloc_from_pool_async_{"cuMemAllocFromPoolAsync"};
  entry<decltype(::cuMemFreeAsync)> mem_free_async_{"cuMemFreeAsync"};
  entry<decltype(::cuStreamCreate)> stream_create_{"cuStreamCreate"};
  entry<decltype(::cuStreamDestroy)> stream_destroy_{"cuStreamDestroy"};
  entry<decltype(::cuStreamSynchronize)> stream_synchronize_{"cuStreamSynchronize"};
  entry<decltype(::cuStreamWaitEvent)> stream_wait_event_{"cuStreamWaitEvent"};
  entry<decltype(::cuEventCreate)> event_create_{"cuEventCreate"};
  entry<decltype(::cuEventDestroy)> event_destroy_{"cuEventDestroy"};
  entry<decltype(::cuEventRecord)> event_record_{"cuEventRecord"};
  entry<decltype(::cuEventQuery)> event_query_{"cuEventQuery"};
  entry<decltype(::cuEventSynchronize)> event_synchronize_{"cuEventSynchronize"};
  entry<decltype(::cuLaunchHostFunc)> launch_host_func_{"cuLaunchHostFunc"};
  entry<decltype(::cuStreamBeginCapture)> stream_begin_capture_{"cuStreamBeginCapture"};
  entry<decltype(::cuStreamEndCapture)> stream_end_capture_{"cuStreamEndCapture"};
  entry<decltype(::cuStreamIsCapturing)> stream_is_capturing_{"cuStreamIsCapturing"};
  entry<decltype(::cuThreadExchangeStreamCaptureMode)> thread_exchange_mode_{
      "cuThreadExchangeStreamCaptureMode"};
  entry<decltype(::cuGraphGetNodes)> graph_get_nodes_{"cuGraphGetNodes"};
  entry<decltype(::cuGraphInstantiateWithFlags)> graph_instantiate_{"cuGraphInstantiateWithFlags"};
  entry<decltype(::cuGraphLaunch)> graph_launch_{"cuGraphLaunch"};
  entry<decltype(::cuGraphExecDestroy)> graph_exec_destroy_{"cuGraphExecDestroy"};
  entry<decltype(::cuGraphDestroy)> graph_destroy_{"cuGraphDestroy"};
  entry<decltype(::cuGetErrorName)> get_error_name_{"cuGetErrorName"};
  entry<decltype(::cuGetErrorString)> get_error_string_{"cuGetErrorString"};
};

}  // namespace

driver& system_driver() noexcept {
  static real_driver table;
  return table;
}

}  // namespace tidemark::cuda
