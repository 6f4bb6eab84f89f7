// SPDX-License-Identifier: Apache-2.0
#include <tidemark/cuda/nccl/nccl_error.hpp>

#include <algorithm>
#include <cstdio>
#include <iterator>

namespace tidemark {
namespace gpu {
namespace {

struct nccl_text {
  nccl_status result;
  char const* name;
  char const* string;
};

// The last entry is for any other number too.
constexpr nccl_text nccl_texts[] = {
    {nccl_status::success, "ncclSuccess", "no error"},
    {nccl_status::unhandled_cuda_error, "ncclUnhandledCudaError", "a call of CUDA failed"},
    {nccl_status::system_error, "ncclSystemError", "a call of the system failed"},
    {nccl_status::internal_error, "ncclInternalError", "an error in NCCL"},
    {nccl_status::invalid_argument, "ncclInvalidArgument", "an argument is not valid"},
    {nccl_status::invalid_usage, "ncclInvalidUsage", "the call is not allowed here"},
    {nccl_status::remote_error, "ncclRemoteError", "another rank or the network failed"},
    {nccl_status::in_progress, "ncclInProgress", "the call has not ended yet"},
    {nccl_status::timeout, "ncclTimeout", "the call took too long"},
    {nccl_status::not_installed, "NCCL is not installed", "no library is loaded"},
    {nccl_status::not_found, "NCCL is too old", "the library does not have the function"},
    {nccl_status{-3}, "unknown error of NCCL", "NCCL has no text for it"}};

nccl_text const& text_of(nccl_status result) noexcept {
  return *std::ranges::find(nccl_texts, std::end(nccl_texts) - 1, result, &nccl_text::result);
}

}  // namespace

char const* nccl::error_name(nccl_status result) noexcept { return text_of(result).name; }
char const* nccl::error_string(nccl_status result) noexcept { return text_of(result).string; }

}  // namespace gpu

nccl_error::nccl_error(gpu::nccl& nccl, char const* call, gpu::nccl_status result) noexcept
    : status_{result}, call_{call} {
  std::snprintf(message_, sizeof message_, "%s: %s (%s)", call, gpu::nccl::error_name(result),
                nccl.error_string(result));
}

}  // namespace tidemark
