// SPDX-License-Identifier: Apache-2.0
/// @file
/// `gpu::nccl`: a replaceable table of the NCCL calls that tidemark makes. Owns the loaded library.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tidemark/core/byte_range.hpp>
#include <tidemark/cuda/driver/device_set.hpp>

// NCCL's own opaque structures.
struct ncclComm;
struct ncclWindow_vidmem;

namespace tidemark::gpu {  // NOLINT(modernize-concat-nested-namespaces)

/// A communicator, as `ncclComm_t`.
using nccl_communicator = ::ncclComm*;
/// A window, as `ncclWindow_t` since NCCL 2.28.
using nccl_window = ::ncclWindow_vidmem*;

/// A result of NCCL, with the number of `ncclResult_t`, or one of ours below 0.
enum class [[nodiscard]] nccl_status : int {
  success = 0,
  unhandled_cuda_error = 1,  ///< also if the device has no memory
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,  ///< of a non-blocking communicator
  timeout = 8,
  not_installed = -1,  ///< the library cannot be loaded
  not_found = -2,      ///< the library is too old for the function
};

/// Purpose of a window, as NCCL's flags `NCCL_WIN_…`; other numbers of NCCL are also valid.
enum class nccl_window_flags : int {
  none = 0,
  symmetric = 1,  ///< collectives pass the same offset on every rank, and are faster
  strict_ordering = 2,
  symmetric_strict_ordering = 3,
};

/// The calls of NCCL that tidemark uses. Derive from it to count calls, to make the n-th call fail, or to use
/// a statically linked library. The functions of this base class return `nccl_status::not_installed`, as on a
/// machine without NCCL.
///
/// It uses no type of NCCL's headers. Each function makes the NCCL call in its comment, with the same rules
/// and results. Every function may be called from any thread and does not throw. A reference parameter is set
/// only if the function returns `nccl_status::success`. Handles of a non-blocking communicator are set when
/// `progress` returns success, and must exist until then.
class nccl {
 public:
  nccl() = default;
  nccl(nccl const&) = delete;
  nccl& operator=(nccl const&) = delete;
  virtual ~nccl() = default;

  /// `ncclMemAlloc`: memory of the current device for every kind of registration.
  virtual nccl_status allocate(std::size_t /*bytes*/, std::uintptr_t& /*block*/) noexcept { return none; }
  /// `ncclMemFree`. @pre No work uses the block, and the block is not registered.
  virtual nccl_status free(std::uintptr_t /*block*/) noexcept { return none; }

  /// `ncclCommCuDevice`: the device of a communicator.
  virtual nccl_status device_of(nccl_communicator, device_number&) noexcept { return none; }
  /// `ncclCommGetAsyncError`: `now` is `in_progress` during a call on the communicator.
  virtual nccl_status progress(nccl_communicator, nccl_status& /*now*/) noexcept { return none; }
  /// `ncclCommRegister`, for this rank alone. The handle is null if the environment disables the call.
  virtual nccl_status register_buffer(nccl_communicator, byte_range, void*& /*handle*/) noexcept {
    return none;
  }
  /// `ncclCommDeregister`.
  virtual nccl_status deregister_buffer(nccl_communicator, void* /*handle*/) noexcept { return none; }
  /// `ncclCommWindowRegister`, by all ranks together. The window is null if NCCL has no windows on this
  /// machine, the environment disables them, or a group of calls is open.
  virtual nccl_status register_window(nccl_communicator, byte_range, nccl_window_flags,
                                      nccl_window&) noexcept {
    return none;
  }
  /// `ncclCommWindowDeregister`.
  virtual nccl_status deregister_window(nccl_communicator, nccl_window) noexcept { return none; }

  /// `ncclGetErrorString`; never null, and valid until the program ends.
  [[nodiscard]] virtual char const* error_string(nccl_status result) noexcept;
  /// Returns a name as "ncclInvalidUsage", or "NCCL is not installed"; never null, and valid until the
  /// program ends.
  [[nodiscard]] static char const* error_name(nccl_status result) noexcept;

 private:
  static constexpr nccl_status none = nccl_status::not_installed;
};

namespace detail {

/// Pointers to the functions of nccl.h, with `int` for `ncclResult_t`. tests/cuda/nccl compares them with the
/// header. Null means not loaded.
struct nccl_functions {
  int (*mem_alloc)(void**, std::size_t) = nullptr;
  int (*mem_free)(void*) = nullptr;
  int (*comm_cu_device)(::ncclComm*, int*) = nullptr;
  int (*comm_get_async_error)(::ncclComm*, int*) = nullptr;
  int (*comm_register)(::ncclComm*, void*, std::size_t, void**) = nullptr;
  int (*comm_deregister)(::ncclComm*, void*) = nullptr;
  int (*comm_window_register)(::ncclComm*, void*, std::size_t, ::ncclWindow_vidmem**, int) = nullptr;
  int (*comm_window_deregister)(::ncclComm*, ::ncclWindow_vidmem*) = nullptr;
  char const* (*get_error_string)(int) = nullptr;
};

}  // namespace detail

/// NCCL as a shared library. The constructor loads the library, which stays loaded until the process ends.
/// Without it all calls return `not_installed`, and `error_string` has the reason. A library of this name
/// that the program has already loaded is used, as with PyTorch. Communicators belong to the library that
/// made them.
///
/// Thread-safety: any thread.
class nccl_library final : public nccl {
 public:
  /// @param file as for `dlopen`: a name that the loader searches for, or a path
  explicit nccl_library(char const* file) noexcept;

  /// Returns true if the library is loaded.
  [[nodiscard]] bool is_loaded() const noexcept { return functions_.mem_alloc != nullptr; }

  nccl_status allocate(std::size_t bytes, std::uintptr_t& block) noexcept override;
  nccl_status free(std::uintptr_t block) noexcept override;
  nccl_status device_of(nccl_communicator, device_number&) noexcept override;
  nccl_status progress(nccl_communicator, nccl_status& now) noexcept override;
  nccl_status register_buffer(nccl_communicator, byte_range, void*& handle) noexcept override;
  nccl_status deregister_buffer(nccl_communicator, void* handle) noexcept override;
  nccl_status register_window(nccl_communicator, byte_range, nccl_window_flags,
                              nccl_window&) noexcept override;
  nccl_status deregister_window(nccl_communicator, nccl_window) noexcept override;
  [[nodiscard]] char const* error_string(nccl_status result) noexcept override;

 private:
  template <class... Parameters, class... Arguments>
  nccl_status call(int (*function)(Parameters...), Arguments... arguments) const noexcept;

  detail::nccl_functions functions_;  // null: missing
  char why_not_[256] = "";
};

/// Returns `libnccl.so.2`, loaded by the first call of this function. Destroyed only when the library is
/// unloaded. Thread-safe.
[[nodiscard]] nccl& system_nccl() noexcept;

}  // namespace tidemark::gpu
