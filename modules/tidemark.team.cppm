// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arenas that a team of threads shares, and their scopes.
export module tidemark.team;

export import tidemark.arena;
export import tidemark.core;
import tidemark.detail.headers;

export namespace tidemark {

using tidemark::basic_local_arena;
using tidemark::basic_shared_arena;
using tidemark::basic_shared_arena_scope;
using tidemark::local_arena;
using tidemark::shared_arena;
using tidemark::shared_arena_mark;
using tidemark::shared_arena_stats;
using tidemark::team_options;

}  // namespace tidemark
