// SPDX-License-Identifier: Apache-2.0
/// @file
/// CUDA: sources of device memory, arenas and pools, streams and events, and the driver's calls.
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
using tidemark::device_pools;
using tidemark::device_pools_options;
using tidemark::device_pools_stats;
using tidemark::device_pool;
using tidemark::device_pool_options;

// Errors
using tidemark::cuda_error;
using tidemark::nccl_error;

// Captures
using tidemark::capture;
using tidemark::stream_capture_options;

namespace gpu {

// The driver
using tidemark::gpu::capture_mode;
using tidemark::gpu::context_handle;
using tidemark::gpu::default_driver;
using tidemark::gpu::device_budget;
using tidemark::gpu::device_number;
using tidemark::gpu::device_set;
using tidemark::gpu::driver;
using tidemark::gpu::event_handle;
using tidemark::gpu::executable_handle;
using tidemark::gpu::graph_handle;
using tidemark::gpu::memory_info;
using tidemark::gpu::memory_properties;
using tidemark::gpu::physical_handle;
using tidemark::gpu::pool_handle;
using tidemark::gpu::require_success;
using tidemark::gpu::shareable_handle;
using tidemark::gpu::set_default_driver;
using tidemark::gpu::status;
using tidemark::gpu::stream_handle;
using tidemark::gpu::system_driver;

// Captures
using tidemark::gpu::capture_backend;

// Memory sources
using tidemark::gpu::async_resource;
using tidemark::gpu::async_resource_options;
using tidemark::gpu::basic_block_memory;
using tidemark::gpu::block_kind;
using tidemark::gpu::block_resource;
using tidemark::gpu::block_resource_options;
using tidemark::gpu::device_memory;
using tidemark::gpu::device_resource;
using tidemark::gpu::driver_block_alignment;
using tidemark::gpu::exported_handle;
using tidemark::gpu::exported_memory;
using tidemark::gpu::imported_memory;
using tidemark::gpu::imported_memory_options;
using tidemark::gpu::managed_memory;
using tidemark::gpu::managed_resource;
using tidemark::gpu::memory_access;
using tidemark::gpu::memory_access_of;
using tidemark::gpu::memory_pool;
using tidemark::gpu::memory_pool_options;
using tidemark::gpu::pinned_memory;
using tidemark::gpu::pinned_resource;
using tidemark::gpu::virtual_memory;
using tidemark::gpu::virtual_memory_options;

// NCCL
using tidemark::gpu::basic_nccl_registrar;
using tidemark::gpu::nccl;
using tidemark::gpu::nccl_communicator;
using tidemark::gpu::nccl_library;
using tidemark::gpu::nccl_memory;
using tidemark::gpu::nccl_memory_options;
using tidemark::gpu::nccl_registrar;
using tidemark::gpu::nccl_registration;
using tidemark::gpu::nccl_status;
using tidemark::gpu::nccl_window;
using tidemark::gpu::nccl_window_flags;
using tidemark::gpu::nccl_window_position;
using tidemark::gpu::nccl_window_registrar;
using tidemark::gpu::system_nccl;

// Streams and events
using tidemark::gpu::event;
using tidemark::gpu::handle_type;
using tidemark::gpu::is_same_stream;
using tidemark::gpu::legacy_stream;
using tidemark::gpu::per_thread_stream;
using tidemark::gpu::put_behind;
using tidemark::gpu::stream;
using tidemark::gpu::stream_bound;
using tidemark::gpu::stream_of;

}  // namespace gpu
}  // namespace tidemark
