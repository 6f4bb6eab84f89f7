// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory shared between processes: arenas that other processes read, and shared memory.
export module tidemark.process;

export import tidemark.arena;
export import tidemark.core;
import tidemark.detail.headers;

export namespace tidemark {

using tidemark::open_shared_memory;
using tidemark::process_arena;
using tidemark::process_arena_options;
using tidemark::process_view;
using tidemark::shared_memory;
using tidemark::shared_memory_error;
using tidemark::shared_memory_options;
using tidemark::shared_memory_refusal;
using tidemark::shared_memory_view;

}  // namespace tidemark
