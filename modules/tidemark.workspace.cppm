// SPDX-License-Identifier: Apache-2.0
/// @file
/// Workspaces: typed temporaries that the next run reuses, and the views that refer to them.
export module tidemark.workspace;

export import tidemark.core;
import tidemark.detail.headers;

export namespace tidemark {

// Workspaces
using tidemark::basic_workspace;
using tidemark::checked_workspace;
using tidemark::default_workspace_options;
using tidemark::device_fill;
using tidemark::packed_bits;
using tidemark::set_default_workspace_options;
using tidemark::unlimited_cache_ways;
using tidemark::with_workspace;
using tidemark::workspace;
using tidemark::workspace_acquisition;
using tidemark::workspace_options;
using tidemark::workspace_stats;
using tidemark::workspace_type_stats;

// Threads and tasks
using tidemark::this_thread_workspace;
using tidemark::workspace_binding;

// Release of memory
using tidemark::compact_options;
using tidemark::compact_summary;
using tidemark::disable_workspace_sweeps;
using tidemark::enable_workspace_sweeps;
using tidemark::sweep_options;
using tidemark::tick_workspace_sweeps;
using tidemark::trim_summary;
using tidemark::workspace_sweeps_enabled;

// Misuse and warnings
using tidemark::stale_view;
using tidemark::workspace_escape;

// Views
using tidemark::bit_view;
using tidemark::column_major;
using tidemark::reshape;
using tidemark::row_major;
using tidemark::tensor_view;

// Random numbers
using tidemark::acquire_normal;
using tidemark::acquire_uniform;

// DLPack
using tidemark::acquire_tensor;
using tidemark::dl_cpu;
using tidemark::dl_data_type;
using tidemark::dl_data_type_of;
using tidemark::dl_device;
using tidemark::dl_tensor;

}  // namespace tidemark
