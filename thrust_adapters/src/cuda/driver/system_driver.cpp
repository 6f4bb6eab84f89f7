// SPDX-License-Identifier: Apache-2.0
// The real driver, for builds with a CUDA toolkit; absent_driver.cpp replaces it in other builds.
#include <cuda.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tidemark/core/detail/until_unload.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark::gpu {
namespace {

static_assert(std::is_same_v<stream_handle, CUstream> && std::is_same_v<event_handle, CUevent>);
static_assert(std::is_same_v<graph_handle, CUgraph> && std::is_same_v<executable_handle, CUgraphExec>);
static_assert(std::is_same_v<pool_handle, CUmemoryPool>);
static_assert(std::is_same_v<context_handle, CUcontext>);
static_assert(std::is_same_v<physical_handle, CUmemGenericAllocationHandle>);
static_assert(static_cast<int>(handle_type::file_descriptor) == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
              static_cast<int>(handle_type::fabric) == CU_MEM_HANDLE_TYPE_FABRIC);
static_assert(sizeof(CUmemFabricHandle) == sizeof(shareable_handle::fabric));
static_assert(static_cast<int>(capture_mode::global) == CU_STREAM_CAPTURE_MODE_GLOBAL &&
              static_cast<int>(capture_mode::thread_local_) == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
              static_cast<int>(capture_mode::relaxed) == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(static_cast<int>(status::out_of_memory) == CUDA_ERROR_OUT_OF_MEMORY &&
              static_cast<int>(status::stub_library) == CUDA_ERROR_STUB_LIBRARY &&
              static_cast<int>(status::illegal_state) == CUDA_ERROR_ILLEGAL_STATE &&
              static_cast<int>(status::not_ready) == CUDA_ERROR_NOT_READY &&
              static_cast<int>(status::not_supported) == CUDA_ERROR_NOT_SUPPORTED &&
              static_cast<int>(status::client_terminated) == CUDA_ERROR_MPS_CLIENT_TERMINATED &&
              static_cast<int>(status::capture_unsupported) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
              static_cast<int>(status::capture_wrong_thread) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD &&
              static_cast<int>(status::graph_update_failed) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);

status of(CUresult result) noexcept { return static_cast<status>(result); }

// Returns the driver's own look-up function; null without a driver of CUDA 12 or newer. The library is never
// unloaded, because its functions stay in use.
decltype(&cuGetProcAddress) look_up_function() noexcept {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  return reinterpret_cast<decltype(&cuGetProcAddress)>(::dlsym(library, "cuGetProcAddress_v2"));
}

/// One function of the driver. Each call returns an error if the driver lacks the function.
template <class Signature>
class entry;

template <class... Parameters>
class entry<CUresult(Parameters...)> {
 public:
  explicit entry(char const* name) noexcept {
    auto* const look_up = look_up_function();
    if (look_up == nullptr) {
      missing_ = CUDA_ERROR_NO_DEVICE;
      return;
    }
    constexpr int version = 12000;  // no function below has changed since CUDA 12.0
    void* function = nullptr;
    const CUresult found = look_up(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, nullptr);
    if (found != CUDA_SUCCESS) missing_ = found;
    function_ = reinterpret_cast<CUresult (*)(Parameters...)>(function);
  }

  status operator()(Parameters... arguments) const noexcept {
    return of(function_ != nullptr ? function_(arguments...) : missing_);
  }

 private:
  CUresult (*function_)(Parameters...) = nullptr;
  CUresult missing_ = CUDA_ERROR_NOT_FOUND;
};

/// Returns the function of this name, looked up at its first use.
/// @tparam Declaration declaration in the toolkit's header; only its type is used, which avoids a link to
/// libcuda
template <auto* Declaration>
auto const& entry_of(char const* name) noexcept {
  static const entry<std::remove_pointer_t<decltype(Declaration)>> found{name};
  return found;
}

// The toolkit's headers define some names as macros for versioned names; `#function` is the unexpanded name.
#define TIDEMARK_ENTRY(function) entry_of<function>(#function)  // NOLINT(cppcoreguidelines-macro-usage)

CUmemAllocationProp pinned_as(memory_properties const& wanted) noexcept {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(wanted.exported_as);
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = wanted.device;
  properties.allocFlags.gpuDirectRDMACapable = wanted.gpu_direct_rdma ? 1 : 0;
  return properties;
}

/// Read and write access for some devices, in the driver's form.
struct access_list {
  explicit access_list(device_set devices) noexcept {
    for (device_number device = 0; device < device_set::max_devices; ++device) {
      if (!devices.contains(device)) continue;
      CUmemAccessDesc& access = entries[count++];
      access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      access.location.id = device;
      access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
  }

  std::array<CUmemAccessDesc, device_set::max_devices> entries{};
  std::size_t count = 0;
};

class real_driver final : public driver {
 public:
  status device_count(int& count) noexcept override {
    return in_any_context(TIDEMARK_ENTRY(cuDeviceGetCount), &count);
  }
  status make_current(device_number device) noexcept override {
    if (device < 0 || static_cast<std::size_t>(device) >= primary_.size()) return status::invalid_device;
    std::atomic<CUcontext>& known = primary_[static_cast<std::size_t>(device)];
    CUcontext context = known.load(std::memory_order_acquire);
    if (context == nullptr) {
      status made = initialize();
      if (made == status::success) made = TIDEMARK_ENTRY(cuDevicePrimaryCtxRetain)(&context, device);
      if (made != status::success) return made;
      known.store(context, std::memory_order_release);  // retained until the process ends
    }
    return set_context(context);
  }
  // Returns device 0 for a thread without a context, as the runtime does.
  status current_device(device_number& device) noexcept override {
    context_handle context = nullptr;
    const status asked = current_context(context);
    if (asked != status::success) return asked;
    if (context != nullptr) return TIDEMARK_ENTRY(cuCtxGetDevice)(&device);
    device = 0;
    return status::success;
  }
  status current_context(context_handle& context) noexcept override {
    const status begun = initialize();
    if (begun != status::success) return begun;
    return into<CUcontext>(context, [](CUcontext* now) { return TIDEMARK_ENTRY(cuCtxGetCurrent)(now); });
  }
  status set_context(context_handle context) noexcept override {
    return TIDEMARK_ENTRY(cuCtxSetCurrent)(context);
  }
  status can_access_peer(device_number device, device_number owner, bool& can) noexcept override {
    return into<int>(can, [&](int* answer) {
      return in_any_context(TIDEMARK_ENTRY(cuDeviceCanAccessPeer), answer, device, owner);
    });
  }
  status synchronize() noexcept override { return in_context(TIDEMARK_ENTRY(cuCtxSynchronize)); }
  status memory(memory_info& info) noexcept override {
    return into<memory_info>(info, [&](memory_info* now) {
      return in_context(TIDEMARK_ENTRY(cuMemGetInfo), &now->free_bytes, &now->total_bytes);
    });
  }

  status granularity(memory_properties const& wanted, std::size_t& bytes) noexcept override {
    const CUmemAllocationProp properties = pinned_as(wanted);
    return in_any_context(TIDEMARK_ENTRY(cuMemGetAllocationGranularity), &bytes, &properties,
                          CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  }
  status reserve(std::size_t bytes, std::size_t align, byte_range& range) noexcept override {
    CUdeviceptr first = 0;
    const status result = in_any_context(TIDEMARK_ENTRY(cuMemAddressReserve), &first, bytes, align, 0, 0);
    if (result == status::success) range = {first, bytes};
    return result;
  }
  status free_reservation(byte_range range) noexcept override {
    return in_any_context(TIDEMARK_ENTRY(cuMemAddressFree), range.begin, range.size);
  }
  status create(memory_properties const& wanted, std::size_t bytes,
                physical_handle& handle) noexcept override {
    const CUmemAllocationProp properties = pinned_as(wanted);
    return in_any_context(TIDEMARK_ENTRY(cuMemCreate), &handle, bytes, &properties, 0);
  }
  status release(physical_handle handle) noexcept override {
    return in_any_context(TIDEMARK_ENTRY(cuMemRelease), handle);
  }
  status map(byte_range range, physical_handle handle) noexcept override {
    return in_any_context(TIDEMARK_ENTRY(cuMemMap), range.begin, range.size, 0, handle, 0);
  }
  status unmap(byte_range range) noexcept override {
    return in_any_context(TIDEMARK_ENTRY(cuMemUnmap), range.begin, range.size);
  }
  status allow_access(byte_range range, device_set devices) noexcept override {
    const access_list access{devices};
    return in_any_context(TIDEMARK_ENTRY(cuMemSetAccess), range.begin, range.size, access.entries.data(),
                          access.count);
  }
  status export_handle(physical_handle handle, handle_type type, shareable_handle& shared) noexcept override {
    shareable_handle made{.type = type};
    void* const to =
        type == handle_type::fabric ? static_cast<void*>(made.fabric.data()) : &made.file_descriptor;
    const status result = in_any_context(TIDEMARK_ENTRY(cuMemExportToShareableHandle), to, handle,
                                         static_cast<CUmemAllocationHandleType>(type), 0);
    if (result == status::success) shared = made;
    return result;
  }
  status import_handle(shareable_handle const& shared, physical_handle& handle) noexcept override {
    std::array<std::byte, sizeof(CUmemFabricHandle)> fabric = shared.fabric;
    // The interface passes a file descriptor as the pointer itself.
    auto* const number = reinterpret_cast<void*>(static_cast<std::uintptr_t>(shared.file_descriptor));
    return into<CUmemGenericAllocationHandle>(handle, [&](CUmemGenericAllocationHandle* imported) {
      return in_any_context(TIDEMARK_ENTRY(cuMemImportFromShareableHandle), imported,
                            shared.type == handle_type::fabric ? static_cast<void*>(fabric.data()) : number,
                            static_cast<CUmemAllocationHandleType>(shared.type));
    });
  }

  status allocate(std::size_t bytes, std::uintptr_t& block) noexcept override {
    return into<CUdeviceptr>(
        block, [&](CUdeviceptr* first) { return in_context(TIDEMARK_ENTRY(cuMemAlloc), first, bytes); });
  }
  status free(std::uintptr_t block) noexcept override { return in_context(TIDEMARK_ENTRY(cuMemFree), block); }
  status allocate_managed(std::size_t bytes, std::uintptr_t& block) noexcept override {
    return into<CUdeviceptr>(block, [&](CUdeviceptr* first) {
      return in_context(TIDEMARK_ENTRY(cuMemAllocManaged), first, bytes, CU_MEM_ATTACH_GLOBAL);
    });
  }
  status allocate_pinned(std::size_t bytes, std::uintptr_t& block) noexcept override {
    void* first = nullptr;
    const status result = in_context(TIDEMARK_ENTRY(cuMemHostAlloc), &first, bytes, CU_MEMHOSTALLOC_PORTABLE);
    if (result == status::success) block = reinterpret_cast<std::uintptr_t>(first);
    return result;
  }
  status free_pinned(std::uintptr_t block) noexcept override {
    return in_context(TIDEMARK_ENTRY(cuMemFreeHost), reinterpret_cast<void*>(block));
  }

  status create_pool(memory_properties const& wanted, pool_handle& pool) noexcept override {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = static_cast<CUmemAllocationHandleType>(wanted.exported_as);
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = wanted.device;
    return in_any_context(TIDEMARK_ENTRY(cuMemPoolCreate), &pool, &properties);
  }
  status destroy_pool(pool_handle pool) noexcept override {
    return in_any_context(TIDEMARK_ENTRY(cuMemPoolDestroy), pool);
  }
  status set_release_threshold(pool_handle pool, std::size_t bytes) noexcept override {
    cuuint64_t threshold = bytes;
    return in_any_context(TIDEMARK_ENTRY(cuMemPoolSetAttribute), pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                          &threshold);
  }
  status pool_reserved_bytes(pool_handle pool, std::size_t& bytes) noexcept override {
    return into<cuuint64_t>(bytes, [&](cuuint64_t* reserved) {
      return in_any_context(TIDEMARK_ENTRY(cuMemPoolGetAttribute), pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                            reserved);
    });
  }
  status set_pool_access(pool_handle pool, device_set devices) noexcept override {
    const access_list access{devices};
    return in_any_context(TIDEMARK_ENTRY(cuMemPoolSetAccess), pool, access.entries.data(), access.count);
  }
  status trim_pool(pool_handle pool, std::size_t keep_bytes) noexcept override {
    return in_any_context(TIDEMARK_ENTRY(cuMemPoolTrimTo), pool, keep_bytes);
  }
  status allocate_async(std::size_t bytes, pool_handle pool, stream_handle stream,
                        std::uintptr_t& block) noexcept override {
    return into<CUdeviceptr>(block, [&](CUdeviceptr* first) {
      return in_context(TIDEMARK_ENTRY(cuMemAllocFromPoolAsync), first, bytes, pool, stream);
    });
  }
  status free_async(std::uintptr_t block, stream_handle stream) noexcept override {
    return in_context(TIDEMARK_ENTRY(cuMemFreeAsync), block, stream);
  }

  status create_stream(stream_handle& stream) noexcept override {
    return in_context(TIDEMARK_ENTRY(cuStreamCreate), &stream, CU_STREAM_NON_BLOCKING);
  }
  status destroy_stream(stream_handle stream) noexcept override {
    return in_context(TIDEMARK_ENTRY(cuStreamDestroy), stream);
  }
  status context_of(stream_handle stream, context_handle& context) noexcept override {
    return into<CUcontext>(
        context, [&](CUcontext* found) { return in_context(TIDEMARK_ENTRY(cuStreamGetCtx), stream, found); });
  }
  status synchronize(stream_handle stream) noexcept override {
    return in_context(TIDEMARK_ENTRY(cuStreamSynchronize), stream);
  }
  status wait(stream_handle stream, event_handle event) noexcept override {
    return in_context(TIDEMARK_ENTRY(cuStreamWaitEvent), stream, event, 0);
  }
  status create_event(event_handle& event) noexcept override {
    return in_context(TIDEMARK_ENTRY(cuEventCreate), &event, CU_EVENT_DISABLE_TIMING);
  }
  status destroy_event(event_handle event) noexcept override {
    return in_context(TIDEMARK_ENTRY(cuEventDestroy), event);
  }
  status record(event_handle event, stream_handle stream) noexcept override {
    return in_context(TIDEMARK_ENTRY(cuEventRecord), event, stream);
  }
  status query(event_handle event) noexcept override {
    return in_context(TIDEMARK_ENTRY(cuEventQuery), event);
  }
  status synchronize(event_handle event) noexcept override {
    return in_context(TIDEMARK_ENTRY(cuEventSynchronize), event);
  }
  status launch_on_host(stream_handle stream, void (*function)(void*), void* argument) noexcept override {
    return in_context(TIDEMARK_ENTRY(cuLaunchHostFunc), stream, function, argument);
  }

  status begin_capture(stream_handle stream, capture_mode mode) noexcept override {
    return in_context(TIDEMARK_ENTRY(cuStreamBeginCapture), stream, static_cast<CUstreamCaptureMode>(mode));
  }
  status end_capture(stream_handle stream, graph_handle& graph) noexcept override {
    return into<CUgraph>(graph, [&](CUgraph* captured) {
      return in_context(TIDEMARK_ENTRY(cuStreamEndCapture), stream, captured);
    });
  }
  status is_capturing(stream_handle stream, bool& capturing) noexcept override {
    CUstreamCaptureStatus now{};
    const status result = in_context(TIDEMARK_ENTRY(cuStreamIsCapturing), stream, &now);
    if (result == status::success) capturing = now != CU_STREAM_CAPTURE_STATUS_NONE;
    return result;
  }
  status exchange_capture_mode(capture_mode& mode) noexcept override {
    auto exchanged = static_cast<CUstreamCaptureMode>(mode);
    const status result = in_any_context(TIDEMARK_ENTRY(cuThreadExchangeStreamCaptureMode), &exchanged);
    if (result == status::success) mode = static_cast<capture_mode>(exchanged);
    return result;
  }
  status node_count(graph_handle graph, std::size_t& nodes) noexcept override {
    return in_context(TIDEMARK_ENTRY(cuGraphGetNodes), graph, nullptr, &nodes);
  }
  status instantiate(graph_handle graph, executable_handle& executable) noexcept override {
    return in_context(TIDEMARK_ENTRY(cuGraphInstantiateWithFlags), &executable, graph, 0);
  }
  status update(executable_handle executable, graph_handle graph) noexcept override {
    CUgraphExecUpdateResultInfo difference{};  // must not be null
    return in_context(TIDEMARK_ENTRY(cuGraphExecUpdate), executable, graph, &difference);
  }
  status launch(executable_handle executable, stream_handle stream) noexcept override {
    return in_context(TIDEMARK_ENTRY(cuGraphLaunch), executable, stream);
  }
  status destroy_executable(executable_handle executable) noexcept override {
    return in_context(TIDEMARK_ENTRY(cuGraphExecDestroy), executable);
  }
  status destroy_graph(graph_handle graph) noexcept override {
    return in_context(TIDEMARK_ENTRY(cuGraphDestroy), graph);
  }

  char const* error_name(status result) noexcept override {
    char const* text = nullptr;
    (void)TIDEMARK_ENTRY(cuGetErrorName)(static_cast<CUresult>(result), &text);
    return text != nullptr ? text : driver::error_name(result);
  }
  char const* error_string(status result) noexcept override {
    char const* text = nullptr;
    (void)TIDEMARK_ENTRY(cuGetErrorString)(static_cast<CUresult>(result), &text);
    return text != nullptr ? text : driver::error_string(result);
  }

 private:
  // In a forked child, the first other call reports that the driver is not initialised.
  status initialize() noexcept {
    if (is_initialized_.load(std::memory_order_acquire)) return status::success;
    const status begun = TIDEMARK_ENTRY(cuInit)(0);
    if (begun == status::success) is_initialized_.store(true, std::memory_order_release);
    return begun;
  }
  // Makes a call on the current context. A thread without a context first gets the primary context of device
  // 0, as in the runtime. compute-sanitizer would report a call that the driver refuses for a missing
  // context.
  template <class... Parameters>
  status in_context(entry<CUresult(Parameters...)> const& function,
                    std::type_identity_t<Parameters>... arguments) noexcept {
    context_handle context = nullptr;
    status ready = current_context(context);
    if (ready == status::success && context == nullptr) ready = make_current(0);
    return ready == status::success ? function(arguments...) : ready;
  }
  // Makes a call that names a device, or memory of a device. A thread without a context stays without, unless
  // the driver requires a context.
  template <class... Parameters>
  status in_any_context(entry<CUresult(Parameters...)> const& function,
                        std::type_identity_t<Parameters>... arguments) noexcept {
    const status begun = initialize();
    if (begun != status::success) return begun;
    const status result = function(arguments...);
    return static_cast<CUresult>(result) != CUDA_ERROR_INVALID_CONTEXT ? result
                                                                       : in_context(function, arguments...);
  }
  template <class Result, class Out, class Call>
  static status into(Out& out, Call call) noexcept {
    Result made{};
    const status result = call(&made);
    if (result == status::success) out = static_cast<Out>(made);
    return result;
  }

  std::atomic<bool> is_initialized_{false};
  std::array<std::atomic<CUcontext>, device_set::max_devices>
      primary_{};  // of each device; null: never made current
};

}  // namespace

// Resources in static storage may end later.
driver& system_driver() noexcept {
  static auto& table = *new tidemark::detail::until_unload<real_driver>;
  return table.value;
}

}  // namespace tidemark::gpu
