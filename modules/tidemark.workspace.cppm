// SPDX-License-Identifier: Apache-2.0
/// @file
/// Workspaces: typed temporaries that are there again the next time, and the views that stand for them.
module;

#include <tidemark/bit_view.hpp>
#include <tidemark/dlpack.hpp>
#include <tidemark/tensor_view.hpp>
#include <tidemark/this_thread_workspace.hpp>
#include <tidemark/warning.hpp>
#include <tidemark/with_workspace.hpp>
#include <tidemark/workspace.hpp>
#include <tidemark/workspace_acquisition.hpp>
#include <tidemark/workspace_compaction.hpp>
#include <tidemark/workspace_errors.hpp>
#include <tidemark/workspace_options.hpp>
#include <tidemark/workspace_scope.hpp>
#include <tidemark/workspace_stats.hpp>
#include <tidemark/workspace_sweeps.hpp>

export module tidemark.workspace;

export namespace tidemark {

// Workspaces
using tidemark::basic_workspace;
using tidemark::basic_workspace_scope;
using tidemark::checked_workspace;
using tidemark::default_workspace_options;
using tidemark::device_fill;
using tidemark::maybe_with_workspace;
using tidemark::packed_bits;
using tidemark::set_default_workspace_options;
using tidemark::set_workspace_pooling;
using tidemark::unlimited_cache_ways;
using tidemark::with_workspace;
using tidemark::workspace;
using tidemark::workspace_acquisition;
using tidemark::workspace_options;
using tidemark::workspace_policy;
using tidemark::workspace_pooling_enabled;
using tidemark::workspace_stats;
using tidemark::workspace_type_stats;

// Threads and tasks
using tidemark::lease_workspace;
using tidemark::release_waiting_workspaces;
using tidemark::this_thread_workspace;
using tidemark::workspace_binding;
using tidemark::workspace_lease;

// Giving memory back
using tidemark::compact_options;
using tidemark::compact_summary;
using tidemark::disable_workspace_sweeps;
using tidemark::enable_workspace_sweeps;
using tidemark::sweep_options;
using tidemark::tick_workspace_sweeps;
using tidemark::trim_summary;
using tidemark::workspace_sweeps_enabled;

// Misuse and warnings
using tidemark::get_warning_handler;
using tidemark::set_warning_handler;
using tidemark::stale_view;
using tidemark::warning;
using tidemark::warning_handler;
using tidemark::warning_kind;
using tidemark::workspace_escape;

// Views
using tidemark::bit_view;
using tidemark::column_major;
using tidemark::reshape;
using tidemark::row_major;
using tidemark::tensor_view;

// DLPack
using tidemark::dl_cpu;
using tidemark::dl_data_type;
using tidemark::dl_data_type_of;
using tidemark::dl_device;
using tidemark::dl_tensor;

}  // namespace tidemark
