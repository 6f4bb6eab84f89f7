// SPDX-License-Identifier: Apache-2.0
/// @file
/// `nccl_functions`: NCCL's functions as they are called. Owns nothing.
#pragma once

#include <cstddef>

// NCCL's own opaque structures.
struct ncclComm;
struct ncclWindow_vidmem;

namespace tidemark::gpu::detail {

/// Pointers to the functions of nccl.h, with `int` for `ncclResult_t`. tests/cuda/nccl compares them with the
/// header. Null: not loaded.
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

}  // namespace tidemark::gpu::detail
