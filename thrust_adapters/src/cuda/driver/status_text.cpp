// SPDX-License-Identifier: Apache-2.0
// Names of results without a driver, and the exception with these names.
#include <algorithm>
#include <cstdio>
#include <iterator>

#include <tidemark/cuda/driver/cuda_error.hpp>
#include <tidemark/cuda/driver/driver.hpp>

namespace tidemark {
namespace gpu {
namespace {

struct text {
  status result;
  char const* name;
  char const* string;
};

constexpr text texts[] = {
    {status::success, "CUDA_SUCCESS", "no error"},
    {status::invalid_value, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {status::out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {status::not_initialized, "CUDA_ERROR_NOT_INITIALIZED", "the driver is not initialized"},
    {status::deinitialized, "CUDA_ERROR_DEINITIALIZED", "the driver is shutting down"},
    {status::stub_library, "CUDA_ERROR_STUB_LIBRARY", "libcuda is a stub without a driver"},
    {status::no_device, "CUDA_ERROR_NO_DEVICE", "no CUDA device, or no driver for it"},
    {status::invalid_device, "CUDA_ERROR_INVALID_DEVICE", "there is no device of that number"},
    {status::invalid_context, "CUDA_ERROR_INVALID_CONTEXT", "no device context is current"},
    {status::contained, "CUDA_ERROR_CONTAINED", "an error of the device, contained to this process"},
    {status::invalid_handle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {status::illegal_state, "CUDA_ERROR_ILLEGAL_STATE", "not in a state for this call"},
    {status::not_found, "CUDA_ERROR_NOT_FOUND", "this driver does not have the function"},
    {status::not_ready, "CUDA_ERROR_NOT_READY", "work has not ended yet"},
    {status::illegal_address, "CUDA_ERROR_ILLEGAL_ADDRESS", "illegal memory access"},
    {status::not_permitted, "CUDA_ERROR_NOT_PERMITTED", "not permitted"},
    {status::not_supported, "CUDA_ERROR_NOT_SUPPORTED", "not supported"},
    {status::client_terminated, "CUDA_ERROR_MPS_CLIENT_TERMINATED", "the MPS server has ended this client"},
    {status::capture_unsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "not permitted while a stream is capturing"},
    {status::capture_invalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "an earlier error has ended the capture"},
    {status::capture_merge, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "it would merge two independent captures"},
    {status::capture_unmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "the capture was not begun on this stream"},
    {status::capture_unjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "a forked stream was not joined again"},
    {status::capture_isolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "it would depend on work outside the capture"},
    {status::capture_implicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "it would depend on the default stream"},
    {status::captured_event, "CUDA_ERROR_CAPTURED_EVENT",
     "the event was last recorded in a capturing stream"},
    {status::capture_wrong_thread, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "the capture was begun by another thread"},
    {status::graph_update_failed, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
     "the graph is too different from the one that was instantiated"},
    {status::unknown, "CUDA_ERROR_UNKNOWN", "unknown error"},  // the last: for any other number
};

text const& of(status result) noexcept {
  return *std::ranges::find(texts, std::end(texts) - 1, result, &text::result);
}

}  // namespace

char const* driver::error_name(status result) noexcept { return of(result).name; }
char const* driver::error_string(status result) noexcept { return of(result).string; }

}  // namespace gpu

cuda_error::cuda_error(gpu::driver& driver, char const* call, gpu::status result) noexcept
    : status_{result}, name_{driver.error_name(result)}, string_{driver.error_string(result)} {
  std::snprintf(call_, sizeof call_, "%s", call);
  std::snprintf(message_, sizeof message_, "%s: %s (%s)", call_, name_, string_);
}

}  // namespace tidemark
