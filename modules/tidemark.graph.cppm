// SPDX-License-Identifier: Apache-2.0
/// @file
/// Graphs: captured work, and memory whose addresses never change.
export module tidemark.graph;

export import tidemark.core;
import tidemark.detail.headers;

export namespace tidemark {

// Memory of a graph
using tidemark::graph_arena;
using tidemark::graph_arena_options;
using tidemark::graph_arena_stats;
using tidemark::graph_layout;
using tidemark::rehearsal;
using tidemark::rehearse;
using tidemark::rehearse_plan;

// Allocation during captures
using tidemark::baked_blocks;
using tidemark::capture_switch;
using tidemark::capture_switch_options;
using tidemark::capture_switch_stats;
using tidemark::frozen_policy;

// Captures
using tidemark::capturable;
using tidemark::capture;
using tidemark::capture_with;
using tidemark::captured_graph;
using tidemark::graph_backend;
using tidemark::graph_instance;
using tidemark::graph_stream;
using tidemark::host_backend;

// Errors
using tidemark::allocator_busy;
using tidemark::allocator_frozen;
using tidemark::empty_capture;
using tidemark::layout_mismatch;

}  // namespace tidemark
