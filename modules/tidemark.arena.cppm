// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arenas: bump allocation with rewind, scopes, scratch, and where their memory comes from.
module;

#include <tidemark/address_space.hpp>
#include <tidemark/arena.hpp>
#include <tidemark/arena_mark.hpp>
#include <tidemark/arena_options.hpp>
#include <tidemark/arena_scope.hpp>
#include <tidemark/arena_stats.hpp>
#include <tidemark/borrowed_memory.hpp>
#include <tidemark/byte_range.hpp>
#include <tidemark/os_memory.hpp>
#include <tidemark/out_of_memory.hpp>
#include <tidemark/scratch.hpp>
#include <tidemark/units.hpp>
#include <tidemark/upstream_memory.hpp>
#include <tidemark/violation.hpp>
#include <tidemark/virtual_memory.hpp>

export module tidemark.arena;

export namespace tidemark {

// Sizes
using tidemark::GiB;
using tidemark::KiB;
using tidemark::MiB;

// Arenas
using tidemark::arena;
using tidemark::basic_arena;
using tidemark::borrowed_arena;
using tidemark::borrowed_device_arena;
using tidemark::upstream_arena;
using tidemark::upstream_device_arena;
using tidemark::arena_mark;
using tidemark::arena_options;
using tidemark::arena_stats;
using tidemark::exhaustion_policy;
using tidemark::uninitialized;
using tidemark::uninitialized_t;

// Scopes and scratch
using tidemark::arena_scope;
using tidemark::basic_arena_scope;
using tidemark::scratch;
using tidemark::scratch_arena_count;
using tidemark::scratch_conflict;
using tidemark::set_scratch_options;

// Where memory comes from
using tidemark::address_space;
using tidemark::basic_borrowed_memory;
using tidemark::basic_upstream_memory;
using tidemark::borrowed_device_memory;
using tidemark::borrowed_memory;
using tidemark::byte_range;
using tidemark::huge_page_policy;
using tidemark::upstream_device_memory;
using tidemark::upstream_memory;
using tidemark::virtual_memory;
using tidemark::virtual_memory_options;

// The operating system's calls
using tidemark::default_os_memory;
using tidemark::entropy_seed;
using tidemark::os_memory;
using tidemark::set_default_os_memory;
using tidemark::system_memory;

// Errors
using tidemark::check_level;
using tidemark::exhaustion_report;
using tidemark::get_violation_handler;
using tidemark::out_of_memory;
using tidemark::set_violation_handler;
using tidemark::violation;
using tidemark::violation_handler;
using tidemark::violation_kind;

}  // namespace tidemark
