// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arenas: bump allocation with rewind, their scopes, scratch arenas of each thread, arenas for teams of
/// threads, and arenas that other processes read.
module;

#include <tidemark/arena.hpp>

export module tidemark.arena;

export import tidemark.core;

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
using tidemark::report_use_after_rewind;
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

// Arenas for teams of threads
using tidemark::basic_local_arena;
using tidemark::basic_shared_arena;
using tidemark::basic_shared_arena_scope;
using tidemark::local_arena;
using tidemark::shared_arena;
using tidemark::shared_arena_mark;
using tidemark::shared_arena_stats;
using tidemark::team_options;

// Arenas that other processes read
using tidemark::process_arena;
using tidemark::process_arena_options;
using tidemark::process_view;
using tidemark::process_view_options;

}  // namespace tidemark
