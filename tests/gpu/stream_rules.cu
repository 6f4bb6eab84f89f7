// SPDX-License-Identifier: Apache-2.0
// Default streams, contexts and sticky errors.
#include <string>
#include <thread>

#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/detail/driver_state.hpp>
#include <tidemark/cuda/driver/stream_order.hpp>

#include "rule.hpp"

namespace tidemark::test {
namespace {

using gpu::status;

__global__ void write_one(int* x) { *x = 1; }

answer per_thread_streams() {
  keep_busy(gpu::per_thread_stream);
  bool other_is_busy = true;
  std::thread{[&] { other_is_busy = is_busy(gpu::per_thread_stream); }}.join();
  const bool own_is_busy = is_busy(gpu::per_thread_stream);
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return {own_is_busy && !other_is_busy, std::string{"own busy: "} + (own_is_busy ? "yes" : "no") +
                                             ", another thread's: " + (other_is_busy ? "yes" : "no")};
}

answer handles_of_the_legacy_stream() {
  keep_busy(nullptr);
  const bool same = is_busy(gpu::legacy_stream);
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return {same, same ? "work on null keeps 0x1 busy" : "0x1 is idle"};
}

answer blocking_streams() {
  cudaStream_t blocking{}, other{};
  require(cudaStreamCreate(&blocking), "cudaStreamCreate");
  require(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  keep_busy(blocking);
  launch_spin(nullptr, 1);
  launch_spin(other, 1);
  const bool legacy_waits = is_busy(nullptr);
  require(cudaStreamSynchronize(other), "cudaStreamSynchronize");
  const bool other_waits = !is_busy(blocking);
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  keep_busy(nullptr);
  launch_spin(blocking, 1);
  const bool blocking_waits = is_busy(blocking);
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  (void)cudaStreamDestroy(blocking);
  (void)cudaStreamDestroy(other);
  return {legacy_waits && blocking_waits && !other_waits,
          std::string{"the legacy one waits: "} + (legacy_waits ? "yes" : "no") + ", the blocking one: " +
              (blocking_waits ? "yes" : "no") + ", another: " + (other_waits ? "yes" : "no")};
}

gpu::context_handle context_here() {
  gpu::context_handle context = nullptr;
  gpu::require_success(driver(), "cuCtxGetCurrent", driver().current_context(context));
  return context;
}

answer device_0_restored() {
  bool at_first = true, after_asking = true, after_setting = false;
  std::thread{[&] {
    int device = 0;
    at_first = context_here() != nullptr;
    (void)cudaGetDevice(&device);
    after_asking = context_here() != nullptr;
    (void)cudaSetDevice(device);
    after_setting = context_here() != nullptr;
  }}.join();
  return {!at_first && !after_asking && after_setting,
          std::string{"a new thread has one: "} + (at_first ? "yes" : "no") + ", after cudaGetDevice: " +
              (after_asking ? "yes" : "no") + ", after cudaSetDevice: " + (after_setting ? "yes" : "no")};
}

/// Tests the action of tidemark around each call that needs a device, in a thread without a device.
answer context_taken_away() {
  bool has_none = false, runtime_works = false;
  std::thread{[&] {
    gpu::require_success(driver(), "cuDevicePrimaryCtxRetain", driver().make_current(0));
    gpu::require_success(driver(), "cuCtxSetCurrent", driver().set_context(nullptr));
    has_none = context_here() == nullptr;
    void* block = nullptr;
    runtime_works = cudaMalloc(&block, 1000) == cudaSuccess && cudaFree(block) == cudaSuccess;
  }}.join();
  return {has_none && runtime_works, std::string{"none left: "} + (has_none ? "yes" : "no") +
                                         ", the runtime works afterwards: " + (runtime_works ? "yes" : "no")};
}

answer errors_stay() {
  write_one<<<1, 1>>>(nullptr);
  const cudaError_t first = cudaDeviceSynchronize();
  void* block = nullptr;
  const cudaError_t later = cudaMalloc(&block, 1000);
  std::uintptr_t of_driver = 0;
  const status of_call = driver().allocate(1000, of_driver);
  return {first != cudaSuccess && later != cudaSuccess && of_call != status::success &&
              gpu::detail::shows_end_of_work(of_call),
          std::string{cudaGetErrorName(first)} + ", then cudaMalloc: " + cudaGetErrorName(later) +
              ", cuMemAlloc: " + text(of_call)};
}

/// No call waits for the kernel: whichever comes after its end has the error.
answer errors_surface_elsewhere() {
  write_one<<<1, 1>>>(nullptr);
  for (int i = 0; i < 1'000'000; ++i) {
    void* block = nullptr;
    const cudaError_t result = cudaMalloc(&block, 1000);
    if (result != cudaSuccess) {
      return {result == cudaErrorIllegalAddress,
              std::string{"cudaMalloc, call "} + std::to_string(i + 1) + ": " + cudaGetErrorName(result)};
    }
    if (const cudaError_t freed = cudaFree(block); freed != cudaSuccess)
      return {freed == cudaErrorIllegalAddress, std::string{"cudaFree: "} + cudaGetErrorName(freed)};
  }
  return {false, "a million calls of cudaMalloc succeed"};
}

constexpr rule stream_rules[] = {
    {"per_thread_streams", "0x2 is another stream in each thread", per_thread_streams},
    {"handles_of_the_legacy_stream", "0x1 is the legacy stream, as null is", handles_of_the_legacy_stream},
    {"blocking_streams", "a blocking stream and the legacy one wait for each other, others for neither",
     blocking_streams},
    {"device_0_restored",
     "a new thread has no context; cudaSetDevice gives it one, and cudaGetDevice does not",
     device_0_restored},
    {"context_taken_away",
     "a thread whose context is taken away again has none, and the runtime works for it", context_taken_away},
    {"errors_stay", "after an illegal access every later call fails", errors_stay},
    {"errors_surface_elsewhere", "an error of a kernel surfaces at an unrelated call",
     errors_surface_elsewhere},
};

}  // namespace

std::span<rule const> rules_of_streams() { return stream_rules; }

}  // namespace tidemark::test
