// SPDX-License-Identifier: Apache-2.0
#include "status_text.hpp"

namespace tidemark::cuda {
namespace {

struct text {
  char const* name;
  char const* string;
};

text of(status result) noexcept {
  switch (result) {
    case status::success:
      return {"CUDA_SUCCESS", "no error"};
    case status::invalid_value:
      return {"CUDA_ERROR_INVALID_VALUE", "invalid argument"};
    case status::out_of_memory:
      return {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"};
    case status::not_initialized:
      return {"CUDA_ERROR_NOT_INITIALIZED", "the driver is not initialized"};
    case status::deinitialized:
      return {"CUDA_ERROR_DEINITIALIZED", "the driver is shutting down"};
    case status::stub_library:
      return {"CUDA_ERROR_STUB_LIBRARY", "libcuda is a stub without a driver"};
    case status::no_device:
      return {"CUDA_ERROR_NO_DEVICE", "no CUDA device, or no driver for it"};
    case status::invalid_device:
      return {"CUDA_ERROR_INVALID_DEVICE", "there is no device of that number"};
    case status::invalid_context:
      return {"CUDA_ERROR_INVALID_CONTEXT", "no device context is current"};
    case status::invalid_handle:
      return {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"};
    case status::illegal_state:
      return {"CUDA_ERROR_ILLEGAL_STATE", "not in a state for this call"};
    case status::not_found:
      return {"CUDA_ERROR_NOT_FOUND", "this driver does not have the function"};
    case status::not_ready:
      return {"CUDA_ERROR_NOT_READY", "work has not ended yet"};
    case status::illegal_address:
      return {"CUDA_ERROR_ILLEGAL_ADDRESS", "illegal memory access"};
    case status::not_permitted:
      return {"CUDA_ERROR_NOT_PERMITTED", "not permitted"};
    case status::not_supported:
      return {"CUDA_ERROR_NOT_SUPPORTED", "not supported"};
    case status::capture_unsupported:
      return {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not permitted while a stream is capturing"};
    case status::capture_invalidated:
      return {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "an earlier error has ended the capture"};
    case status::capture_merge:
      return {"CUDA_ERROR_STREAM_CAPTURE_MERGE", "it would merge two independent captures"};
    case status::capture_unmatched:
      return {"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture was not begun on this stream"};
    case status::capture_unjoined:
      return {"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "a forked stream was not joined again"};
    case status::capture_isolation:
      return {"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "it would depend on work outside the capture"};
    case status::capture_implicit:
      return {"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "it would depend on the default stream"};
    case status::captured_event:
      return {"CUDA_ERROR_CAPTURED_EVENT", "the event was last recorded in a capturing stream"};
    case status::capture_wrong_thread:
      return {"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "the capture was begun by another thread"};
    case status::unknown:
      break;
  }
  return {"CUDA_ERROR_UNKNOWN", "unknown error"};
}

}  // namespace

char const* fallback_name(status result) noexcept { return of(result).name; }
char const* fallback_string(status result) noexcept { return of(result).string; }

}  // namespace tidemark::cuda
