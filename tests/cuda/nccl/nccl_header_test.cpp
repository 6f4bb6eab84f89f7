// SPDX-License-Identifier: Apache-2.0
// Strategy: the compiler compares the assumptions of gpu::nccl with NCCL's header, and calls that need no GPU
// compare them with its library.
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include <tidemark/core/units.hpp>
#include <tidemark/cuda/nccl/nccl.hpp>

namespace tidemark {
namespace {

using gpu::nccl_status;
using gpu::nccl_window_flags;
using gpu::detail::nccl_functions;

static_assert(std::is_same_v<gpu::nccl_communicator, ncclComm_t>);
static_assert(std::is_same_v<gpu::nccl_window, ncclWindow_t>);
static_assert(sizeof(ncclResult_t) == sizeof(int));

constexpr bool is(nccl_status ours, ncclResult_t theirs) { return static_cast<int>(ours) == theirs; }
static_assert(is(nccl_status::success, ncclSuccess) &&
              is(nccl_status::unhandled_cuda_error, ncclUnhandledCudaError) &&
              is(nccl_status::system_error, ncclSystemError) &&
              is(nccl_status::internal_error, ncclInternalError) &&
              is(nccl_status::invalid_argument, ncclInvalidArgument) &&
              is(nccl_status::invalid_usage, ncclInvalidUsage) &&
              is(nccl_status::remote_error, ncclRemoteError) &&
              is(nccl_status::in_progress, ncclInProgress) && is(nccl_status::timeout, ncclTimeout));

constexpr bool is(nccl_window_flags ours, int theirs) { return static_cast<int>(ours) == theirs; }
static_assert(is(nccl_window_flags::none, NCCL_WIN_DEFAULT) &&
              is(nccl_window_flags::symmetric, NCCL_WIN_COLL_SYMMETRIC) &&
              is(nccl_window_flags::strict_ordering, NCCL_WIN_STRICT_ORDERING) &&
              is(nccl_window_flags::symmetric_strict_ordering,
                 NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING));

// A type with int where it has ncclResult_t, and int* where it has ncclResult_t*.
template <class T>
struct as_int : std::type_identity<T> {};
template <>
struct as_int<ncclResult_t> : std::type_identity<int> {};
template <>
struct as_int<ncclResult_t*> : std::type_identity<int*> {};
template <class Result, class... Parameters>
struct as_int<Result(Parameters...)>
    : std::type_identity<typename as_int<Result>::type (*)(typename as_int<Parameters>::type...)> {};

template <auto Member>
using ours = std::remove_reference_t<decltype(nccl_functions{}.*Member)>;
template <auto Member, class Theirs>
constexpr bool agree = std::is_same_v<ours<Member>, typename as_int<Theirs>::type>;

static_assert(agree<&nccl_functions::mem_alloc, decltype(ncclMemAlloc)>);
static_assert(agree<&nccl_functions::mem_free, decltype(ncclMemFree)>);
static_assert(agree<&nccl_functions::comm_cu_device, decltype(ncclCommCuDevice)>);
static_assert(agree<&nccl_functions::comm_get_async_error, decltype(ncclCommGetAsyncError)>);
static_assert(agree<&nccl_functions::comm_register, decltype(ncclCommRegister)>);
static_assert(agree<&nccl_functions::comm_deregister, decltype(ncclCommDeregister)>);
static_assert(agree<&nccl_functions::comm_window_register, decltype(ncclCommWindowRegister)>);
static_assert(agree<&nccl_functions::comm_window_deregister, decltype(ncclCommWindowDeregister)>);
static_assert(agree<&nccl_functions::get_error_string, decltype(ncclGetErrorString)>);

TEST(nccl_header, matches_the_loaded_library) {
  gpu::nccl_library nccl{TIDEMARK_TEST_NCCL_LIBRARY};
  ASSERT_TRUE(nccl.is_loaded()) << nccl.error_string(nccl_status::not_installed);
  EXPECT_STREQ(nccl.error_string(nccl_status::success), "no error");
  for (int number = 1; number <= 8; ++number) {
    const std::string text = nccl.error_string(static_cast<nccl_status>(number));
    EXPECT_NE(text, "unknown result code") << number;
  }
  EXPECT_STREQ(nccl.error_string(nccl_status::not_found), "the library does not have the function");
}

TEST(nccl_header, declares_calls_that_the_library_answers) {
  gpu::nccl_library nccl{TIDEMARK_TEST_NCCL_LIBRARY};
  std::uintptr_t block = 0;
  const nccl_status allocated = nccl.allocate(1 * MiB, block);
  if (allocated == nccl_status::success) EXPECT_EQ(nccl.free(block), nccl_status::success);
  else EXPECT_EQ(allocated, nccl_status::unhandled_cuda_error) << "as without a device";
  gpu::device_number device = 0;
  nccl_status now = nccl_status::success;
  void* handle = nullptr;
  gpu::nccl_window window = nullptr;
  EXPECT_EQ(nccl.device_of(nullptr, device), nccl_status::invalid_argument);
  EXPECT_EQ(nccl.progress(nullptr, now), nccl_status::invalid_argument);
  EXPECT_EQ(nccl.register_buffer(nullptr, {4096, 4096}, handle), nccl_status::invalid_argument);
  EXPECT_EQ(nccl.deregister_buffer(nullptr, nullptr), nccl_status::invalid_argument);
  EXPECT_EQ(nccl.register_window(nullptr, {4096, 4096}, nccl_window_flags::symmetric, window),
            nccl_status::invalid_argument);
  EXPECT_EQ(nccl.deregister_window(nullptr, nullptr), nccl_status::invalid_argument);
}

}  // namespace
}  // namespace tidemark
