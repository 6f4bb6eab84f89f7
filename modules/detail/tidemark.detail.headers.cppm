// SPDX-License-Identifier: Apache-2.0
/// @file
/// All headers of the host, for the modules that export their names. Programs do not import this module.
///
/// A compiled interface stores all that its global module fragment includes, and the standard library is most
/// of it. Here it is stored once; with the headers in each module, 14 interfaces had 166 MB (decision 98). A
/// name of a part's module is listed here as well, because a module can only export names that it imports.
module;

#include <tidemark/compat.hpp>
#include <tidemark/tidemark.hpp>
#include <tidemark/workspace/extras/random.hpp>

export module tidemark.detail.headers;

export namespace tidemark {

// core
using tidemark::GiB, tidemark::KiB, tidemark::MiB, tidemark::address_space, tidemark::basic_borrowed_memory,
    tidemark::basic_upstream_memory, tidemark::borrowed_device_memory, tidemark::borrowed_memory,
    tidemark::byte_range, tidemark::committed_ranges, tidemark::huge_page_policy, tidemark::memory_registrar,
    tidemark::ordered_space, tidemark::registered_memory, tidemark::reporting_space,
    tidemark::space_traits, tidemark::upstream_device_memory, tidemark::upstream_memory,
    tidemark::virtual_memory, tidemark::virtual_memory_options, tidemark::default_os_memory,
    tidemark::entropy_seed, tidemark::file_descriptor, tidemark::os_memory, tidemark::set_default_os_memory,
    tidemark::system_memory, tidemark::check_level, tidemark::exhaustion_report,
    tidemark::get_violation_handler, tidemark::get_warning_handler, tidemark::out_of_memory,
    tidemark::set_violation_handler, tidemark::set_warning_handler, tidemark::violation,
    tidemark::violation_handler, tidemark::violation_kind, tidemark::warning, tidemark::warning_handler,
    tidemark::warning_kind, tidemark::unique_block, tidemark::reuse_fence, tidemark::allocation_observer,
    tidemark::allocation_site, tidemark::size_histogram, tidemark::live_block, tidemark::resource_stats;

// arena
using tidemark::arena, tidemark::basic_arena, tidemark::borrowed_arena, tidemark::borrowed_device_arena,
    tidemark::upstream_arena, tidemark::upstream_device_arena, tidemark::arena_mark, tidemark::arena_options,
    tidemark::arena_push, tidemark::arena_stats, tidemark::exhaustion_policy, tidemark::trap_options,
    tidemark::no_destructor, tidemark::no_destructor_t, tidemark::uninitialized, tidemark::uninitialized_t,
    tidemark::basic_arena_scope, tidemark::no_conflicts, tidemark::scratch, tidemark::scratch_arena_count,
    tidemark::scratch_conflict, tidemark::set_scratch_options;

// team
using tidemark::basic_local_arena, tidemark::basic_shared_arena, tidemark::basic_shared_arena_scope,
    tidemark::local_arena, tidemark::shared_arena, tidemark::shared_arena_mark, tidemark::shared_arena_stats,
    tidemark::team_options;

// process
using tidemark::open_shared_memory, tidemark::process_arena, tidemark::process_arena_options,
    tidemark::process_view, tidemark::shared_memory, tidemark::shared_memory_error,
    tidemark::shared_memory_options, tidemark::shared_memory_refusal, tidemark::shared_memory_view;

// coroutine
using tidemark::frame_resource, tidemark::pmr_promise;

// diagnose
using tidemark::expect_resource, tidemark::report_use_after_rewind;

// pool
using tidemark::global_pool, tidemark::pool, tidemark::pool_options, tidemark::pool_stats,
    tidemark::pooled_alloc, tidemark::pooled_free, tidemark::synchronized_pool, tidemark::reuse_cache,
    tidemark::reuse_cache_options, tidemark::reuse_cache_stats, tidemark::byte_cap_from_environment,
    tidemark::mib_cap_from_environment, tidemark::parse_byte_cap, tidemark::parse_mib_cap,
    tidemark::on_memory_pressure, tidemark::pressure_monitor, tidemark::pressure_monitor_options,
    tidemark::pressure_subscription, tidemark::signal_memory_pressure;

// epoch
using tidemark::epoch, tidemark::epoch_options, tidemark::epoch_resource, tidemark::epoch_stats,
    tidemark::epoch_summary, tidemark::keepable, tidemark::with_epoch, tidemark::buffer,
    tidemark::buffer_view, tidemark::buffer_group, tidemark::release_then, tidemark::epoch_detector,
    tidemark::named_operand, tidemark::require_live, tidemark::set_epoch_detector,
    tidemark::set_use_after_epoch_policy, tidemark::use_after_epoch, tidemark::use_after_epoch_policy;

// workspace
using tidemark::basic_workspace, tidemark::checked_workspace, tidemark::default_workspace_options,
    tidemark::device_fill, tidemark::packed_bits, tidemark::set_default_workspace_options,
    tidemark::unlimited_cache_ways, tidemark::with_workspace, tidemark::workspace,
    tidemark::workspace_acquisition, tidemark::workspace_options, tidemark::workspace_stats,
    tidemark::workspace_type_stats, tidemark::this_thread_workspace, tidemark::workspace_binding,
    tidemark::compact_options, tidemark::compact_summary, tidemark::disable_workspace_sweeps,
    tidemark::enable_workspace_sweeps, tidemark::sweep_options, tidemark::tick_workspace_sweeps,
    tidemark::trim_summary, tidemark::workspace_sweeps_enabled, tidemark::stale_view,
    tidemark::workspace_escape, tidemark::bit_view, tidemark::column_major, tidemark::reshape,
    tidemark::row_major, tidemark::tensor_view, tidemark::acquire_normal, tidemark::acquire_uniform,
    tidemark::acquire_tensor, tidemark::dl_cpu, tidemark::dl_data_type, tidemark::dl_data_type_of,
    tidemark::dl_device, tidemark::dl_tensor;

// plan
using tidemark::default_plan_alignment, tidemark::lifetime, tidemark::make_plan, tidemark::memory_plan,
    tidemark::require_valid, tidemark::basic_planned_arena, tidemark::load_step_plan, tidemark::planned_arena,
    tidemark::planned_arena_options, tidemark::planned_arena_stats, tidemark::planned_block,
    tidemark::save_plan, tidemark::step_plan;

// graph
using tidemark::graph_arena, tidemark::graph_arena_options,
    tidemark::graph_arena_stats, tidemark::graph_layout, tidemark::rehearsal, tidemark::rehearse,
    tidemark::rehearse_plan, tidemark::baked_blocks, tidemark::capture_switch,
    tidemark::capture_switch_options, tidemark::capture_switch_stats, tidemark::frozen_policy,
    tidemark::capturable, tidemark::capture, tidemark::capture_with, tidemark::captured_graph,
    tidemark::graph_backend, tidemark::graph_instance, tidemark::graph_stream, tidemark::host_backend,
    tidemark::allocator_busy, tidemark::allocator_frozen, tidemark::empty_capture, tidemark::layout_mismatch;

// telemetry
using tidemark::trace_log, tidemark::trace_log_options, tidemark::trace_resource, tidemark::trace_slice,
    tidemark::expect_no_upstream, tidemark::limit_resource, tidemark::observer_list,
    tidemark::statistics_resource, tidemark::fail_each_allocation, tidemark::test_resource,
    tidemark::test_resource_options, tidemark::tracking_resource;

}  // namespace tidemark

export namespace tidemark::compat {

using tidemark::compat::monotonic_buffer_resource, tidemark::compat::synchronized_pool_resource,
    tidemark::compat::unsynchronized_pool_resource;

}  // namespace tidemark::compat
