// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arenas: bump allocation with rewind, their scopes, and the scratch arenas of each thread.
export module tidemark.arena;

export import tidemark.core;
import tidemark.detail.headers;

export namespace tidemark {

// Arenas
using tidemark::arena;
using tidemark::basic_arena;
using tidemark::borrowed_arena;
using tidemark::borrowed_device_arena;
using tidemark::upstream_arena;
using tidemark::upstream_device_arena;
using tidemark::arena_mark;
using tidemark::arena_options;
using tidemark::arena_push;
using tidemark::arena_stats;
using tidemark::exhaustion_policy;
using tidemark::trap_options;
using tidemark::no_destructor;
using tidemark::no_destructor_t;
using tidemark::uninitialized;
using tidemark::uninitialized_t;

// Scopes and scratch
using tidemark::basic_arena_scope;
using tidemark::no_conflicts;
using tidemark::scratch;
using tidemark::scratch_arena_count;
using tidemark::scratch_conflict;
using tidemark::set_scratch_options;

}  // namespace tidemark
