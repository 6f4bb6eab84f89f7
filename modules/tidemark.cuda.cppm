// SPDX-License-Identifier: Apache-2.0
/// @file
/// CUDA: where device memory comes from, arenas and pools of it, streams and events, and the driver's calls.
module;

#include <tidemark/cuda.hpp>

export module tidemark.cuda;

export namespace tidemark {

// Arenas
using tidemark::device_arena;
using tidemark::device_planned_arena;
using tidemark::managed_arena;
using tidemark::pinned_arena;

// Caches and pools
using tidemark::device_cache;
using tidemark::device_cache_options;
using tidemark::device_caches;
using tidemark::device_pool;
using tidemark::device_pool_options;

// Errors
using tidemark::cuda_error;
using tidemark::nccl_error;

// Captures
using tidemark::capture;
using tidemark::stream_capture_options;

namespace cuda {

// The driver
using tidemark::cuda::capture_mode;
using tidemark::cuda::context_handle;
using tidemark::cuda::default_driver;
using tidemark::cuda::device_budget;
using tidemark::cuda::device_number;
using tidemark::cuda::device_set;
using tidemark::cuda::driver;
using tidemark::cuda::event_handle;
using tidemark::cuda::executable_handle;
using tidemark::cuda::graph_handle;
using tidemark::cuda::memory_info;
using tidemark::cuda::memory_properties;
using tidemark::cuda::physical_handle;
using tidemark::cuda::pool_handle;
using tidemark::cuda::require;
using tidemark::cuda::shareable_handle;
using tidemark::cuda::set_default_driver;
using tidemark::cuda::status;
using tidemark::cuda::stream_handle;
using tidemark::cuda::system_driver;

// Captures
using tidemark::cuda::capture_backend;

// Where memory comes from
using tidemark::cuda::async_resource;
using tidemark::cuda::async_resource_options;
using tidemark::cuda::basic_block_memory;
using tidemark::cuda::block_kind;
using tidemark::cuda::block_resource;
using tidemark::cuda::block_resource_options;
using tidemark::cuda::device_memory;
using tidemark::cuda::device_resource;
using tidemark::cuda::driver_block_alignment;
using tidemark::cuda::exported_handle;
using tidemark::cuda::exported_memory;
using tidemark::cuda::imported_memory;
using tidemark::cuda::imported_memory_options;
using tidemark::cuda::managed_memory;
using tidemark::cuda::managed_resource;
using tidemark::cuda::memory_access;
using tidemark::cuda::memory_access_of;
using tidemark::cuda::memory_pool;
using tidemark::cuda::memory_pool_options;
using tidemark::cuda::pinned_memory;
using tidemark::cuda::pinned_resource;
using tidemark::cuda::virtual_memory;
using tidemark::cuda::virtual_memory_options;

// NCCL
using tidemark::cuda::basic_nccl_registrar;
using tidemark::cuda::nccl;
using tidemark::cuda::nccl_communicator;
using tidemark::cuda::nccl_library;
using tidemark::cuda::nccl_memory;
using tidemark::cuda::nccl_memory_options;
using tidemark::cuda::nccl_registrar;
using tidemark::cuda::nccl_registration;
using tidemark::cuda::nccl_status;
using tidemark::cuda::nccl_window;
using tidemark::cuda::nccl_window_flags;
using tidemark::cuda::nccl_window_position;
using tidemark::cuda::nccl_window_registrar;
using tidemark::cuda::system_nccl;

// Streams and events
using tidemark::cuda::event;
using tidemark::cuda::handle_type;
using tidemark::cuda::is_same_stream;
using tidemark::cuda::legacy_stream;
using tidemark::cuda::per_thread_stream;
using tidemark::cuda::put_behind;
using tidemark::cuda::stream;
using tidemark::cuda::stream_bound;
using tidemark::cuda::stream_of;

}  // namespace cuda
}  // namespace tidemark
